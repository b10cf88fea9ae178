#!/usr/bin/env python3
"""What being recorded does to TPOT: llmprof in its three modes and torch.profiler against the same program alone.

    python3 benchmarks/distortion.py [--cases a,b,c] [--rounds 8] [--instances 2] [--state distortion.json]
    python3 benchmarks/distortion.py --configurations none,default,other --other PATH/TO/ANOTHER/llmprof --no-sizes

Processes of one program differ by some percent, and the machine drifts by more within seconds. So all configurations run
side by side, --instances processes of each, all ready and waiting, and take turns on the GPU, in an order that is rotated
from round to round. Before and after every turn an unprofiled process has a turn of its own: the median and the mean of
the program's own step times (a host timer for the eager programs, CUDA events for the graph) are compared with the mean of
these two neighbours. The unprofiled turns are compared with their neighbours in the same way: that is the noise. While a
process waits, its recording is stopped (`llmprof ctl stop`) and its launcher too, so that nothing of it disturbs the
others. The first round is warm-up and not counted.

Then one whole run of the default mode and one of torch.profiler give the size of the recordings and the time from the
end of the target to the printed report.

Cases: (a) eager TinyLlama-1.1B, batch 1, the launch-bound worst case; (b) eager Llama-3.1-8B; (c) Llama-3.1-8B by CUDA
graph.
"""
import os
import itertools
import pathlib
import random
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("LLMPROF_STORE", "off")  # nothing of this among the runs of whoever calls it

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/gpu"))
import harness

CASES = {
    "a": dict(title="eager tinyllama-1.1b, batch 1", program="llm_eager.py", repeats=2,
              words=["--model", "tinyllama-1.1b", "--prompt", "128", "--iters", "{repeats}", "--new", "64"]),
    "b": dict(title="eager llama-3.1-8b, batch 1", program="llm_eager.py", repeats=2,
              words=["--model", "llama-3.1-8b", "--prompt", "128", "--iters", "{repeats}", "--new", "64"]),
    "c": dict(title="llama-3.1-8b by CUDA graph, batch 1", program="llm_cuda_graph.py", repeats=2,
              words=["--model", "llama-3.1-8b", "--ctx", "512", "--rounds", "{repeats}", "--steps", "32"]),
}
# What llmprof run is given; None: the program alone, or under torch.profiler.
CONFIGURATIONS = {
    "none": None,
    "light": ["--mode", "light"],
    "default": [],
    "deep": ["--mode", "deep", "--no-adapt"],
    "torch": None,
    # Operators of PyTorch: llmprof's, and torch.profiler's with input shapes and Python stacks.
    "torch-operators": ["--torch"],
    "torch-full": None,
    # To find out where a cost comes from; not part of the usual set.
    "light-500us": ["--mode", "light", "--counter-interval-us", "500"],
    "light-no-counters": ["--mode", "light", "--counters", "off"],
    "default-no-counters": ["--counters", "off"],
    "default-all": ["--unrecorded-windows", "off"],
    "armed": [],
    # The default mode of another build (--other), beside this one's: whether a change made recording dearer.
    "other": [],
}
USUAL = "none,light,default,deep,torch"
# What torch.profiler takes of a turn's requests, one in so many: writing each of its files takes seconds.
TRACED = {"torch": 2, "torch-full": 4}
# At most this much of the median TPOT, per case.
LIMITS = {"light": {"a": 0.01, "b": 0.01, "c": 0.01}, "default": {"a": 0.10, "b": 0.05, "c": 0.04},
          "deep": {"a": 0.25, "b": 0.25, "c": 0.25}}
SIZE_RATIO_MIN, REPORT_SECONDS_MAX, REPORT_KERNELS = 50, 2.0, 250_000
# `ctl start` is seen by the target's drain thread within 0.4 s, and the counter sampler is at work soon after.
SETTLE_S = 0.9


