#!/usr/bin/env python3
"""Truth: what llmprof reports of a program against torch.profiler, the program's own timers and the model's formula.

    python3 tests/gpu/truth_test.py [--only NAME] [--repeats 2] [--state truth.json]

For eager decode and decode by CUDA graph, processes of both kinds take turns:
  counts      kernels of the stages, by name: equal to those of torch.profiler's trace, which is read here without llmprof
  durations   mean per name within 1 %, for the names that hold most of the GPU time (each at least 1 % of it)
  timers      TTFT and TPOT of the report within 1 % of the program's own, in the same process
  flops       GEMM FLOPs per decode step within 0.1 % of `llmprof model`, at least 99 % of GEMM time with a shape
"""
import collections
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import harness

DURATION_TOLERANCE, TIMER_TOLERANCE, FLOP_TOLERANCE, SHAPED_MIN = 0.01, 0.01, 0.001, 0.99
NAME_SHARE_MIN = 0.01
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
    sums = collections.defaultdict(lambda: [0, 0.0])
    with open(path) as file:
        for event in json.load(file)["traceEvents"]:
            if event.get("cat") == "kernel":
                sums[compact(event["name"])][0] += 1
                sums[compact(event["name"])][1] += event["dur"]
    return {name: tuple(value) for name, value in sums.items()}


def compare_kernels(ours, theirs):
    """Each a list of {name: (calls, us)}, one per process."""
    first, second = ours[0], theirs[0]
    wrong = {name[:120]: [first.get(name, (0,))[0], second.get(name, (0,))[0]] for name in set(first) | set(second)
             if first.get(name, (0,))[0] != second.get(name, (0,))[0]}
    total_us = sum(us for _, us in second.values())

    def mean_us(runs, name):
        return statistics.fmean(run[name][1] / run[name][0] for run in runs if name in run)

    rows = []
    for name in set(first) & set(second):
        share = second[name][1] / total_us
        a, b = mean_us(ours, name), mean_us(theirs, name)
        rows.append({"name": name[:120], "calls": first[name][0], "share": share, "mean_us": a, "torch_mean_us": b,
                     "difference": a / b - 1})
    rows.sort(key=lambda row: -row["share"])
    heavy = [row for row in rows if row["share"] >= NAME_SHARE_MIN]
    worst = max((abs(row["difference"]) for row in heavy), default=None)
    return {"kernels": sum(calls for calls, _ in first.values()), "torch_kernels": sum(calls for calls, _ in second.values()),
            "names": len(first), "names_with_other_count": wrong, "counts_equal": not wrong and bool(first),
            "heavy_share": sum(row["share"] for row in heavy), "worst_difference_of_heavy_names": worst,
            "durations_agree": worst is not None and worst <= DURATION_TOLERANCE,
            "total_difference": sum(us for _, us in first.values()) / total_us - 1 if total_us else None, "heavy": heavy}


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


def run_profiled(args, case, name):
    command = [args.python, str(harness.WORKLOADS / case["program"]), *case["words"]]
    outcome = harness.profile(args, ["--gaps", "off", "--no-adapt", "--no-detect", "--top", "0"], command, name)
    if outcome.failure() or outcome.report is None or outcome.result is None:
        return {"error": outcome.failure() or "no report or no RESULT line: " + outcome.stderr.strip()[-300:]}
    return {"kernels": kernels_of_report(outcome.report), "latency": outcome.report["latency"], "result": outcome.result,
            "flops": compare_flops(args, case, outcome.report),
            "diagnostics": [d["key"] for d in outcome.report["diagnostics"]]}


def run_torch(args, case):
    with tempfile.TemporaryDirectory(prefix="llmprof-gpu-test-") as folder:
        trace = str(pathlib.Path(folder) / "trace.json")
        command = [args.python, str(harness.WORKLOADS / case["program"]), *case["words"], "--trace", trace]
        outcome = harness.execute(command, args.timeout)
        if outcome.failure():
            return {"error": outcome.failure()}
        return {"kernels": kernels_of_trace(trace), "result": outcome.result}


def judge(state, name, repeats):
    ours = [state.get(f"{name}/llmprof/{i}") for i in range(repeats)]
    theirs = [state.get(f"{name}/torch/{i}") for i in range(repeats)]
    done_ours = [run for run in ours if run and "error" not in run]
    done_theirs = [run for run in theirs if run and "error" not in run]
    errors = [run["error"] for run in [*ours, *theirs] if run and "error" in run]
    if not done_ours or not done_theirs:
        return {"passed": False, "errors": errors or ["not run"]}
    out = {"errors": errors,
           "against_torch_profiler": compare_kernels([run["kernels"] for run in done_ours], [run["kernels"] for run in done_theirs]),
           "timers": compare_timers(done_ours), "flops": done_ours[0]["flops"],
           "diagnostics": done_ours[0]["diagnostics"]}
    checks = [out["against_torch_profiler"]["counts_equal"], out["against_torch_profiler"]["durations_agree"],
              out["flops"]["agrees"], *[timer["agrees"] for timer in out["timers"].values()]]
    out["passed"] = not errors and all(checks)
    return out


def main():
    parser = harness.arguments(__doc__, "truth_results.json")
    parser.add_argument("--only", default="", help="cases, comma between them: " + ", ".join(CASES))
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    names = [name for name in CASES if not args.only or name in args.only.split(",")]
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    for i in range(args.repeats):
        for name in names:
            for tool, work in (("llmprof", lambda: run_profiled(args, CASES[name], name)), ("torch", lambda: run_torch(args, CASES[name]))):
                key = f"{name}/{tool}/{i}"
                if key not in state and not budget.spent(SECONDS_PER_RUN):
                    state.put(key, work())
                    print(key, state.get(key).get("error", "done"), flush=True)
    summary = {name: judge(state, name, args.repeats) for name in names}
    table = []
    for name, out in summary.items():
        if "against_torch_profiler" not in out:
            table.append([name, "; ".join(out["errors"])])
            continue
        kernels, flops = out["against_torch_profiler"], out["flops"]
        timers = ", ".join(f"{key} {timer['worst_difference']:.2%}" for key, timer in out["timers"].items()
                           if timer["worst_difference"] is not None)
        table.append([name, f"{kernels['kernels']} / {kernels['torch_kernels']}", len(kernels["names_with_other_count"]),
                      kernels["worst_difference_of_heavy_names"], timers, flops.get("difference"),
                      flops.get("gemm_time_with_shape_frac"), "ok" if out["passed"] else "FAIL"])
    if table:
        harness.print_table(["case", "kernels / torch", "other counts", "worst duration", "timers", "flops", "shaped", ""],
                            [row + [""] * (8 - len(row)) for row in table])
    state.save(summary=summary)
    harness.write_summary(args, state)
    return 0 if summary and all(out["passed"] for out in summary.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
