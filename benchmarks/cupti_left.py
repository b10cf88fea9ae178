#!/usr/bin/env python3
"""Whether CUPTI leaves something behind when it leaves a process: eager steps before it came and after, in one process.

    python3 benchmarks/cupti_left.py [--rounds 20] [--state FILE]

Each round is a process of its own, forked from one that has imported PyTorch. It runs steps of 40 small decoder layers, each
ended by `.item()`, for 1.8 seconds four times: before CUPTI came, the same again, and after CUPTI came, recorded kernels and
copies for 30 steps and left (cuptiFinalize), twice. CUPTI is called from Python as graphs_and_cupti.py does; llmprof is not
involved. Steps count whose neighbouring probes say that the CPU was at full pace (tests/gpu/pace.py): what is given is the
median of a phase over that of the first one in the same process, median and mean over processes with 20 such steps in both.
Needs PyTorch with CUPTI; about 10 seconds a round on an H100.
"""
import argparse
import gc
import json
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/gpu"), str(ROOT / "tests/gpu/steady_programs"), str(ROOT / "benchmarks")]
import pace

PHASES = ("before", "same", "left once", "left twice")
SECONDS, WARM_UP, RECORDED, ENOUGH = 1.8, 30, 30, 20


def come_and_leave(step):
    import torch
    from graphs_and_cupti import ALL_KINDS, Cupti
    cupti = Cupti(os.path.dirname(torch.__file__))
    cupti.kinds = ALL_KINDS
    cupti.subscribe()
    cupti.callbacks()
    cupti.on()
    for _ in range(RECORDED):
        step()
    torch.cuda.synchronize()
    cupti.off()
    cupti.call("cuptiActivityFlushAll", 1)
    cupti.call("cuptiFinalize")
    if cupti.failed:
        raise SystemExit(f"CUPTI: {cupti.failed}")
    for _ in range(10):
        step()


def child():
    import contract
    import torch
    from recorded_steps_target import decoder
    torch.manual_seed(0)
    out = {}
    with torch.inference_mode():
        run, x = decoder(batch=1, layers=40, hidden=1024, heads=16, inner=2816)
        step = lambda: run(x).abs().amax().item()
        for _ in range(WARM_UP):
            step()
        gc.collect()
        gc.freeze()
        gc.disable()
        for phase in PHASES:
            if phase.startswith("left"):
                come_and_leave(step)
            rows, before, end = [], contract.pace_ns(), time.monotonic() + SECONDS
            while time.monotonic() < end:
                began = time.perf_counter_ns()
                step()
                ms, behind = (time.perf_counter_ns() - began) * 1e-6, contract.pace_ns()
                rows.append((ms, max(before, behind)))
                before = behind
            out[phase] = rows
    print(json.dumps(out))


def main():
    if sys.argv[1:] == ["--child"]:
        return child()
    import forked
    import harness
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--state", metavar="FILE")
    options = parser.parse_args()
    forks = forked.Forks(sys.executable)
    rounds = [json.loads(text) for _ in range(options.rounds) if (text := forks.run([os.path.abspath(__file__), "--child"], 60))]
    forks.close()
    probes = sorted(took for one in rounds for rows in one.values() for _, took in rows)
    if not probes:
        raise SystemExit("no process ran to its end")
    best = probes[len(probes) // 20]
    medians = []
    for one in rounds:
        full = {phase: [ms for ms, took in rows if pace.full(took, best)] for phase, rows in one.items()}
        medians.append({phase: statistics.median(ms) if len(ms) >= ENOUGH else None for phase, ms in full.items()})
    out = {"rounds": len(rounds), "step_ms": medians, "longer": {}}
    for phase in PHASES[1:]:
        found = [one[phase] / one["before"] - 1 for one in medians if one[phase] and one["before"]]
        if len(found) < 2:
            continue
        out["longer"][phase] = {"processes": len(found), "median": round(statistics.median(found), 4),
                                "mean": round(statistics.mean(found), 4),
                                "standard_error": round(statistics.stdev(found) / len(found) ** 0.5, 4)}
        print(phase, out["longer"][phase])
    if options.state:
        pathlib.Path(options.state).write_text(json.dumps({"machine": harness.machine(sys.executable), **out}))


if __name__ == "__main__":
    main()
