#!/usr/bin/env python3
"""Truth: what llmprof reports of a program against torch.profiler, the program's own timers and the model's formula.

    python3 tests/gpu/truth_test.py [--only NAME,NAME] [--repeats 3] [--state truth.json]

For eager decode and decode by CUDA graph, --repeats processes of each kind take turns: llmprof, torch, llmprof, torch ...
  counts      kernels of the stages, by name: equal to those of torch.profiler's traces, in every process; the traces are
              read here without llmprof
  durations   mean per name, for the names that hold most of the GPU time (each at least 1 % of it), twice:
              in the same processes, which run each request under llmprof alone and then once more under torch.profiler
              inside it: within 1 %, or within the spread between processes of torch.profiler;
              and between processes of one kind and of the other
  timers      TTFT and TPOT of the report within 1 % of the program's own, in the same process
  flops       GEMM FLOPs per decode step within 0.1 % of `llmprof model`, at least 99 % of GEMM time with a shape

Each repeat allocates another amount of memory first, because the time of a kernel of a microsecond depends on where its
operands lie, and a recorder changes that. Spread is the largest relative difference between the mean of any one process
and the mean of all processes of its kind.
Both tools get the same hardware timestamps from CUPTI, so what differs is the program's process, not the clock: on an
H200 the timestamps tick every 32 ns (`on_tick_frac` says how many of torch.profiler's durations are multiples of that,
give or take the 1 ns of the conversion), which leaves a mean of n durations uncertain by 32 / sqrt(6 n) ns
(`resolution_frac`).
"""
import collections
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

import harness

DURATION_TOLERANCE, TIMER_TOLERANCE, FLOP_TOLERANCE, SHAPED_MIN = 0.01, 0.01, 0.001, 0.99
NAME_SHARE_MIN = 0.01
TICK_NS, CONVERSION_NS = 32, 1
CASES = {
    "eager": dict(program="llm_eager.py", model="llama-3.1-8b", context=512,
                  words=["--model", "llama-3.1-8b", "--prompt", "496", "--new", "32", "--iters", "2"]),
    "graph": dict(program="llm_cuda_graph.py", model="llama-3.1-8b", context=513,
                  words=["--model", "llama-3.1-8b", "--ctx", "512", "--steps", "32", "--rounds", "2"]),
    "eager-tinyllama": dict(program="llm_eager.py", model="tinyllama-1.1b", context=512,
                            words=["--model", "tinyllama-1.1b", "--prompt", "496", "--new", "32", "--iters", "2"]),
}
SECONDS_PER_RUN = 45


def compact(name):
    """Demanglers differ in spaces, and in nothing else that names a kernel."""
    return "".join(name.split())


def kernels_of_report(report):
    """{name: (calls, total in us)} over all stages."""
    sums = collections.defaultdict(lambda: [0, 0.0])
    for row in harness.in_stages(report["kernels_topk"]):
        if row["name"].startswith(("Memcpy", "Memset")):
            continue
        sums[compact(row["name"])][0] += row["calls"]
        sums[compact(row["name"])][1] += 1e3 * row["total_ms"]
    return {name: tuple(value) for name, value in sums.items()}


def kernels_of_trace(path):
    """({name: (calls, total in us)}, share of the durations that are whole ticks of the GPU's timestamps)"""
    sums, on_tick = collections.defaultdict(lambda: [0, 0.0]), 0
    with open(path) as file:
        for event in json.load(file)["traceEvents"]:
            if event.get("cat") == "kernel":
                sums[compact(event["name"])][0] += 1
                sums[compact(event["name"])][1] += event["dur"]
                beyond_ns = round(1e3 * event["dur"]) % TICK_NS
                on_tick += min(beyond_ns, TICK_NS - beyond_ns) <= CONVERSION_NS
    kernels = {name: tuple(value) for name, value in sums.items()}
    calls = sum(calls for calls, _ in kernels.values())
    return kernels, on_tick / calls if calls else None


def add_up(traces):
    sums = collections.defaultdict(lambda: (0, 0.0))
    for kernels in traces:
        for name, (calls, us) in kernels.items():
            sums[name] = (sums[name][0] + calls, sums[name][1] + us)
    return dict(sums)


