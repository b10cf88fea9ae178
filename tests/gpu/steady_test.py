#!/usr/bin/env python3
"""Headline figures against the timers of programs that no rule was made on (tests/gpu/steady_programs,
tests/gpu/held_out_programs and the seventeen sets after it).

    python3 tests/gpu/steady_test.py [--state steady.json] [--only NAME,NAME] [--steps 5,40] [--plain 1] [--gpus 2]

Each program runs under `llmprof run` in the default mode, once, and so many times alone. From its own timers, on the same
clock as the recording:

  tpot        of its decode and mixed steps that lie in time in which nothing was recorded and CUPTI was out of the process;
              of all of them in the processes that ran alone
  ttft        of its requests, likewise, from the beginning of the first step of theirs on: how long a request waited in a
              queue of the program no recorder sees

without those that the program calls warm-up, and without those in which the report saw warm-up (its table `steps`);
both also of those alone that ran at full pace: no probe of the program's own (`paces`) in them or next to them took more
than 1.15 times the quickest of all its processes. Hosts whose cores other virtual machines use as well are half as slow
again for milliseconds to seconds, differently in each process, and processes can be compared only so;

and the report's headline beside them, with its source: a median of unrecorded steps, or of replayed ones. A headline is
judged where the report gives one: within 3 % of the program's own unrecorded steps where there are five of them; else of
its processes alone, where there are five values ("few": fewer). Five processes or more count once each, and a headline
further off but within the 95 % interval of their median is "undecided". `full_pace` judges what the report gives at the full
pace of its CPU against the steps of all processes alone at full pace, and decides where nothing ran unrecorded; where there
is no such figure and the CPU was slow in a fifth of the recorder's probes, processes cannot be compared: "slowed". Beside it stands whether the report's own interval
holds what it is judged against. Costs of the recorder are measured first (`llmprof peaks --recorder-only`), as a user would
once. With several GPUs as many programs run side by side, each with a GPU and a share of the CPUs to itself.

`whole` says, for each kind of step of which the program ran five or more after its warm-up, how many of them the report knows as
steady and recorded with all their kernels, and where there is none, whether the report says so: in words on what it cannot
tell, or in its table of warm-up.

--again runs nothing: this llmprof analyses the recordings in --keep once more, and their headlines are judged against the
timers in --state. Costs of the recorder are those in LLMPROF_HOME: call it on the same machine, or with that folder of it.
"""
import concurrent.futures
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import forked
import harness
import pace

FOLDERS = ("steady_programs", "held_out_programs", "held_out_programs_2", "held_out_programs_3", "held_out_programs_4",
           "held_out_programs_5", "held_out_programs_6", "held_out_programs_7", "held_out_programs_8",
           "held_out_programs_9", "held_out_programs_10", "held_out_programs_11", "held_out_programs_12",
           "held_out_programs_13", "held_out_programs_14", "held_out_programs_15", "held_out_programs_16", "held_out_programs_17",
           "held_out_programs_18")
PROGRAMS = {path.stem: path for folder in FOLDERS for path in sorted((harness.ROOT / "tests/gpu" / folder).glob("*.py"))
            if path.stem not in ("contract", "parts")}
# The others name their stages.
WITHOUT_RANGES = {"triton_only", "graph_queue", "eager_decode", "moe_decode",
                  "hf_generate", "hf_sampling_batch", "triton_recurrent", "int8_dequant", "triton_moe_fp8",
                  "triton_tuned", "growing_graph", "editor_completion", "triton_pieces", "triton_ring_cold", "wide_batch",
                  "prefix_tree", "triton_adapters", "parked_chats",
                  "int8_cache", "page_reader_cold", "triton_selective_scan",
                  "host_embeddings", "token_shift_cold", "triton_shared_beginning",
                  "batched_drafts", "triton_latent", "host_sampler",
                  "thermostat", "sensor_notes_cold", "triton_memory",
                  "unsure_lookup", "best_draft_cold", "two_level_words"}
TOLERANCE = 0.03
ENOUGH = 5
SLOWED = 0.2  # of the recorder's probes
SLOWEST = 2.2  # times as long as at full pace steps took that the CPU was slow in


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


