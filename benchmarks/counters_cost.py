#!/usr/bin/env python3
"""What sampling hardware counters costs a program: on and off in turns while one process runs, by `llmprof ctl counters`.

    python3 benchmarks/counters_cost.py [--programs items] [--rounds 6] [--seconds 2] [--state counters_cost.json]

The program runs under `llmprof run --mode light`, so that nothing but counters is recorded and CUPTI stays out of it. Opening
and closing a session of samples takes up to half a second: the first --settle seconds behind each switch count for neither.
A program passes with at most two percent between the steps with counters and those without, each the tenth percentile of all
rounds: the pace while the host was quick, as in benchmarks/recorded_steps.py, with a 95 % interval by resampling rounds. The
medians of turns are given as well. `recorder core` is how much of a processor sampler and `llmprof run` used. The programs are
those of benchmarks/recorded_steps_target.py; one needs about 50 seconds on an H100.
"""
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("LLMPROF_STORE", "off")  # nothing of this among the runs of whoever calls it

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/gpu"), str(ROOT / "benchmarks")]
import harness
from recorded_steps import PROGRAMS, interval, quick, resampled
from recorded_steps_target import Place

LIMIT_PERCENT = 2.0
EMPTY_BYTES = 4096  # what a file of samples holds without any


# ---- in the process whose steps are timed --------------------------------------------------------------------------

def work(name, target):
    """Steps until standard input closes, then the time of each: when it ended (CLOCK_MONOTONIC) and how long it took, ns."""
    import select
    sys.path.insert(0, str(pathlib.Path(target).parent))
    programs = __import__(pathlib.Path(target).stem).PROGRAMS
    try:
        import torch
        guard = torch.inference_mode()
    except ImportError:  # a stand-in
        import contextlib
        guard = contextlib.nullcontext()
    with guard:
        program = programs[name]()
        for _ in range(10):
            program.step()
        Place()
        print("READY", flush=True)
        steps = []
        while not select.select([sys.stdin], [], [], 0)[0]:
            begin = time.monotonic_ns()
            program.step()
            end = time.monotonic_ns()
            steps.append((end, end - begin))
    print("CPU " + json.dumps(time.process_time()), flush=True)
    print("STEPS " + json.dumps(steps), flush=True)


# ---- in the process that switches ----------------------------------------------------------------------------------