def pooled(runs, name):
    """(calls, mean in us) over all processes, and the largest relative distance of one process's mean from it; the
    distance of a single process is unknown."""
    seen = [run[name] for run in runs if name in run]
    calls = sum(count for count, _ in seen)
    mean = sum(us for _, us in seen) / calls
    spread = max(abs(us / count / mean - 1) for count, us in seen) if len(seen) > 1 and mean > 0 else None
    return calls, mean, spread


def compare_name(ours, theirs, spread_of, name, total_us):
    calls, mean_us, spread = pooled(ours, name)
    torch_calls, torch_mean_us, _ = pooled(theirs, name)
    torch_spread = pooled(spread_of, name)[2]
    difference = mean_us / torch_mean_us - 1
    verdict = ("within-tolerance" if abs(difference) <= DURATION_TOLERANCE else
               "within-torch-spread" if torch_spread is not None and abs(difference) <= torch_spread else "outside")
    ticks_us = 1e-3 * TICK_NS / math.sqrt(6)
    resolution = ticks_us * math.sqrt(1 / calls + 1 / torch_calls) / torch_mean_us
    return {"name": name[:120], "calls": calls, "share": torch_calls * torch_mean_us / total_us, "mean_us": mean_us,
            "torch_mean_us": torch_mean_us, "difference": difference, "torch_spread": torch_spread, "spread": spread,
            "resolution_frac": resolution, "verdict": verdict}


def count_verdicts(rows):
    counts = collections.Counter(row["verdict"] for row in rows)
    shares = {verdict: sum(row["share"] for row in rows if row["verdict"] == verdict) for verdict in counts}
    return {"names": len(rows), "within_tolerance": counts["within-tolerance"],
            "within_torch_spread_only": counts["within-torch-spread"], "outside": counts["outside"],
            "time_share_within_tolerance": shares.get("within-tolerance", 0.0),
            "time_share_within_torch_spread_only": shares.get("within-torch-spread", 0.0)}


def other_counts(ours, theirs):
    """{name: calls per process of llmprof, then of torch.profiler} where not all of them are the same."""
    runs = [*ours, *theirs]
    counts = {name: [run.get(name, (0,))[0] for run in runs] for name in set().union(*runs)}
    return {name[:120]: [each[:len(ours)], each[len(ours):]] for name, each in counts.items() if len(set(each)) > 1}


def compare_kernels(ours, theirs, spread_of=None):
    """Each a list of {name: (calls, us)}, one per process; `spread_of`: processes of torch.profiler alone."""
    spread_of = spread_of or theirs
    wrong = other_counts(ours, theirs)
    total_us = sum(us for run in theirs for _, us in run.values())
    common = set().union(*ours) & set().union(*theirs) & set().union(*spread_of)
    rows = sorted((compare_name(ours, theirs, spread_of, name, total_us) for name in common), key=lambda row: -row["share"])
    heavy = [row for row in rows if row["share"] >= NAME_SHARE_MIN]
    worst = max((abs(row["difference"]) for row in heavy), default=None)
    means = [sum(us for run in runs for _, us in run.values()) / len(runs) for runs in (ours, theirs)]
    return {"processes": [len(ours), len(theirs)],
            "kernels": [sum(calls for calls, _ in run.values()) for run in ours],
            "torch_kernels": [sum(calls for calls, _ in run.values()) for run in theirs],
            "names": len(common), "names_with_other_count": wrong, "counts_equal": not wrong and bool(common),
            "tolerance": DURATION_TOLERANCE, "heavy_share": sum(row["share"] for row in heavy),
            "worst_difference_of_heavy_names": worst,
            "durations_agree": bool(heavy) and all(row["verdict"] != "outside" for row in heavy),
            "heavy_names": count_verdicts(heavy), "all_names": count_verdicts(rows),
            "total_difference": means[0] / means[1] - 1 if means[1] else None, "heavy": heavy,
            "light_outside": [row for row in rows if row["share"] < NAME_SHARE_MIN and row["verdict"] == "outside"]}


def compare_timers(runs):
    """The report's medians against those the program printed, per process."""
    out = {}
    for key, series in (("ttft_ms", "ttft_ms"), ("tpot_ms", "itl_ms")):
        pairs = [(run["latency"][series]["p50"], run["result"][key]) for run in runs
                 if key in run["result"] and (run["latency"] or {}).get(series)]
        expected = sum(key in run["result"] for run in runs)
        worst = max((abs(a / b - 1) for a, b in pairs), default=None)
        if expected:
            out[key] = {"report_and_program": pairs, "worst_difference": worst,
                        "agrees": len(pairs) == expected and worst is not None and worst <= TIMER_TOLERANCE}
    return out