def warm_up_of(report):
    return [(row["start_unix_ns"], row["start_unix_ns"] + row["duration_ns"]) for row in report.get("steps", [])
            if row["warm_up"]]


def touches(spans, start, end):
    """Whether a span covers half of the time, or lies by half in it."""
    overlap = lambda a, b: min(b, end) - max(a, start)
    return any(2 * overlap(a, b) > min(b - a, end - start) for a, b in spans)


def prompt_start(request, steps):
    """When the steps that lead to its first token began: the prompt, after its images."""
    start = None
    for step in reversed([s for s in steps if s["kind"] in ("prefill", "vision", "mixed")]):
        if step["start_ns"] < request["start_ns"] or step["end_ns"] > (start or request["first_token_ns"]):
            continue
        if start is None or (step["kind"] == "vision" and start - step["end_ns"] < 1_000_000):
            start = step["start_ns"]
        else:
            break
    return start or request["start_ns"]


def times(result, warm_up, inside=None, best_ns=None):
    """ms of the tokens' steps and of requests, those within the spans, without warm-up; with `best_ns` at full pace."""
    def chosen(start, end):
        return ((inside is None or within(inside, start, end)) and not touches(warm_up, start, end)
                and (best_ns is None or pace.full(pace.slowest(result, start, end), best_ns)))
    steps = sorted(result["steps"], key=lambda s: s["start_ns"])
    # A request that yields no token has no first one.
    prompts = {(prompt_start(r, steps), r["first_token_ns"]) for r in result["requests"]
               if not r["warm_up"] and r["output_tokens"] > 0}
    return {"steps_ms": [(s["end_ns"] - s["start_ns"]) / 1e6 for s in steps if s["kind"] in ("decode", "mixed")
                         and not s["warm_up"] and chosen(s["start_ns"], s["end_ns"])],
            "ttft_ms": [(end - start) / 1e6 for start, end in sorted(prompts) if chosen(start, end)]}


def like(result, recorded, warm_up):
    """Those spans of a run, in another process of the program: of the steps with the same numbers."""
    steps = lambda one: sorted(one["steps"], key=lambda s: s["start_ns"])
    skipped = [i for i, s in enumerate(steps(recorded)) if touches(warm_up, s["start_ns"], s["end_ns"])]
    return [(s["start_ns"], s["end_ns"]) for i, s in enumerate(steps(result)) if i in skipped]


def whole(result, report):
    """By kind of step: how many the program ran, how many are steady and recorded whole, what is said where none is."""
    steady = [(row["start_unix_ns"], row["start_unix_ns"] + row["duration_ns"]) for row in report.get("steps", [])
              if row["recording"] == "recorded" and not row["warm_up"]]
    warm_up, out = warm_up_of(report), {}
    for kind in sorted({step["kind"] for step in result["steps"]} - {"other"}):
        ran = [s for s in result["steps"] if s["kind"] == kind and not s["warm_up"]]
        if len(ran) < ENOUGH:
            continue
        out[kind] = {"ran": len(ran), "warm_up": sum(touches(warm_up, s["start_ns"], s["end_ns"]) for s in ran),
                     "whole": sum(touches(steady, s["start_ns"], s["end_ns"]) for s in ran)}
        if out[kind]["whole"] == 0:
            out[kind]["said"] = [f"{row['question']} {row['why']}" for row in report.get("cannot_tell", [])
                                 if any(word in row["question"] for word in ("TTFT", "TPOT", "ITL", "stage", "steady"))]
            out[kind]["said"] += [f"{row['stage']}: {row['cause']}" for row in report.get("warm_up", []) if row["steady_steps"] == 0]
    return out


