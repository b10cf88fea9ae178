#!/usr/bin/env python3
"""How fast the CPUs of this machine are from moment to moment (docs/adr 31).

    python3 benchmarks/host_pace.py [--seconds 15] [--cpus 8] [--probes build/release/lib/libhost_pace_probes.so] [--summary FILE]

One process on each of so many CPUs, pinned there, times a loop of Python (tests/gpu/steady_programs/contract.py) every 5 ms. Where
all is well its times are nearly equal; on a CPU whose core runs another virtual machine's program too they are of two kinds.
With --probes, other work is timed between two such loops, and how well it tells the two states apart: its times where the
loops before and behind it were quick (within 1.12 of the best), and where both were slow (1.5 to 2.2 times the best).
"""
import argparse
import bisect
import ctypes
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/gpu/steady_programs"))
import contract

NAMES = ("the recorder's probe", "a small interpreter", "a walk through 512 KiB")


def times_on(cpu, seconds, library):
    os.sched_setaffinity(0, {cpu})
    other, rows = (ctypes.c_int64 * len(NAMES))(), []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = contract.pace_ns()
        if library:
            library.llmprof_host_pace_probes(other)
        rows.append([before, contract.pace_ns() if library else before, *(other if library else ())])
        time.sleep(0.004)
    return rows


def at(values, share):
    return values[min(len(values) - 1, int(len(values) * share))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--cpus", type=int, default=8, help="at most so many, one process each")
    parser.add_argument("--probes", metavar="FILE", help="libhost_pace_probes.so")
    parser.add_argument("--summary", metavar="FILE", help="write what was found there")
    args = parser.parse_args()
    library = ctypes.CDLL(os.path.abspath(args.probes)) if args.probes else None
    children = []
    for cpu in sorted(os.sched_getaffinity(0))[:args.cpus]:
        read, write = os.pipe()
        if os.fork() == 0:
            with os.fdopen(write, "w") as file:
                json.dump(times_on(cpu, args.seconds, library), file)
            os._exit(0)
        os.close(write)
        children.append((cpu, read))
    by_cpu = {}
    for cpu, read in children:
        with os.fdopen(read) as file:
            by_cpu[cpu] = json.load(file)
        os.wait()
    rows = [row for found in by_cpu.values() for row in found]
    loops = sorted(row[0] for row in rows)
    best = at(loops, 0.05)
    out = {"loops": len(rows), "best_ns": best, "over_best": {str(q): round(at(loops, q) / best, 3) for q in (0.25, 0.5, 0.75, 0.9)},
           "slow_share_by_cpu": {cpu: round(sum(row[0] > 1.3 * best for row in found) / len(found), 2)
                                 for cpu, found in by_cpu.items()}}
    quick = [row for row in rows if max(row[:2]) < 1.12 * best]
    slow = [row for row in rows if min(row[:2]) > 1.5 * best and max(row[:2]) < 2.2 * best]
    if library and quick and slow:
        for i, name in enumerate(NAMES, 2):
            in_quick, in_slow = sorted(row[i] for row in quick), sorted(row[i] for row in slow)
            below = sum(bisect.bisect_left(in_quick, ns) for ns in in_slow) / len(in_quick) / len(in_slow)
            least = at(in_quick, 0.05)
            out[name] = {"quick_p10_p50_p90": [round(at(in_quick, q) / least, 3) for q in (0.1, 0.5, 0.9)],
                         "slow_p10_p50_p90": [round(at(in_slow, q) / least, 3) for q in (0.1, 0.5, 0.9)],
                         "a_slow_one_is_longer_than_a_quick_one": round(below, 3)}
    text = json.dumps(out, indent=1)
    print(text)
    if args.summary:
        pathlib.Path(args.summary).write_text(text + "\n")


if __name__ == "__main__":
    main()