def compare_flops(args, case, report):
    words = [args.llmprof, "model", case["model"], "--batch", "1", "--context", str(case["context"]), "--json", "-q"]
    model = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    decode = next(stage for stage in model["stages"] if stage["kind"] == "decode")
    formula = decode["flops"]["linear"] + decode["flops"]["lm_head"]
    stage = harness.stage_of(report, "decode_step")
    if stage is None:
        return {"error": "no stage decode_step in the report", "agrees": False}
    gemms = [row for row in report["kernels_topk"] if row["stage"] == "decode_step" and row["category"] == "gemm"]
    total = sum(row["total_ms"] for row in gemms)
    shaped = sum(row["total_ms"] for row in gemms if row["shape"])
    # Attention that is written as batched products is no part of the formula's linear layers.
    linear = sum(row["flops"] or 0 for row in gemms if row["shape"] and not row["shape"].startswith("B"))
    per_step = linear / stage["count"]
    return {"gemm_flops_per_step": per_step, "formula": formula, "difference": per_step / formula - 1,
            # Helper kernels of a shaped call (split-K reductions) count as covered by it.
            "gemm_time_with_shape_frac": stage["gemm_coverage_frac"],
            "gemm_kernels_that_carry_it_frac": shaped / total if total else None,
            "unshaped": sorted({row["name"][:120] for row in gemms if not row["shape"]}),
            "agrees": abs(per_step / formula - 1) <= FLOP_TOLERANCE and
            (stage["gemm_coverage_frac"] or 0) >= SHAPED_MIN}


def run_profiled(args, case, name, repeat):
    with tempfile.TemporaryDirectory(prefix="llmprof-gpu-test-") as folder:
        again = pathlib.Path(folder) / "again"
        again.mkdir()
        command = [args.python, str(harness.WORKLOADS / case["program"]), *case["words"], "--shift", str(repeat),
                   "--trace-again", str(again)]
        outcome = harness.profile(args, ["--unrecorded-windows", "off", "--no-adapt", "--no-detect", "--top", "0"], command, name)
        if outcome.failure() or outcome.report is None or outcome.result is None:
            return {"error": outcome.failure() or "no report or no RESULT line: " + outcome.stderr.strip()[-300:]}
        torch_kernels = add_up([kernels_of_trace(path)[0] for path in sorted(again.iterdir())])
    return {"kernels": kernels_of_report(outcome.report), "torch_in_same_process": torch_kernels,
            "latency": outcome.report["latency"], "result": outcome.result,
            "flops": compare_flops(args, case, outcome.report),
            "diagnostics": [d["key"] for d in outcome.report["diagnostics"]]}


def run_torch(args, case, repeat):
    with tempfile.TemporaryDirectory(prefix="llmprof-gpu-test-") as folder:
        trace = str(pathlib.Path(folder) / "trace.json")
        command = [args.python, str(harness.WORKLOADS / case["program"]), *case["words"], "--shift", str(repeat), "--trace", trace]
        outcome = harness.execute(command, args.timeout)
        if outcome.failure():
            return {"error": outcome.failure()}
        kernels, on_tick = kernels_of_trace(trace)
        return {"kernels": kernels, "on_tick_frac": on_tick, "result": outcome.result}


def judge(state, name, repeats):
    ours = [state.get(f"{name}/llmprof/{i}") for i in range(repeats)]
    theirs = [state.get(f"{name}/torch/{i}") for i in range(repeats)]
    done_ours = [run for run in ours if run and "error" not in run]
    done_theirs = [run for run in theirs if run and "error" not in run]
    errors = [run["error"] for run in [*ours, *theirs] if run and "error" in run]
    missing = sum(run is None for run in [*ours, *theirs])
    if not done_ours or not done_theirs:
        return {"passed": False, "errors": errors or ["not run"], "runs_missing": missing}
    out = {"errors": errors, "runs_missing": missing,
           "in_the_same_processes": compare_kernels([run["kernels"] for run in done_ours],
                                                    [run["torch_in_same_process"] for run in done_ours],
                                                    [run["kernels"] for run in done_theirs]),
           "against_torch_profiler": compare_kernels([run["kernels"] for run in done_ours],
                                                     [run["kernels"] for run in done_theirs]),
           "on_tick_frac": [run.get("on_tick_frac") for run in done_theirs],
           "timers": compare_timers(done_ours), "flops": [run["flops"] for run in done_ours],
           "diagnostics": sorted({key for run in done_ours for key in run["diagnostics"]})}
    checks = [out["against_torch_profiler"]["counts_equal"], out["in_the_same_processes"]["counts_equal"],
              out["in_the_same_processes"]["durations_agree"],
              *[flops["agrees"] for flops in out["flops"]], *[timer["agrees"] for timer in out["timers"].values()]]
    out["passed"] = not errors and not missing and all(checks)
    return out