def switch(args, session, to):
    done = subprocess.run([args.llmprof, "ctl", "counters", to, "--session", session], capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise RuntimeError(f"ctl counters {to}: {(done.stderr or done.stdout).strip()}")
    return time.monotonic_ns()


def percent(rounds):
    return 100 * (quick([one["on"] for one in rounds]) / quick([one["off"] for one in rounds]) - 1)


def cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_program(args, name):
    before, cpu_before = time.monotonic(), cpu_of_children()
    with tempfile.TemporaryDirectory(prefix="llmprof-counters-cost-") as folder:
        session, report = f"{folder}/session", f"{folder}/report.json"
        given = ["--counter-interval-us", str(args.interval_us)] if args.interval_us else []
        words = [args.python, "-B", __file__, "--work", name, "--target", args.target]
        with open(f"{folder}/log", "w+") as log:
            process = subprocess.Popen([args.llmprof, "run", "--quiet", "--mode", "light", "--counters", "on", "-o", session,
                                        "--report", report, *given, "--", *words],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
            switches = []
            try:
                if process.stdout.readline().strip() != "READY":
                    log.seek(0)
                    raise RuntimeError("the program did not start: " + " | ".join(log.read().split("\n")[-4:]))
                for number in range(args.rounds + 1):  # the first one warms up
                    for to in ("on", "off") if number % 2 else ("off", "on"):
                        switches.append([number, to, switch(args, session, to)])
                        time.sleep(args.settle + args.seconds)
                        switches[-1].append(time.monotonic_ns())
            finally:
                said, _ = process.communicate(timeout=60)  # closes its input
            steps, own_cpu = (json.loads(next(line for line in said.splitlines() if line.startswith(word))[len(word):])
                              for word in ("STEPS ", "CPU "))
        with open(report) as file:
            found = json.load(file)
        sampled = sum(path.stat().st_size for path in pathlib.Path(session).glob("samples/counters-*.spool"))
    telemetry = found.get("telemetry") or {}
    turns = {}
    for number, to, begin, end in switches:
        chosen = [took / 1e6 for ended, took in steps if begin + args.settle * 1e9 <= ended - took and ended <= end]
        if number > 0 and chosen:
            turns.setdefault(number, {})[to] = chosen
    rounds = [turn for turn in turns.values() if len(turn) == 2]
    values = [100 * (statistics.median(one["on"]) / statistics.median(one["off"]) - 1) for one in rounds]
    out = {"title": PROGRAMS.get(name, name), "rounds": len(rounds),
           "interval_us": telemetry.get("counter_interval_us"), "samples": telemetry.get("counter_samples"),
           "recorder_core": (cpu_of_children() - cpu_before - own_cpu) / (time.monotonic() - before),
           "lost": sum(row["count"] for row in found["diagnostics"] if row["key"] == "counter-samples-lost")}
    if sampled < EMPTY_BYTES:
        raise RuntimeError("no counters were sampled: `llmprof doctor` says why")
    if len(rounds) >= 3:
        out.update(off_ms=statistics.median(statistics.median(one["off"]) for one in rounds),
                   on_ms=statistics.median(statistics.median(one["on"]) for one in rounds),
                   medians={"percent": statistics.median(values), "ci95": interval(values)},
                   undisturbed_ms={which: quick([one[which] for one in rounds]) for which in ("off", "on")},
                   percent=percent(rounds), ci95=resampled(rounds, percent), within=percent(rounds) <= LIMIT_PERCENT)
    return out


def main():
    parser = harness.arguments(__doc__, "counters_cost.json")
    parser.add_argument("--programs", default="items", help="of " + ",".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=6, help="beside the one that warms up")
    parser.add_argument("--seconds", type=float, default=2, help="of steps in one turn")
    parser.add_argument("--settle", type=float, default=1, help="seconds behind a switch that do not count")
    parser.add_argument("--interval-us", type=int, help="between samples (default: llmprof's)")
    parser.add_argument("--target", default=str(ROOT / "benchmarks/recorded_steps_target.py"), help="the programs (for tests)")
    parser.add_argument("--work", help="steps of this program in this process (the benchmark calls itself)")
    args = parser.parse_args()
    if args.work:
        return work(args.work, args.target)
    names = args.programs.split(",")
    if unknown := [name for name in names if name not in PROGRAMS]:
        parser.error(f"no program {', '.join(unknown)}: expected of {', '.join(PROGRAMS)}")
    if not os.access(args.llmprof, os.X_OK):
        parser.error(f"no program {args.llmprof}: cmake --build build/release --target llmprof")
    state = harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    for name in names:
        if "percent" in (state.get(name) or {}):
            continue
        try:
            state.put(name, run_program(args, name))
        except (RuntimeError, OSError, StopIteration, ValueError, subprocess.SubprocessError) as error:
            state.put(name, {"error": str(error) or type(error).__name__})
    summary = state.results()
    state.save(summary=summary)
    harness.write_summary(args, state)
    harness.print_table(["program", "off ms", "on ms", "percent", "95 %", "by medians", "recorder core", "samples", "lost", "within 2"],
                        [[name, out.get("off_ms"), out.get("on_ms"), out.get("percent"), str(out.get("ci95")),
                          (out.get("medians") or {}).get("percent"), out.get("recorder_core"), out.get("samples"),
                          out.get("lost"), out.get("error") or ("yes" if out.get("within") else "NO")] for name, out in summary.items()])
    return 0 if all(summary.get(name, {}).get("within") for name in names) else 1


if __name__ == "__main__":
    sys.exit(main())
