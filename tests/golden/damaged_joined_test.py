#!/usr/bin/env python3
"""A damaged recording beside files of other tools: what is broken is said, what can be read is reported, nothing crashes."""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from smi_joined_test import dmon, expect, problems, trace

CUTS, FLIPS, BLOCKS = 24, 40, 12
BENCH = pathlib.Path(__file__).parent / "inputs" / "serving_vllm.json"  # has no times of day: stands beside a recording


class Joined:
    def __init__(self, binary, root):
        self.binary, self.root = binary, root
        (root / "trace.json").write_text(json.dumps(trace()))
        (root / "dmon.txt").write_text(dmon(2, -5, 30))
        done = subprocess.run([binary, "analyze", str(root / "trace.json"), "--gpu", "h200-sxm", "--save", str(root / "whole.llmprof"), "-q", "--json"],
                              capture_output=True, text=True, timeout=240)
        expect(done.returncode == 0, f"--save: {done.stderr[-500:]}")
        self.whole = (root / "whole.llmprof").read_bytes()
        self.kernels = kernels_of(json.loads(done.stdout))

    def of(self, damaged, name):
        """Exit status, report (None where there is none) and what was said, of the recording's bytes beside both files."""
        path = self.root / "damaged.llmprof"
        path.write_bytes(damaged)
        done = subprocess.run([self.binary, "analyze", str(path), str(self.root / "dmon.txt"), str(BENCH), "--json"],
                              capture_output=True, text=True, timeout=240)
        expect(done.returncode in (0, 1, 3), f"{name}: exit {done.returncode}: {done.stderr[-500:]}")
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def kernels_of(report):
    return sum(stage["kernels"] for stage in report["stages"])


def check(joined, damaged, name):
    """Whether the report is as of the whole recording."""
    status, report, said = joined.of(damaged, name)
    if report is None:
        clear = all(word in said for word in ("damaged.llmprof", "where:", "try:")) and ("expected" in said or "is empty" in said)
        expect(status == 1 and clear, f"{name}: no report, and it says {said[-300:]!r}")
        return False
    expect(all(row["ok"] for row in report["conservation"]), f"{name}: {[row for row in report['conservation'] if not row['ok']]}")
    kernels = kernels_of(report)
    expect(kernels <= joined.kernels, f"{name}: {kernels} kernels of {joined.kernels}")
    logs = [row for row in report["joined_files"] if "dmon" in row["file"]]
    expect(len(logs) == 1 and logs[0]["matched"] <= logs[0]["records"], f"{name}: {logs}")
    if not kernels:  # nothing is left that the log could be placed by
        expect(logs[0]["matched"] == 0 and "no GPU work" in logs[0]["why"], f"{name}: {logs}")
    if kernels < joined.kernels:
        expect(report["diagnostics"], f"{name}: {joined.kernels - kernels} kernels are missing, and nothing says so")
    return kernels == joined.kernels and logs[0]["matched"] > 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    with tempfile.TemporaryDirectory() as folder:
        joined = Joined(binary, pathlib.Path(folder))
        whole, chance = joined.whole, random.Random(7)
        expect(check(joined, whole, "whole"), "the whole recording is not joined")
        for i in range(CUTS):
            expect(not check(joined, whole[:len(whole) * i // CUTS], f"cut to {i}/{CUTS}"), f"cut to {i}/{CUTS}: as if nothing was missing")
        for _ in range(FLIPS):
            at, bit = chance.randrange(len(whole)), chance.randrange(8)
            check(joined, whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1:], f"bit {bit} of byte {at}")
        for _ in range(BLOCKS):
            at, length = chance.randrange(len(whole)), chance.choice((1, 16, 512, 4096))
            check(joined, whole[:at] + chance.randbytes(length) + whole[at + length:], f"{length} bytes at {at}")
    print("\n".join(problems) or "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