def median_interval(values):
    """The median's 95 % interval by ranks: for ten values the second to the ninth (97.9 %)."""
    values, n = sorted(values), len(values)
    below = lambda k: sum(math.comb(n, i) for i in range(k)) / 2 ** n  # that fewer than k values lie below the median
    k = max((k for k in range(1, n // 2 + 1) if 2 * below(k) <= 0.05), default=0)
    return values[max(0, k - 1)], values[min(n - 1, n - k if k else n - 1)]


def median(values):
    return statistics.median(values) if values else None


def run(args, place, name, steps):
    """One program; `place`: its GPU and its CPUs, None for all of them."""
    gpu, cpus = place
    env = os.environ if gpu is None else {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)}
    execute = lambda words: subprocess.run(words, capture_output=True, text=True, timeout=args.timeout, env=env,
                                           preexec_fn=lambda: cpus and os.sched_setaffinity(0, cpus))
    command = [args.python, str(PROGRAMS[name]), "--steps", str(steps)]
    if name not in WITHOUT_RANGES | args.without_ranges:
        command.append("--ranges")
    kept = os.path.join(args.keep or tempfile.mkdtemp(), f"{name}_{steps}")
    report_file = f"{kept}.json"
    began = time.monotonic()
    # Processes alone before and after, so that what drifts is in both.
    forks = forked.Forks(args.python, env, cpus) if args.forked and args.plain > 0 else None
    start = lambda: forks.run(command[1:], args.timeout) if forks else execute(command).stdout
    alone = lambda count: [one for _ in range(count) if (one := last_json(start()))]
    before = alone(args.plain // 2)
    done = execute([args.llmprof, "run", "--quiet", "--no-html", "-o", kept, "--report", report_file, "--", *command])
    result = last_json(done.stdout)
    if done.returncode != 0 or result is None:
        again = execute(command)  # is it the program?
        return {"error": f"exit {done.returncode}, alone {again.returncode}: {done.stderr.strip()[-400:]}"}
    with open(report_file) as file:
        report = json.load(file)
    if args.keep:
        with open(f"{kept}.own.json", "w") as file:
            json.dump(result, file)
    else:
        shutil.rmtree(kept, ignore_errors=True)
    warm_up = warm_up_of(report)
    enough = min(len(values) for values in times(result, warm_up, spans_of(report, True)).values()) >= ENOUGH
    skip = enough and args.plain_only_if_needed
    after = [] if skip else alone(args.plain - args.plain // 2)
    if forks:
        forks.close()
    plain = [times(one, like(one, result, warm_up)) for one in before + after]
    best_ns = pace.best([result, *before, *after])
    at_pace = [times(one, like(one, result, warm_up), best_ns=best_ns or 1) for one in before + after]
    away, recorded = spans_of(report, True), spans_of(report, False)
    every, apart, inside = times(result, warm_up), times(result, warm_up, away), times(result, warm_up, recorded)
    undisturbed = times(result, warm_up, away, best_ns or 1)
    found = {"seconds": round(time.monotonic() - began, 1), **said_by(report), "whole": whole(result, report), "own": {}}
    for key in ("steps_ms", "ttft_ms"):
        found["own"][key] = {"all": median(every[key]), "n": len(every[key]), "unrecorded": median(apart[key]),
                             "unrecorded_n": len(apart[key]), "recorded": median(inside[key]), "recorded_n": len(inside[key]),
                             "alone": median([value for one in plain for value in one[key]]),
                             "alone_n": sum(len(one[key]) for one in plain),
                             "alone_processes": sorted(median(one[key]) for one in plain if one[key]),
                             "unrecorded_full_pace": median(undisturbed[key]), "unrecorded_full_pace_n": len(undisturbed[key]),
                             "full_pace": median([value for one in at_pace for value in one[key]]),
                             "full_pace_processes": sorted(median(one[key]) for one in at_pace if one[key])}
    return found


def said_by(report):
    headline = (report.get("latency") or {}).get("headline") or {}
    overhead = report.get("overhead") or {}
    return {
        "headline": {key: headline.get(key) for key in ("ttft_ms", "ttft_source", "ttft_n", "ttft_ci95_low_ms", "ttft_ci95_high_ms",
                                                        "itl_ms", "itl_source", "itl_n", "itl_ci95_low_ms", "itl_ci95_high_ms",
                                                        "first_ttft_ms", "first_ttft_cold", "ttft_full_pace_ms", "ttft_full_pace_n",
                                                        "itl_full_pace_ms", "itl_full_pace_n")},
        "host_pace": report.get("host_pace", []),
        "undisturbed": report.get("undisturbed", []),
        "warm_up": report.get("warm_up", []),
        "stages": [[row["name"], row["kind"], row["count"]] for row in report.get("stages", [])],
        "cost": {key: overhead.get(key) for key in ("distortion_frac", "ci95", "run_frac", "switching_ms", "switching_steps")},
        "critical_path": [[row["stage"], row["steps"], row["error_median_frac"], row["error_worst_frac"], row["judged"]]
                          for row in report.get("critical_path", [])],
        "cannot_tell": [row["question"] for row in report.get("cannot_tell", [])],
        "lost": sum(row["count"] for row in report.get("diagnostics", []) if row["key"] == "counter-samples-lost"),
        "counter_gaps": [row["text"] for row in report.get("diagnostics", []) if row["key"] == "counter-gap"],
    }


def analyse_again(args, state):
    """The recordings that are kept, by the present llmprof; the programs' own timers stay."""
    for key, found in state.results().items():
        kept = pathlib.Path(args.keep) / key.replace(" ", "_")
        if key == "costs" or "error" in found or not kept.is_dir():
            continue
        done = subprocess.run([args.llmprof, "analyze", str(kept), "--format", "json"], capture_output=True, text=True,
                              timeout=args.timeout)
        if done.returncode != 0:
            print(f"{key}: {done.stderr.strip()[-300:]}")
            continue
        report = json.loads(done.stdout)
        found.update(said_by(report))
        own = kept.with_name(f"{kept.name}.own.json")
        if own.is_file():
            found["whole"] = whole(json.loads(own.read_text()), report)
        found["judged"] = judge(found)
        state.put(key, found)
        print(key, found["judged"], flush=True)


def replay_of(rows):
    """How well replay gives back steps that it has not learned from: of the stages with five of them."""
    stages = [row for found in rows.values() for row in found.get("critical_path", []) if len(row) > 4 and (row[4] or 0) >= ENOUGH]
    return {"stages": len(stages), "median_within_0.5_percent": sum(row[2] <= 0.005 for row in stages),
            "worst_within_2_percent": sum(row[3] <= 0.02 for row in stages)}


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
        few = against == "alone" and min(own["alone_n"], found["headline"][figure.replace("_ms", "_n")] or 0) < ENOUGH
        verdict = "few" if few else "ok" if abs(off) <= TOLERANCE else "off"
        out[figure] = {"verdict": verdict, "off": round(off, 4), "against": against}
        ends = [found["headline"].get(figure.replace("_ms", f"_ci95_{end}_ms")) for end in ("low", "high")]
        if None not in ends:  # whether the interval that the report gives holds the truth, give or take 3 %
            out[figure]["interval"] = [round(end / value - 1, 4) for end in ends]
            out[figure]["holds"] = ends[0] * (1 - TOLERANCE) <= own[against] <= ends[1] * (1 + TOLERANCE)
        at_pace = found["headline"].get(figure.replace("_ms", "_full_pace_ms"))
        if at_pace is not None and len(own.get("full_pace_processes", [])) >= ENOUGH:
            off_pace = at_pace / median(own["full_pace_processes"]) - 1
            out[figure]["full_pace"] = {"verdict": "ok" if abs(off_pace) <= TOLERANCE else "off", "off": round(off_pace, 4),
                                        "n": [found["headline"][figure.replace("_ms", "_full_pace_n")],
                                              len(own["full_pace_processes"])]}
        if len(own["alone_processes"]) >= ENOUGH:  # each process counts once
            off, low, high = (round(one / median(own["alone_processes"]) - 1, 4)
                              for one in (value, *median_interval(own["alone_processes"])))
            out[figure] |= {"off_processes": off, "processes_ci95": [low, high]}
            if against == "alone" and not few:
                out[figure]["verdict"] = "ok" if abs(off) <= TOLERANCE else "undecided" if low <= off <= high else "off"
                slowed = any(row["slow_frac"] > SLOWED for row in found.get("host_pace", []))
                if "full_pace" in out[figure]:
                    out[figure]["verdict"] = out[figure]["full_pace"]["verdict"]
                elif out[figure]["verdict"] != "ok" and slowed and abs(math.log(1 + off)) < math.log(SLOWEST):
                    out[figure]["verdict"] = "slowed"
    return out


def main():
    parser = harness.arguments(__doc__, "steady_results.json")
    parser.add_argument("--only", default=",".join(PROGRAMS), help="names of programs, or of a folder of them")
    parser.add_argument("--steps", default="40", help="steps of each program, one or more lengths")
    parser.add_argument("--gpus", type=int, default=1, help="programs side by side, each on a GPU of its own")
    parser.add_argument("--plain", type=int, default=1, help="processes alone for each program")
    parser.add_argument("--plain-only-if-needed", action="store_true", help="none alone where five steps were unrecorded")
    parser.add_argument("--forked", action="store_true", help="the processes alone are forked from one that has imported PyTorch")
    parser.add_argument("--without-ranges", type=lambda text: set(text.split(",")), default=set(), metavar="NAMES",
                        help="programs that are not to name their stages, beside those that never do")
    parser.add_argument("--again", action="store_true", help="analyse the recordings in --keep once more, and run nothing")
    args = parser.parse_args()
    if args.again and not args.keep:
        parser.error("--again: --keep FOLDER says where the recordings are")
    if args.keep:
        os.makedirs(args.keep, exist_ok=True)
    budget, state, lock = harness.Budget(args.budget), harness.State(args.state, args.fresh), threading.Lock()
    if args.again:
        analyse_again(args, state)
        return finish(args, state, None)
    state.save(machine=harness.machine(args.python))
    if "costs" not in state:
        costs = subprocess.run([args.llmprof, "peaks", "--recorder-only", "--quick", "--quiet", "--json", "--device", "cuda:0"],
                               capture_output=True, text=True, timeout=args.timeout)
        found = json.loads(costs.stdout) if costs.returncode == 0 else {}
        state.put("costs", found.get("recorder") or found.get("remarks") or costs.stderr[-300:])
    named = [name for word in args.only.split(",")
             for name in ([n for n, path in PROGRAMS.items() if path.parent.name == word] if word in FOLDERS else [word])]
    if unknown := set(named) - set(PROGRAMS):
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS)}")
    wanted = [(name, int(steps)) for steps in args.steps.split(",") for name in named]
    places = harness.places(args.gpus)

    def work(name, steps):
        key = f"{name} {steps}"
        if key in state or budget.spent(25):
            return
        place = places.get()
        try:
            found = run(args, place, name, steps)
        except subprocess.TimeoutExpired:
            found = {"error": f"took more than {args.timeout} s"}
        places.put(place)
        found["judged"] = {} if "error" in found else judge(found)
        with lock:
            state.put(key, found)
            print(key, found.get("error") or found["judged"], flush=True)

    with concurrent.futures.ThreadPoolExecutor(args.gpus) as workers:
        list(workers.map(lambda one: work(*one), wanted))
    return finish(args, state, len(wanted))


def finish(args, state, expected):
    """`expected`: how many runs there must be; None: those that there are."""
    rows = {key: found for key, found in state.results().items() if key != "costs"}
    verdicts = [one["verdict"] for found in rows.values() for one in found["judged"].values()]
    kinds = [kind for found in rows.values() for kind in found.get("whole", {}).values()]
    summary = {"runs": len(rows), "kinds_of_steps": len(kinds), "recorded_whole": sum(kind["whole"] > 0 for kind in kinds),
               "said_why_not": sum(bool(kind.get("said")) for kind in kinds), "errors": sum("error" in found for found in rows.values()),
               **{verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}, "replay": replay_of(rows)}
    state.save(summary=summary)
    harness.write_summary(args, state)
    print(json.dumps(summary))
    complete = expected is None or len(rows) == expected
    return 0 if complete and set(verdicts) <= {"ok", "few", "not given", "slowed"} and not summary["errors"] else 1


if __name__ == "__main__":
    sys.exit(main())
