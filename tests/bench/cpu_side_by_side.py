#!/usr/bin/env python3
"""The CPU's figures of llmprof beside those of the same libraries called directly, and of a plain OpenMP STREAM.

Both sides are measured in turns, in five rounds, and the medians over the rounds are compared, with a bootstrap interval
of 99 %. If llmprof is below the wanted share then, more rounds follow, up to --rounds-max. It has failed where the whole
interval is below the share: on a machine shared with others a case whose weights just fit the last cache differs by a
fifth from one process to the next, for both sides.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
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
        self.rates_direct, self.rates_ours = {}, {}  # of each library or kernel, one a round
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
            self.rates_direct.setdefault(backend, []).append(rate)

    def measure_ours(self):
        backend, *rates = run(*self.ours).rstrip("\n").split("\t")
        if backend == "unsupported":
            self.unsupported = rates[0]
            return
        self.rates_ours.setdefault(backend, []).append(float(rates[0 if self.unit == "GFLOP/s" else 1]))

    @staticmethod
    def best(rates):
        """The backend with the highest median, and that median."""
        return max(((backend, statistics.median(values)) for backend, values in rates.items()),
                   key=lambda pair: pair[1], default=("", 0.0))

    def ratio(self):
        direct = self.best(self.rates_direct)[1]
        return self.best(self.rates_ours)[1] / direct if direct > 0 else 0.0

    def interval(self, repeats=2000):
        """Of the ratio of medians, 99 %, by resampling each side's rounds."""
        ours, direct = (rates[self.best(rates)[0]] for rates in (self.rates_ours, self.rates_direct))
        draw = random.Random(7)
        ratios = sorted(statistics.median(draw.choices(ours, k=len(ours))) /
                        statistics.median(draw.choices(direct, k=len(direct))) for _ in range(repeats))
        return ratios[repeats // 200], ratios[-1 - repeats // 200]

    def row(self):
        (ours_backend, ours), (direct_backend, direct) = self.best(self.rates_ours), self.best(self.rates_direct)
        low, high = self.interval()
        return {"case": self.name, "unit": self.unit, "llmprof": round(ours, 2), "llmprof_backend": ours_backend,
                "direct": round(direct, 2), "direct_backend": direct_backend, "ratio": round(self.ratio(), 4),
                "low": round(low, 4), "high": round(high, 4), "rounds": self.rounds}


def cases(folder, seconds):
    found = []
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    for dtype in ["fp32"] + (["bf16"] if "avx512_bf16" in flags or "amx_bf16" in flags else []):
        for m, n, k in GEMMS:
            found.append(Case(f"gemm {dtype} {m}x{n}x{k}", "GFLOP/s",
                              [folder / "gemm_direct", m, n, k, dtype, seconds],
                              [folder / "measure_once", "gemm", dtype, "-", seconds, f"m={m}", f"n={n}", f"k={k}"]))
    array = (4 * last_level_cache_bytes() // 3) >> 12 << 12  # three arrays, of four caches together
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
    print(f"{'case':24} {'llmprof':>10} {'direct':>10}  ratio  {'99 %':14}  rounds  unit")
    for case in measured:
        if case.unsupported:
            print(f"{case.name:24} unsupported: {case.unsupported}")
            failed = True
            continue
        row = case.row()
        missed = row["high"] < arguments.share
        failed = failed or missed
        verdict = f"  BELOW {arguments.share}" if missed else "  cannot tell" if row["ratio"] < arguments.share else ""
        print(f"{row['case']:24} {row['llmprof']:10.2f} {row['direct']:10.2f}  {row['ratio']:.3f}  "
              f"{row['low']:.3f} to {row['high']:.3f}  {row['rounds']:6}  "
              f"{row['unit']} ({row['llmprof_backend']}; {row['direct_backend']}){verdict}")
    if arguments.out:
        arguments.out.write_text(json.dumps({"rows": [case.row() for case in measured if not case.unsupported],
                                             "load_average": os.getloadavg()[0], "threads": os.cpu_count()}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