class Runner:
    """One process that waits for its turns, under llmprof or not."""

    def __init__(self, args, case, configuration, index, turns):
        self.args, self.configuration, self.name = args, configuration, f"{configuration}.{index}"
        spec = CASES[case]
        words = [word.format(repeats=spec["repeats"]) for word in spec["words"]]
        command = [args.python, str(harness.WORKLOADS / spec["program"]), *words, "--turns", str(turns)]
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="llmprof-distortion-"))
        self.session = None
        if configuration in TRACED:
            command += ["--trace", str(self.scratch / "trace.json")]
        if configuration == "torch-full":
            command += ["--trace-full"]
        options = CONFIGURATIONS[configuration]
        if options is not None:
            self.session = str(self.scratch / "session")
            self.llmprof = args.other if configuration == "other" else args.llmprof
            command = [self.llmprof, "run", "--quiet", "-o", self.session, "--report", str(self.scratch / "report.txt"),
                       *options, "--", *command]
        self.log = open(self.scratch / "log", "w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        bufsize=1)
        self.parked = False

    def line(self, prefix, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ready, _, _ = select.select([self.process.stdout], [], [], 1.0)
            if not ready:
                continue
            text = self.process.stdout.readline()
            if text.startswith(prefix):
                return text
            if not text:
                break
        self.log.seek(0)
        raise RuntimeError(f"{self.name}: no {prefix} within {seconds:.0f} s; {self.log.read()[-500:]}")

    def control(self, what):
        subprocess.run([self.llmprof, "ctl", what, "--session", self.session], check=True, stdout=subprocess.DEVNULL)

    def wait_ready(self):
        self.line("READY", self.args.timeout)

    def park(self):
        if self.session is not None:
            self.control("stop")
            time.sleep(0.5)
            self.process.send_signal(signal.SIGSTOP)  # the launcher, whose thread reads NVML; the target is its child

    def unpark(self):
        if self.session is None:
            return
        self.process.send_signal(signal.SIGCONT)
        if self.configuration != "armed":
            self.control("start")
        time.sleep(SETTLE_S)

    def turn(self, repeats):
        self.process.stdin.write(f"{repeats}\n")
        return harness.result_of(self.line("RESULT", self.args.timeout))

    def end(self):
        if self.session is not None:
            self.process.send_signal(signal.SIGCONT)
        try:
            self.process.stdin.close()
            self.process.wait(30)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)


def rotated(values, by):
    by %= len(values)
    return values[by:] + values[:by]


MEASURED = ("tpot_ms", "tpot_mean_ms", "ttft_ms")


def take_turns(args, state, case, configurations):
    """Rounds of turns; state CASE/turns is their list, each with its unprofiled neighbours."""
    # The same for all, because the static cache of the graph is as long as all turns together.
    most = (args.rounds + 1) * len(configurations) + 2
    runners = [Runner(args, case, name, index, most) for index in range(args.instances) for name in configurations]
    plain = itertools.cycle([runner for runner in runners if runner.configuration == "none"])
    profiled = [runner for runner in runners if runner.configuration != "none"]
    repeats = CASES[case]["repeats"]
    begin = time.monotonic()
    turns = []

    def turn(runner, times):
        runner.unpark()
        result = runner.turn(times)
        runner.park()
        return {"name": runner.name, **{key: result[key] for key in MEASURED if result.get(key)}}

    try:
        for runner in runners:
            runner.wait_ready()
        for runner in runners:
            runner.park()
        print(f"({case}) {len(runners)} processes ready after {time.monotonic() - begin:.0f} s", flush=True)
        before = turn(next(plain), repeats)
        for i in range(args.rounds + 1):
            if args.budget_left.spent(30 + len(profiled) * 5):
                print(f"({case}) out of time after {i} rounds")
                break
            for runner in rotated(profiled, i * 5):
                # torch.profiler has fewer requests, and only every fourth round.
                if runner.configuration in TRACED and i % 4 != 1:
                    continue
                measured = turn(runner, max(1, repeats // TRACED.get(runner.configuration, 1)))
                after = turn(next(plain), repeats)
                if i > 0:
                    turns.append({"round": i - 1, "before": before, "turn": measured, "after": after})
                before = after
        state.put(f"{case}/turns", turns)
    finally:
        for runner in runners:
            runner.end()


def interval(values):
    """95 % confidence interval of the median, by resampling."""
    if len(values) < 4:
        return None
    generator = random.Random(1)
    medians = sorted(statistics.median(generator.choices(values, k=len(values))) for _ in range(2000))
    return [medians[50], medians[1949]]


def configuration_of(turn):
    return turn["name"].rpartition(".")[0]


def ratios(turns, configuration, key):
    """Per turn, its time over the mean of its two neighbours, less one."""
    if configuration == "none":
        plain = [turns[0]["before"]] + [one["after"] for one in turns] if turns else []
        triples = zip(plain, plain[1:], plain[2:])
    else:
        triples = [(one["before"], one["turn"], one["after"]) for one in turns
                   if configuration_of(one["turn"]) == configuration]
    return [here[key] / statistics.fmean((a[key], b[key])) - 1 for a, here, b in triples
            if here.get(key) and a.get(key) and b.get(key)]


def summarize(state, case, configurations):
    summary = {"title": CASES[case]["title"], "configurations": {}}
    turns = state.get(f"{case}/turns") or []
    for name in configurations:
        rows = [one["after"] if name == "none" else one["turn"] for one in turns
                if name == "none" or configuration_of(one["turn"]) == name]
        if not rows:
            continue
        row = {"tpot_ms": statistics.median(one["tpot_ms"] for one in rows), "turns": len(rows)}
        for key, label in zip(MEASURED, ("distortion", "distortion_of_mean", "distortion_of_ttft")):
            found = ratios(turns, name, key)
            if found:
                row[label] = {"median": statistics.median(found), "ci95": interval(found)}
        limit = LIMITS.get(name, {}).get(case)
        if limit is not None and "distortion" in row:
            row["limit"], row["within_limit"] = limit, row["distortion"]["median"] <= limit
        summary["configurations"][name] = row
    sizes = state.get(f"{case}/sizes")
    if sizes:
        summary["sizes"] = sizes
    return summary


def measure_sizes(args, case):
    """Whole runs of the default mode and of torch.profiler over the same work."""
    spec, out = CASES[case], {}
    command = [args.python, str(harness.WORKLOADS / spec["program"])] + [word.format(repeats=12) for word in spec["words"]]
    outcome = harness.profile(args, [], command, f"{case}-default", stamped=True)
    if outcome.failure() or outcome.report is None:
        return {"error": outcome.failure() or "no report"}
    out.update(bytes=outcome.session_bytes, report_s=outcome.report_s,
               kernels=sum(stage["kernels"] for stage in outcome.report["stages"]), own_estimate=outcome.report["overhead"])
    # Start-up costs do not grow with the kernels, so the time is scaled up only, never down.
    out["report_s_per_250k_kernels"] = out["report_s"] * max(1.0, REPORT_KERNELS / max(1, out["kernels"]))
    command = [args.python, str(harness.WORKLOADS / spec["program"])] + [word.format(repeats=2) for word in spec["words"]]
    with tempfile.TemporaryDirectory(prefix="llmprof-distortion-") as folder:
        trace = pathlib.Path(folder) / "trace.json"
        outcome = harness.execute([*command, "--trace", str(trace)], args.timeout)
        if outcome.result:
            with open(trace) as file:
                out["torch_kernels"] = sum(line.count('"cat": "kernel"') for line in file)
    if outcome.result and out["torch_kernels"]:
        out["torch_bytes"], out["torch_steps"] = outcome.result["trace_bytes"], outcome.result["steps"]
        # torch.profiler is off while the model loads and warms up, llmprof is not: compared are bytes a kernel, where
        # everything else in llmprof's folder counts as well.
        all_kernels = harness.profile(args, ["--unrecorded-windows", "off"], command, f"{case}-all")
        if all_kernels.report:
            out["all_bytes"] = all_kernels.session_bytes
            out["all_kernels"] = sum(stage["kernels"] for stage in all_kernels.report["stages"])
            out["torch_over_all"] = out["torch_bytes"] / out["torch_kernels"] / (out["all_bytes"] / out["all_kernels"])
    return out


def percent(row, key):
    found = row.get(key)
    if not found:
        return ""
    ci = found["ci95"]
    return f"{found['median']:+.1%}" + (f" ({ci[0]:+.1%} .. {ci[1]:+.1%})" if ci else "")


def show(summary):
    for case, out in summary.items():
        print(f"\n({case}) {out['title']}")
        table = [[name, row["tpot_ms"], percent(row, "distortion"), f"{row['limit']:.0%}" if "limit" in row else "",
                  percent(row, "distortion_of_mean"), percent(row, "distortion_of_ttft"), row["turns"],
                  "" if "within_limit" not in row else "ok" if row["within_limit"] else "FAIL"]
                 for name, row in out["configurations"].items()]
        harness.print_table(["", "TPOT ms", "median TPOT (95 %)", "limit", "mean TPOT", "TTFT", "turns", ""], table)
        sizes = out.get("sizes")
        if sizes and "error" not in sizes:
            print(f"end of the target to the report: {sizes['report_s']:.2f} s for {sizes['kernels']:,} kernels, "
                  f"{sizes['report_s_per_250k_kernels']:.2f} s for 250,000")
            if "torch_over_all" in sizes:
                print(f"bytes a kernel: {sizes['torch_bytes'] / sizes['torch_kernels']:.0f} by torch.profiler, "
                      f"{sizes['all_bytes'] / sizes['all_kernels']:.1f} by llmprof, "
                      f"{sizes['torch_over_all']:.0f} times fewer")


def main():
    parser = harness.arguments(__doc__, "distortion_results.json")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--instances", type=int, default=2, help="processes of each configuration")
    parser.add_argument("--cases", default="a,b,c")
    parser.add_argument("--configurations", default=USUAL, help="of " + ",".join(CONFIGURATIONS))
    parser.add_argument("--other", help="llmprof of another build, for the configuration `other`")
    parser.add_argument("--no-sizes", action="store_true", help="no whole runs for sizes and the time to the report")
    args = parser.parse_args()
    cases, configurations = args.cases.split(","), args.configurations.split(",")
    if not set(cases) <= set(CASES) or not set(configurations) <= set(CONFIGURATIONS) or "none" not in configurations:
        parser.error(f"cases are {', '.join(CASES)}; configurations are {', '.join(CONFIGURATIONS)}, none among them")
    if ("other" in configurations) != (args.other is not None):
        parser.error("--other LLMPROF and the configuration `other` go together")
    args.budget_left = harness.Budget(args.budget)
    state = harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python), settings={"rounds": args.rounds, "instances": args.instances})
    failures = []
    for case in cases:
        try:
            if f"{case}/turns" not in state:
                take_turns(args, state, case, configurations)
            if not args.no_sizes and f"{case}/sizes" not in state and not args.budget_left.spent(60):
                state.put(f"{case}/sizes", measure_sizes(args, case))
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            failures.append(f"({case}) {error}")
    summary = {case: summarize(state, case, configurations) for case in cases}
    show(summary)
    missing = [f"{case}/{name}" for case in cases for name in configurations
               if name not in summary[case]["configurations"]]
    sizes = [out["sizes"] for out in summary.values() if "sizes" in out]
    within = [row["within_limit"] for out in summary.values() for row in out["configurations"].values() if "within_limit" in row]
    passed = not failures and not missing and all(within) and all(
        "error" not in one and one["report_s_per_250k_kernels"] <= REPORT_SECONDS_MAX and
        one.get("torch_over_all", 0) >= SIZE_RATIO_MIN for one in sizes)
    state.save(summary=summary, missing=missing, failures=failures, passed=passed)
    harness.write_summary(args, state)
    for line in failures + ([f"missing: {', '.join(missing)}"] if missing else []):
        print(line)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
