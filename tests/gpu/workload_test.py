#!/usr/bin/env python3
"""The reference workload on a GPU: the same tokens as CUDA graph, launch by launch and on the CPU; its times; and what
`llmprof run` makes of it.

    python3 tests/gpu/workload_test.py [--llmprof build/release/bin/llmprof]

Passes if decode steps as a graph and launch by launch give the same tokens in every size, fp32 gives those of the CPU in
the sizes tiny and small, no run takes five minutes, a graph is not slower than launching, and the report of a recorded run
has the stages of the workload as often as it ran them, its TTFT and TPOT within 1 % and its rate of tokens within 2 %.
"""
import json
import sys

from harness import Budget, State, arguments, execute, machine, print_table, profile, write_summary

SIZES = ("tiny", "small", "base", "large")
ON_CPU = ("tiny", "small")
WALL_MAX_S = 300
TOLERANCES = {"ttft_ms": 0.01, "tpot_ms": 0.01, "tokens_per_s": 0.02}
NOT_SLOWER = 1.03  # times of a run vary by so much
STAGES = ("preprocess", "vision encoder", "vision projector", "prefill", "decode")
# Steps of a stage that the recorder's windows set apart (docs/howto/profile-a-program.md).
SET_APART = ("", " [warm-up]", " [not recorded]", " [whole graphs]", " [window edge]")


def run_once(args, words, timeout=WALL_MAX_S + 60):
    """The workload's JSON with its wall time, or what went wrong in a sentence."""
    outcome = execute([args.llmprof, "workload", "--json", "--quiet", *words], timeout)
    if outcome.returncode != 0:
        return {"error": outcome.failure() + " " + outcome.stderr.strip()[:300], "refused": "are free" in outcome.stderr}
    return {**json.loads(outcome.stdout), "wall_s": outcome.seconds}


def kept(args, state, name, words):
    if name not in state:
        state.put(name, run_once(args, words))
    return state.get(name)


def bytes_of_weights(run):
    """Of the decoder, which a step reads whatever the context is."""
    return run["decoder_parameters"] * (2 if run["dtype"] == "bf16" else 4)


def check_sizes(args, state, budget, failures):
    rows = []
    for size in SIZES:
        runs = {}
        for decode in ("graph", "eager"):
            if budget.spent(60):
                failures.append(f"{size} {decode}: no time left")
                continue
            run = kept(args, state, f"{size} {decode}", ["--device", "cuda:0", "--size", size, "--decode", decode])
            if "error" in run:
                # A GPU with less memory than the size needs: it must say so, and has.
                if not run["refused"]:
                    failures.append(f"{size} {decode}: {run['error']}")
                continue
            runs[decode] = run
            rows.append([size, decode, run["dtype"], run["setup_ms"] / 1e3, run["ttft_ms"], run["tpot_ms"],
                         bytes_of_weights(run) / run["tpot_ms"] / 1e6, run["wall_s"]])
            if run["wall_s"] > WALL_MAX_S:
                failures.append(f"{size} {decode}: took {run['wall_s']:.0f} s")
            if run["notes"]:
                failures.append(f"{size} {decode}: {run['notes']}")
        if len(runs) == 2:
            if runs["graph"]["tokens"] != runs["eager"]["tokens"]:
                failures.append(f"{size}: a graph makes other tokens than launching")
            if runs["graph"]["tpot_ms"] > NOT_SLOWER * runs["eager"]["tpot_ms"]:
                failures.append(f"{size}: a graph takes {runs['graph']['tpot_ms']:.3f} ms a token, launching "
                                f"{runs['eager']['tpot_ms']:.3f}")
    print_table(["size", "decode", "dtype", "setup_s", "ttft_ms", "tpot_ms", "weights_GB/s", "wall_s"], rows)
    return rows


def check_cpu(args, state, failures):
    for size in ON_CPU:
        words = ["--size", size, "--dtype", "fp32", "--seed", "2"]
        cpu = kept(args, state, f"{size} fp32 cpu", [*words, "--device", "cpu"])
        for decode in ("graph", "eager"):
            gpu = kept(args, state, f"{size} fp32 {decode}", [*words, "--device", "cuda:0", "--decode", decode])
            for run in (cpu, gpu):
                if "error" in run:
                    failures.append(f"{size} fp32: {run['error']}")
            if "tokens" in cpu and "tokens" in gpu and cpu["tokens"] != gpu["tokens"]:
                failures.append(f"{size} fp32 {decode}: the GPU makes other tokens than the CPU: {gpu['tokens'][0][:8]} "
                                f"and {cpu['tokens'][0][:8]}")


def steps_of(report, stage):
    names = [stage + suffix for suffix in SET_APART]
    return sum(row["count"] for row in report["stages"] if row["name"] in names)


def own_step_ms(run):
    """Mean time from token to token, without the steps of warm-up, as reports have it."""
    ends = [stage["start_ms"] + stage["ms"] for stage in run["stages"] if stage["stage"] in ("prefill", "decode")]
    steps = sorted(end - before for before, end in zip(ends, ends[1:]))
    steady = steps[:len(steps) - run["cold_steps"]]
    return sum(steady) / len(steady)


def check_recorded(args, state, failures):
    rows = []
    for size in ("base", "large"):
        for decode in ("graph", "eager"):
            name = f"recorded {size} {decode}"
            if name not in state:
                outcome = profile(args, [], [args.llmprof, "workload", "--json", "--quiet", "--device", "cuda:0", "--size",
                                             size, "--decode", decode], name)
                if outcome.failure() is not None:
                    state.put(name, {"error": outcome.failure(), "refused": "are free" in outcome.stderr})
                else:
                    report, run = outcome.report, json.loads(outcome.stdout)
                    latency = report.get("latency") or {}
                    state.put(name, {
                        "stages": {stage: steps_of(report, stage) for stage in STAGES},
                        "names": [row["name"] for row in report["stages"]], "new_tokens": run["new_tokens"],
                        "ttft_ms": [run["ttft_ms"], ((latency.get("ttft_ms") or {}).get("p50"))],
                        "tpot_ms": [own_step_ms(run), ((latency.get("tpot_ms") or {}).get("mean"))],
                        "tokens_per_s": [run["batch"] * 1e3 / own_step_ms(run), latency.get("output_tokens_per_s")]})
            found = state.get(name)
            if "error" in found:
                if not found["refused"]:
                    failures.append(f"{name}: {found['error']}")
                continue
            for stage, count in found["stages"].items():
                ran = found["new_tokens"] - 1 if stage == "decode" else 1
                if count != ran:
                    failures.append(f"{name}: {count} steps \"{stage}\" instead of {ran} among {found['names']}")
            for metric, tolerance in TOLERANCES.items():
                own, told = found[metric]
                off = None if told is None else told / own - 1
                rows.append([name, metric, own, told, off])
                if off is None or abs(off) > tolerance:
                    failures.append(f"{name}: {metric} is {own:.4g} by the workload, {told} in the report")
    print_table(["run", "metric", "own", "report", "off"], rows)
    return rows


def main():
    args = arguments(__doc__, "workload_gpu.json").parse_args()
    state, budget, failures = State(args.state, args.fresh), Budget(args.budget), []
    sizes = check_sizes(args, state, budget, failures)
    check_cpu(args, state, failures)
    recorded = check_recorded(args, state, failures)
    state.save(machine=machine(args.python), sizes=sizes, recorded=recorded, failures=failures, passed=not failures)
    write_summary(args, state)
    print("\n".join("FAILED " + text for text in failures) or "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
