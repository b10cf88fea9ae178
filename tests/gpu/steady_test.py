#!/usr/bin/env python3
"""Headline figures against the timers of programs that no rule was made on (tests/gpu/steady_programs).

    python3 tests/gpu/steady_test.py [--state steady.json] [--only NAME,NAME] [--steps 40] [--plain 1]

Each program runs under `llmprof run` in the default mode, once, and so many times alone. From its own timers, on the same
clock as the recording:

  tpot        of its decode and mixed steps that lie in time in which nothing was recorded and CUPTI was out of the process;
              of all of them in the processes that ran alone
  ttft        of its requests, likewise

without those that the program calls warm-up, and without as many from the beginning as the report found to be warm-up,

and the report's headline beside them, with its source: a median of unrecorded steps, or of replayed ones. A headline is
judged where the report gives one: within 3 % of the program's own unrecorded steps where there are five of them; else of
its processes alone. Costs of the recorder are measured first (`llmprof peaks --recorder-only`), as a user would once.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import harness

PROGRAMS = harness.ROOT / "tests/gpu/steady_programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "contract")
WITHOUT_RANGES = {"triton_only", "graph_queue", "eager_decode", "moe_decode"}  # the others name their stages
TOLERANCE = 0.03
ENOUGH = 5


def last_json(text):
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return None


def within(spans, start, end):
    return any(a <= start and end <= b for a, b in spans)


def spans_of(report, away):
    """Spans of CLOCK_REALTIME in which CUPTI was out of the process; or in which kernels were recorded."""
    return [(row["start_unix_ns"], row["start_unix_ns"] + row["duration_ns"]) for row in report.get("recorded", [])
            if (row["reason"] == "detached" if away else row["level"] in ("default", "deep"))]


def times(result, skipped, inside=None):
    """ms of the tokens' steps and of requests, those within the spans, without as many at the beginning as the report found
    to be warm-up, and without those that the program itself calls so."""
    chosen = lambda start, end: inside is None or within(inside, start, end)
    steps = sorted((s for s in result["steps"] if s["kind"] in ("decode", "mixed")), key=lambda s: s["start_ns"])
    requests = sorted(result["requests"], key=lambda r: r["start_ns"])
    return {"steps_ms": [(s["end_ns"] - s["start_ns"]) / 1e6 for s in steps[skipped["steps"]:]
                         if not s["warm_up"] and chosen(s["start_ns"], s["end_ns"])],
            "ttft_ms": [(r["first_token_ns"] - r["start_ns"]) / 1e6 for r in requests[skipped["prompts"]:]
                        if not r["warm_up"] and chosen(r["start_ns"], r["first_token_ns"])]}


def warm_up_of(report):
    """Steps that the report found to be warm-up, by what they are; those that the program names are its own."""
    kinds_of = {row["name"].split(" [")[0]: row["kind"] for row in report.get("stages", [])}
    count = lambda kinds: sum(row["steps"] for row in report.get("warm_up", [])
                              if row["cause"] != "named" and kinds_of.get(row["stage"]) in kinds)
    return {"steps": count(("decode", "mixed")), "prompts": count(("prefill",))}


def median(values):
    return statistics.median(values) if values else None


def run(args, name):
    command = [args.python, str(PROGRAMS / f"{name}.py"), "--steps", str(args.steps)]
    if name not in WITHOUT_RANGES:
        command.append("--ranges")
    folder = os.path.join(tempfile.gettempdir(), f"steady_{name}_{os.getpid()}")
    report_file = os.path.join(args.keep or tempfile.gettempdir(), f"{name}.json")
    began = time.monotonic()
    done = subprocess.run([args.llmprof, "run", "--quiet", "-o", folder, "--report", report_file, "--", *command],
                          capture_output=True, text=True, timeout=args.timeout)
    result = last_json(done.stdout)
    if done.returncode != 0 or result is None:
        alone = subprocess.run(command, capture_output=True, text=True, timeout=args.timeout)  # is it the program?
        return {"error": f"exit {done.returncode}, alone {alone.returncode}: {done.stderr.strip()[-400:]}"}
    with open(report_file) as file:
        report = json.load(file)
    plain, skipped = [], warm_up_of(report)
    enough = min(len(times(result, skipped, spans_of(report, True))["steps_ms"]), ENOUGH) == ENOUGH
    for _ in range(0 if enough and args.plain_only_if_needed else args.plain):
        alone = subprocess.run(command, capture_output=True, text=True, timeout=args.timeout)
        if last_json(alone.stdout) is not None:
            plain.append(times(last_json(alone.stdout), skipped))
    away, recorded = spans_of(report, True), spans_of(report, False)
    every, apart, inside = times(result, skipped), times(result, skipped, away), times(result, skipped, recorded)
    headline = (report.get("latency") or {}).get("headline") or {}
    overhead = report.get("overhead") or {}
    found = {
        "seconds": round(time.monotonic() - began, 1),
        "headline": {key: headline.get(key) for key in ("ttft_ms", "ttft_source", "ttft_n", "itl_ms", "itl_source", "itl_n",
                                                        "first_ttft_ms", "first_ttft_cold")},
        "undisturbed": report.get("undisturbed", []),
        "warm_up": report.get("warm_up", []),
        "stages": [[row["name"], row["kind"], row["count"]] for row in report.get("stages", [])],
        "cost": {key: overhead.get(key) for key in ("distortion_frac", "ci95", "run_frac", "switching_ms", "switching_steps")},
        "critical_path": [[row["stage"], row["steps"], row["error_median_frac"], row["error_worst_frac"]]
                          for row in report.get("critical_path", [])],
        "cannot_tell": [row["question"] for row in report.get("cannot_tell", [])],
        "lost": sum(row["count"] for row in report.get("diagnostics", []) if row["key"] == "counter-samples-lost"),
        "own": {},
    }
    for key in ("steps_ms", "ttft_ms"):
        found["own"][key] = {"all": median(every[key]), "n": len(every[key]), "unrecorded": median(apart[key]),
                             "unrecorded_n": len(apart[key]), "recorded": median(inside[key]), "recorded_n": len(inside[key]),
                             "alone": median([value for one in plain for value in one[key]])}
    return found


def judge(found):
    """What the headline is held against, and by how much it is off."""
    out = {}
    for figure, key in (("itl_ms", "steps_ms"), ("ttft_ms", "ttft_ms")):
        value, own = found["headline"].get(figure), found["own"][key]
        against = "unrecorded" if own["unrecorded_n"] >= ENOUGH else "alone"
        if value is None or own[against] is None:
            out[figure] = {"verdict": "not given" if value is None else "nothing to hold it against"}
            continue
        off = value / own[against] - 1
        out[figure] = {"verdict": "ok" if abs(off) <= TOLERANCE else "off", "off": round(off, 4), "against": against}
    return out


def main():
    parser = harness.arguments(__doc__, "steady_results.json")
    parser.add_argument("--only", default=",".join(NAMES), help="names of programs")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--plain", type=int, default=1, help="processes alone for each program")
    parser.add_argument("--plain-only-if-needed", action="store_true", help="none alone where five steps were unrecorded")
    args = parser.parse_args()
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    if "costs" not in state:
        costs = subprocess.run([args.llmprof, "peaks", "--recorder-only", "--quick", "--quiet", "--json", "--device", "cuda:0"],
                               capture_output=True, text=True, timeout=args.timeout)
        state.put("costs", json.loads(costs.stdout).get("recorder") if costs.returncode == 0 else costs.stderr[-300:])
    for name in args.only.split(","):
        if name in state or budget.spent(25):
            continue
        try:
            found = run(args, name)
        except subprocess.TimeoutExpired:
            found = {"error": f"took more than {args.timeout} s"}
        found["judged"] = {} if "error" in found else judge(found)
        state.put(name, found)
        print(name, found.get("error") or found["judged"], flush=True)
    rows = {name: found for name, found in state.results().items() if name in NAMES}
    verdicts = [one["verdict"] for found in rows.values() for one in found["judged"].values()]
    summary = {"programs": len(rows), "errors": sum("error" in found for found in rows.values()),
               **{verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}}
    state.save(summary=summary)
    harness.write_summary(args, state)
    print(json.dumps(summary))
    return 0 if len(rows) == len(NAMES) and set(verdicts) <= {"ok", "not given"} and not summary["errors"] else 1


if __name__ == "__main__":
    sys.exit(main())
