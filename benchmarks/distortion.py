#!/usr/bin/env python3
"""What being recorded does to TPOT: llmprof in its three modes and torch.profiler against the same program alone.

    python3 benchmarks/distortion.py [--rounds 3] [--cases a,b,c] [--state distortion.json] [--budget SECONDS]

A round runs every configuration once, in an order that is rotated from round to round, because the baseline itself
drifts by some percent. Each process gives the median of its own step times (a host timer for the eager programs, CUDA
events for the graph); compared are processes of the same round. Also: size of the recording, time from the end of the
target to the printed report, kernels recorded.

Cases: (a) eager TinyLlama-1.1B, batch 1, the launch-bound worst case; (b) eager Llama-3.1-8B; (c) Llama-3.1-8B by CUDA
graph. With --budget the run stops in time and goes on from --state when it is started again.
"""
import pathlib
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/gpu"))
import harness

CASES = {
    "a": dict(title="eager tinyllama-1.1b, batch 1", program="llm_eager.py",
              words=["--model", "tinyllama-1.1b", "--prompt", "128", "--iters", "{iters}", "--new", "{new}"]),
    "b": dict(title="eager llama-3.1-8b, batch 1", program="llm_eager.py",
              words=["--model", "llama-3.1-8b", "--prompt", "128", "--iters", "{iters}", "--new", "{new}"]),
    "c": dict(title="llama-3.1-8b by CUDA graph, batch 1", program="llm_cuda_graph.py",
              words=["--model", "llama-3.1-8b", "--ctx", "512", "--rounds", "{iters}", "--steps", "{new}"]),
}
CONFIGURATIONS = ("none", "light", "default", "deep", "torch")
# At most this much of the median TPOT, per case.
LIMITS = {"light": {"a": 0.01, "b": 0.01, "c": 0.01}, "default": {"a": 0.10, "b": 0.05, "c": 0.04},
          "deep": {"a": 0.25, "b": 0.25, "c": 0.25}}
SIZE_RATIO_MIN, REPORT_SECONDS_MAX, REPORT_KERNELS = 50, 2.0, 250_000
SECONDS_PER_RUN = {"none": 20, "light": 22, "default": 25, "deep": 30, "torch": 60}


def measure(args, case, configuration):
    spec = CASES[case]
    words = [word.format(iters=args.iters, new=args.new) for word in spec["words"]]
    command = [args.python, str(harness.WORKLOADS / spec["program"]), *words]
    if configuration in ("light", "default", "deep"):
        options = ["--mode", configuration, *args.options.split()]
        outcome = harness.profile(args, options, command, f"{case}-{configuration}", stamped=True)
    elif configuration == "none":
        outcome = harness.execute(command, args.timeout)
    else:
        with tempfile.TemporaryDirectory(prefix="llmprof-distortion-") as folder:
            outcome = harness.execute([*command, "--trace", str(pathlib.Path(folder) / "trace.json")], args.timeout)
    if outcome.failure() or outcome.result is None:
        return {"error": outcome.failure() or "no RESULT line"}
    out = {"tpot_ms": outcome.result["tpot_ms"], "tpot_mean_ms": outcome.result["tpot_mean_ms"],
           "ttft_ms": outcome.result.get("ttft_ms"), "steps": outcome.result["steps"], "seconds": round(outcome.seconds, 2)}
    if configuration == "torch":
        out["bytes"] = outcome.result["trace_bytes"]
    elif configuration != "none":
        out["bytes"], out["report_s"] = outcome.session_bytes, outcome.report_s
        if outcome.report is None:
            return {"error": "no report: " + outcome.stderr.strip()[-300:]}
        out["kernels"] = sum(stage["kernels"] for stage in outcome.report["stages"])
        out["own_estimate"] = outcome.report["overhead"]
        out["diagnostics"] = [entry["key"] for entry in outcome.report["diagnostics"]]
    return out


def order(configurations, turn):
    turn %= len(configurations)
    return configurations[turn:] + configurations[:turn]


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)} if values else None


