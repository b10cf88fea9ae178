#!/usr/bin/env python3
"""Findings against programs with a planted cause and a healthy twin (tests/gpu/held_out_causes and the thirteen sets after it).

    python3 tests/gpu/causes_test.py [--folder held_out_causes] [--state causes.json] [--steps 40] [--rounds 2] [--only NAME,NAME]

Each program runs under `llmprof run`, planted and repaired (--fixed), and both run alone, by turns. Recorded for each:

  first      the first finding of at least minor severity of the planted program: what, where, the gain it gives
  real       what the repair saves of a step by the programs' own timers: of the median of its main kind of step, of both
             sides alone, each round for itself; `kinds` has the same of every kind of step
  full_pace  the same of steps at the full pace of their CPU, by the program's own probes (steady_programs/contract.py) and
             by the recorder's: on hosts whose cores others use as well, processes can be compared only so
  interval   what the gain may be, and whether what the repair saves of that kind of step lies in it
  twin       the findings of the repaired program with a simulated gain

Whether the first finding names the cause is for a reader to judge, beside causes.json: the words there were written without
knowledge of the findings. Costs of the recorder are measured first (`llmprof peaks --recorder-only`), as a user would once.
--again runs nothing: this llmprof analyses the recordings in --keep once more.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys

import forked
import harness
import pace

def last_json(text):
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return None


def steps_ms(result):
    """The median of each kind of step, warm-up aside, and of the one that takes most of the time; and for the latter, each
    step with what the slowest probe in it or next to it took."""
    kinds, paced = {}, {}
    for step in result["steps"]:
        if not step.get("warm_up"):
            ms = (step["end_ns"] - step["start_ns"]) / 1e6
            kinds.setdefault(step["kind"], []).append(ms)
            paced.setdefault(step["kind"], []).append((ms, pace.slowest(result, step["start_ns"], step["end_ns"])))
    main = max(kinds, key=lambda kind: sum(kinds[kind]))
    return {"ms": statistics.median(kinds[main]), "paced": paced[main], "best_ns": pace.best([result]),
            "kinds": {kind: statistics.median(times) for kind, times in kinds.items()}}


def saved_at_full_pace(turns):
    """What the repair saves of the median step at full pace, of all turns together; None where five of either are missing."""
    bests = [turn[side]["best_ns"] for turn in turns for side in turn if turn[side].get("best_ns")]
    if not bests:
        return None
    ms = {side: [ms for turn in turns for ms, slowest in turn[side]["paced"] if pace.full(slowest, min(bests))]
          for side in ("planted", "fixed")}
    if min(len(values) for values in ms.values()) < 5:
        return None
    return 1 - statistics.median(ms["fixed"]) / statistics.median(ms["planted"])


def findings(report):
    kept = []
    for found in report["findings"]:
        kept.append({key: found[key] for key in ("id", "severity", "stage", "title", "gain", "where", "symptoms",
                                                 "forbidden_by")})
    return kept


def gain_of(found):
    gain = found["gain"]
    return None if not gain or gain["from"] <= 0 else 1 - gain["to"] / gain["from"]


def interval_of(found):
    gain = found["gain"]
    if not gain or gain["from"] <= 0 or not gain.get("ci95"):
        return None
    low, high = gain["ci95"]  # of the figure
    return [1 - high / gain["from"], 1 - low / gain["from"]]


def recorded(args, place, name, fixed):
    kept = pathlib.Path(args.keep or place) / (name + ("_fixed" if fixed else ""))
    command = [args.python, str(args.folder / f"{name}.py"), "--steps", str(args.steps), *(["--fixed"] if fixed else [])]
    report_file = str(kept) + ".json"
    done = harness.execute([args.llmprof, "run", "--quiet", "--no-html", "-o", str(kept), "--report", report_file, "--", *command],
                           args.timeout)
    if done.failure():
        return {"error": done.failure()}
    report = json.loads(pathlib.Path(report_file).read_text())
    return {"own_ms": steps_ms(last_json(done.stdout))["ms"], "findings": findings(report),
            "latency": (report["latency"] or {}).get("headline")}


def alone(args, name, fixed, forks):
    command = [args.python, str(args.folder / f"{name}.py"), "--steps", str(args.steps), *(["--fixed"] if fixed else [])]
    if forks:
        result = last_json(forks.run(command[1:], args.timeout))
        return steps_ms(result) if result else {"error": "no result"}
    done = harness.execute(command, args.timeout)
    if done.failure():
        return {"error": done.failure()}
    return steps_ms(last_json(done.stdout))


def judge(one):
    out = {}
    for side in ("planted", "fixed"):
        if "error" in one[side]:
            return {"error": f"{side}: {one[side]['error']}"}
    errors = [turn["error"] for turn in one["alone"] for turn in turn.values() if "error" in turn]
    if errors:
        return {"error": errors[0]}
    if one["alone"]:
        savings = [1 - turn["fixed"]["ms"] / turn["planted"]["ms"] for turn in one["alone"]]
        out["real"] = {"median": statistics.median(savings), "least": min(savings), "most": max(savings)}
        out["kinds"] = {kind: statistics.median(1 - turn["fixed"]["kinds"][kind] / turn["planted"]["kinds"][kind]
                                                for turn in one["alone"])
                        for kind in one["alone"][0]["planted"].get("kinds", {})
                        if all(kind in turn["fixed"]["kinds"] for turn in one["alone"])}
        out["real"]["full_pace"] = saved_at_full_pace(one["alone"])
    first = next((found for found in one["planted"]["findings"] if found["severity"] != "info"), None)
    if first:
        out["first"] = {"id": first["id"], "stage": first["stage"], "gain": gain_of(first),
                        "method": (first["gain"] or {}).get("method"),
                        "full_pace": (first["gain"] or {}).get("full_pace_frac"),
                        "where": [place["name"] for place in first["where"][:1]]}
        if interval := interval_of(first):
            saved = out.get("kinds", {}).get(first["stage"])
            out["interval"] = {"of": interval, "holds": None if saved is None else interval[0] <= saved <= interval[1]}
        out["next"] = [found["id"] for found in one["planted"]["findings"][1:4] if found["severity"] != "info"]
    out["twin"] = [{"id": found["id"], "gain": gain_of(found), "severity": found["severity"]}
                   for found in one["fixed"]["findings"]
                   if found["gain"] and (gain_of(found) or 0) > 0.05][:3]
    return out


def main():
    parser = harness.arguments(__doc__, "causes_results.json")
    parser.add_argument("--folder", type=lambda name: harness.ROOT / "tests/gpu" / name, default="held_out_causes",
                        help="held_out_causes, or one of the sets _2 to _14")
    parser.add_argument("--forked", action="store_true", help="programs alone are forked from one that has imported PyTorch")
    parser.add_argument("--only", help="names of programs")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2, help="turns of both sides alone")
    parser.add_argument("--again", action="store_true", help="analyse the recordings in --keep once more, and run nothing")
    args = parser.parse_args()
    causes = {row["program"]: row for row in json.loads((args.folder / "causes.json").read_text())}
    names = args.only.split(",") if args.only else list(causes)
    if unknown := set(names) - set(causes):
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(causes)}")
    state, budget = harness.State(args.state, args.fresh), harness.Budget(args.budget)
    place = args.keep or "causes_sessions"
    pathlib.Path(place).mkdir(parents=True, exist_ok=True)
    if not args.again and "costs" not in state:
        state.save(machine=harness.machine(args.python))
        subprocess.run([args.llmprof, "peaks", "--recorder-only", "--quick", "--quiet", "--json", "--device", "cuda:0"],
                       capture_output=True, text=True, timeout=200)
        state.put("costs", True)
    forks = forked.Forks(args.python, os.environ, None) if args.forked and not args.again else None
    for name in names:
        if args.again:
            one = state.get(name)
            for side, suffix in (("planted", ""), ("fixed", "_fixed")):
                done = subprocess.run([args.llmprof, "analyze", str(pathlib.Path(place) / (name + suffix)), "--json"],
                                      capture_output=True, text=True)
                one[side]["findings"] = findings(json.loads(done.stdout))
        elif name in state:
            one = state.get(name)
            for side in ("planted", "fixed"):  # what failed is recorded again, what ran stands
                if "error" in one[side]:
                    one[side] = recorded(args, place, name, side == "fixed")
        elif budget.spent(20):
            continue
        else:
            one = {"planted": recorded(args, place, name, False), "fixed": recorded(args, place, name, True), "alone": []}
            for _ in range(args.rounds):
                one["alone"].append({"planted": alone(args, name, False, forks), "fixed": alone(args, name, True, forks)})
            state.put(name, one)
        one["judged"] = judge(one)
        state.put(name, one)
        print(name, json.dumps({"cause": causes[name]["cause"], **one["judged"]}), flush=True)
    if forks:
        forks.close()
    state.save(judged={name: state.get(name)["judged"] for name in names if name in state})
    harness.write_summary(args, state)
    return 0


if __name__ == "__main__":
    sys.exit(main())
