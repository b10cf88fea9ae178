#!/usr/bin/env python3
"""The CPU's figures of llmprof beside those of the same libraries called directly, and of a plain OpenMP STREAM.

Both sides are measured in turns, in five rounds, and the best median of each side counts: what disturbs a machine only
makes it slower. If llmprof is below the wanted share then, more rounds follow, up to --rounds-max; more of the same
cannot raise a figure that is really lower.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

GEMMS = [(1024, 1024, 1024), (2048, 2048, 2048), (16, 4096, 4096)]


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def direct_rates(output):
    """Lines "name value": {"oneDNN": 123.4}."""
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in output.splitlines() if line)}


def last_level_cache_bytes():
    """The largest level of CPU 0; 32 MiB where sysfs does not say."""
    best = (0, 32 << 20)
    for index in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
            best = max(best, (level, int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]]))
        except (OSError, ValueError, KeyError):
            continue
    return best[1]


class Case:
    def __init__(self, name, unit, direct, ours):
        self.name, self.unit, self.direct, self.ours = name, unit, direct, ours
        self.best_direct, self.best_ours = ("", 0.0), ("", 0.0)
        self.rounds = 0
        self.unsupported = None

    def round(self):
        # First one, then the other: neither always follows the other's heat.
        sides = [self.measure_direct, self.measure_ours]
        for side in sides if self.rounds % 2 == 0 else reversed(sides):
            side()
        self.rounds += 1

    def measure_direct(self):
        for backend, rate in direct_rates(run(*self.direct)).items():
            self.best_direct = max(self.best_direct, (backend, rate), key=lambda pair: pair[1])

    def measure_ours(self):
        backend, *rates = run(*self.ours).rstrip("\n").split("\t")
        if backend == "unsupported":
            self.unsupported = rates[0]
            return
        rate = float(rates[0 if self.unit == "GFLOP/s" else 1])
        self.best_ours = max(self.best_ours, (backend, rate), key=lambda pair: pair[1])

    def ratio(self):
        return self.best_ours[1] / self.best_direct[1] if self.best_direct[1] > 0 else 0.0

    def row(self):
        return {"case": self.name, "unit": self.unit, "llmprof": self.best_ours[1], "llmprof_backend": self.best_ours[0],
                "direct": self.best_direct[1], "direct_backend": self.best_direct[0], "ratio": round(self.ratio(), 4),
                "rounds": self.rounds}


def cases(folder, seconds):
    found = []
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    for dtype in ["fp32"] + (["bf16"] if "avx512_bf16" in flags or "amx_bf16" in flags else []):
        for m, n, k in GEMMS:
            found.append(Case(f"gemm {dtype} {m}x{n}x{k}", "GFLOP/s",
                              [folder / "gemm_direct", m, n, k, dtype, seconds],
                              [folder / "measure_once", "gemm", dtype, "-", seconds, f"m={m}", f"n={n}", f"k={k}"]))
    array = 4 * last_level_cache_bytes()
    found.append(Case(f"triad {array >> 20} MiB", "GB/s", [folder / "stream_openmp", array, seconds],
                      [folder / "measure_once", "memory", "fp32", "triad", seconds, f"bytes={array}"]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of the three programs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rounds-max", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.4, help="of one measurement")
    parser.add_argument("--share", type=float, default=0.95, help="of the direct figure that llmprof must reach")
    parser.add_argument("--out", type=pathlib.Path, help="write the figures as JSON")
    arguments = parser.parse_args()

    measured = cases(arguments.bin, arguments.seconds)
    for _ in range(arguments.rounds):
        for case in measured:
            case.round()
    for case in measured:
        while case.ratio() < arguments.share and not case.unsupported and case.rounds < arguments.rounds_max:
            case.round()

    failed = False
    print(f"{'case':24} {'llmprof':>10} {'direct':>10}  ratio  rounds  unit")
    for case in measured:
        if case.unsupported:
            print(f"{case.name:24} unsupported: {case.unsupported}")
            failed = True
            continue
        missed = case.ratio() < arguments.share
        failed = failed or missed
        print(f"{case.name:24} {case.best_ours[1]:10.2f} {case.best_direct[1]:10.2f}  {case.ratio():.3f}  {case.rounds:6}  "
              f"{case.unit} ({case.best_ours[0]}; {case.best_direct[0]}){'  BELOW ' + str(arguments.share) if missed else ''}")
    if arguments.out:
        arguments.out.write_text(json.dumps({"rows": [case.row() for case in measured if not case.unsupported],
                                             "load_average": os.getloadavg()[0], "threads": os.cpu_count()}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