def summarize(state, case, rounds, configurations):
    def run(configuration, i):
        found = state.get(f"{case}/{configuration}/{i}")
        return found if found and "error" not in found else None

    summary = {"title": CASES[case]["title"], "configurations": {}}
    for configuration in configurations:
        runs = [run(configuration, i) for i in range(rounds)]
        done = [one for one in runs if one]
        if not done:
            continue
        row = {"tpot_ms": spread([one["tpot_ms"] for one in done])}
        # One number per round: both processes ran within a minute of each other.
        ratios = [one["tpot_ms"] / run("none", i)["tpot_ms"] - 1 for i, one in enumerate(runs) if one and run("none", i)]
        if configuration != "none" and ratios:
            row["distortion"] = spread(ratios)
            limit = LIMITS.get(configuration, {}).get(case)
            if limit is not None:
                row["limit"], row["within_limit"] = limit, row["distortion"]["median"] <= limit
        for key in ("bytes", "report_s", "kernels"):
            values = [one[key] for one in done if one.get(key) is not None]
            if values:
                row[key] = statistics.median(values)
        summary["configurations"][configuration] = row
    rows = summary["configurations"]
    if "torch" in rows and "default" in rows and rows["default"].get("bytes"):
        summary["torch_bytes_over_default"] = rows["torch"]["bytes"] / rows["default"]["bytes"]
    # Start-up costs do not grow with the kernels, so only recordings of about that size say what one of that size takes.
    if rows.get("default", {}).get("kernels", 0) >= 0.8 * REPORT_KERNELS:
        scale = max(1.0, REPORT_KERNELS / rows["default"]["kernels"])
        summary["report_s_per_250k_kernels"] = rows["default"]["report_s"] * scale
    return summary


def show(summary):
    for case, out in summary.items():
        print(f"\n({case}) {out['title']}")
        table = []
        for name, row in out["configurations"].items():
            distortion = row.get("distortion")
            table.append([name, row["tpot_ms"]["median"],
                          f"{distortion['median']:+.1%} ({distortion['min']:+.1%} .. {distortion['max']:+.1%})" if distortion else "",
                          f"{row['limit']:.0%}" if "limit" in row else "", row["tpot_ms"]["n"],
                          row["bytes"] / 1e6 if "bytes" in row else None, row.get("report_s"), row.get("kernels"),
                          "" if "within_limit" not in row else "ok" if row["within_limit"] else "FAIL"])
        harness.print_table(["", "TPOT ms", "distortion (min .. max)", "limit", "n", "MB", "report s", "kernels", ""], table)
        if "torch_bytes_over_default" in out:
            print(f"torch.profiler's file is {out['torch_bytes_over_default']:.0f} times larger than llmprof's recording")
        if "report_s_per_250k_kernels" in out:
            print(f"end of the target to the report, for 250,000 kernels: {out['report_s_per_250k_kernels']:.2f} s")


def main():
    parser = harness.arguments(__doc__, "distortion_results.json")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default="a,b,c")
    parser.add_argument("--configurations", default=",".join(CONFIGURATIONS))
    parser.add_argument("--new", type=int, default=64, help="steps per request or round")
    parser.add_argument("--iters", type=int, default=3, help="requests or rounds per process")
    parser.add_argument("--options", default="", help="further options of llmprof run, in one word")
    parser.add_argument("--retry", action="store_true", help="run again what failed before")
    args = parser.parse_args()
    cases = [case for case in args.cases.split(",") if case in CASES]
    configurations = [name for name in args.configurations.split(",") if name in CONFIGURATIONS]
    if not cases or not configurations:
        parser.error(f"cases are {', '.join(CASES)}; configurations are {', '.join(CONFIGURATIONS)}")
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    if state.data.get("settings", {"new": args.new, "iters": args.iters}) != {"new": args.new, "iters": args.iters}:
        parser.error(f"{args.state} holds runs with {state.data['settings']}; use the same, --fresh or another --state")
    state.save(machine=harness.machine(args.python), settings={"new": args.new, "iters": args.iters})
    for i in range(args.rounds):
        for turn, case in enumerate(cases):
            for configuration in order(configurations, i + turn):
                key = f"{case}/{configuration}/{i}"
                known = state.get(key)
                if known is not None and not (args.retry and "error" in known):
                    continue
                if budget.spent(SECONDS_PER_RUN[configuration]):
                    continue
                try:
                    state.put(key, measure(args, case, configuration))
                except OSError as error:
                    state.put(key, {"error": str(error)})
                done = state.get(key)
                print(key, done.get("error") or f"{done['tpot_ms']:.3f} ms", f"({budget.left():.0f} s left)", flush=True)
    summary = {case: summarize(state, case, args.rounds, configurations) for case in cases}
    show(summary)
    missing = [f"{case}/{name}/{i}" for case in cases for name in configurations for i in range(args.rounds)
               if "error" in (state.get(f"{case}/{name}/{i}") or {"error": "not run"})]
    large = [out["torch_bytes_over_default"] for out in summary.values() if "torch_bytes_over_default" in out]
    late = [out["report_s_per_250k_kernels"] for out in summary.values() if "report_s_per_250k_kernels" in out]
    within = [row["within_limit"] for out in summary.values() for row in out["configurations"].values() if "within_limit" in row]
    passed = not missing and all(within) and all(r >= SIZE_RATIO_MIN for r in large) and all(s <= REPORT_SECONDS_MAX for s in late)
    state.save(summary=summary, missing=missing, passed=passed)
    harness.write_summary(args, state)
    if missing:
        print(f"\nmissing or failed: {', '.join(missing)}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