def worst(values):
    known = [value for value in values if value is not None]
    return max(known, key=abs) if known else None


def show_names(name, kernels, where):
    print(f"\n{name}: mean durations of the names with at least {NAME_SHARE_MIN:.0%} of the time, "
          f"{kernels['processes'][0]} processes of llmprof and {kernels['processes'][1]} of torch.profiler, {where}")
    harness.print_table(
        ["kernel", "calls", "share", "us", "torch us", "difference", "torch's spread", "own spread", ""],
        [[row["name"][:60], row["calls"], row["share"], row["mean_us"], row["torch_mean_us"], row["difference"],
          row["torch_spread"], row["spread"], row["verdict"]] for row in kernels["heavy"]])
    for which in ("heavy", "all"):
        found = kernels[which + "_names"]
        print(f"{which} names: {found['within_tolerance']} of {found['names']} within {DURATION_TOLERANCE:.0%}, "
              f"{found['within_torch_spread_only']} more only within torch.profiler's own spread, {found['outside']} outside; "
              f"{found['time_share_within_tolerance']:.1%} of the kernel time lies within {DURATION_TOLERANCE:.0%}")


def show(summary):
    table = []
    for name, out in summary.items():
        if "against_torch_profiler" not in out:
            table.append([name, "; ".join(out["errors"])])
            continue
        kernels, flops = out["in_the_same_processes"], out["flops"]
        show_names(name, out["against_torch_profiler"], "each alone")
        show_names(name, kernels, "in the same processes")
        timers = ", ".join(f"{key} {timer['worst_difference']:.2%}" for key, timer in out["timers"].items()
                           if timer["worst_difference"] is not None)
        table.append([name, f"{kernels['kernels'][0]} / {out['against_torch_profiler']['torch_kernels'][0]}",
                      len(kernels["names_with_other_count"]) + len(out["against_torch_profiler"]["names_with_other_count"]),
                      kernels["worst_difference_of_heavy_names"], kernels["heavy_names"]["outside"], timers,
                      worst([one.get("difference") for one in flops]),
                      min((one.get("gemm_time_with_shape_frac") or 0.0 for one in flops), default=None), out["runs_missing"],
                      "ok" if out["passed"] else "FAIL"])
    header = ["case", "kernels / torch", "other counts", "worst duration", "outside", "timers", "flops", "shaped", "missing",
              ""]
    if table:
        print()
        harness.print_table(header, [row + [""] * (len(header) - len(row)) for row in table])


def main():
    parser = harness.arguments(__doc__, "truth_results.json")
    parser.add_argument("--only", default="", help="cases, comma between them: " + ", ".join(CASES))
    parser.add_argument("--repeats", type=int, default=3, help="processes of each kind; the spread needs two")
    args = parser.parse_args()
    only = [word for word in args.only.split(",") if word]
    if args.repeats < 1 or not set(only) <= set(CASES):
        parser.error(f"expected at least one repeat and cases of {', '.join(CASES)}, found {args.repeats} and {args.only!r}")
    names = [name for name in CASES if not only or name in only]
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    for i in range(args.repeats):
        for name in names:
            works = {"llmprof": lambda: run_profiled(args, CASES[name], name, i),
                     "torch": lambda: run_torch(args, CASES[name], i)}
            for tool, work in works.items():
                key = f"{name}/{tool}/{i}"
                if (key not in state or "error" in state.get(key)) and not budget.spent(SECONDS_PER_RUN):
                    try:
                        state.put(key, work())
                    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
                        state.put(key, {"error": f"{type(error).__name__}: {error}"})
                    print(key, state.get(key).get("error", "done"), flush=True)
    summary = {name: judge(state, name, args.repeats) for name in names}
    show(summary)
    state.save(summary=summary)
    harness.write_summary(args, state)
    return 0 if summary and all(out["passed"] for out in summary.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
