#!/usr/bin/env python3
"""What simulating changes costs `llmprof analyze`: a recording of 100,000 kernels, without and with all what-ifs, by turns.

    python3 benchmarks/what_if_speed.py [--llmprof build/release/bin/llmprof] [--rounds 5]

The recording is a shipped one of an eager 8B model, its steps written again and again (grow_trace), and read from llmprof's own
file, so that importing is no part of the time. Asked for are all what-ifs one by one, a GPU by its name among them, and two of
several together. Times are medians of whole processes, memory is the largest of any.
"""
import os
import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("LLMPROF_STORE", "off")  # nothing of this among the runs of whoever calls it

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCE = ROOT / "tests/golden/inputs/kineto_llama-3.1-8b_unlabelled.json.gz"
NAMED = "gpu:h200"  # "all" does not hold those that need a name
TOGETHER = ["last-wait-only,graph", "fused,graph"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llmprof", default=str(ROOT / "build/release/bin/llmprof"))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        grown, kept = f"{folder}/grown.json", f"{folder}/grown.llmprof"
        subprocess.run([str(pathlib.Path(args.llmprof).parent / "grow_trace"), str(SOURCE), grown, "285MB"], check=True,
                       capture_output=True)
        first = subprocess.run([args.llmprof, "analyze", grown, "--save", kept, "--json", "--quiet"], check=True,
                               capture_output=True, text=True)
        kernels = sum(row["kernels"] or 0 for row in json.loads(first.stdout)["stages"])
        listed = subprocess.run([args.llmprof, "list", "what-ifs"], check=True, capture_output=True, text=True).stdout
        changes = sum(line[:1].isalpha() for line in listed.splitlines()) + len(TOGETHER)
        words = [word for one in ["all", NAMED, *TOGETHER] for word in ("--what-if", one)]
        times = {"without": [], "with": []}
        for _ in range(args.rounds):
            for name, more in (("without", []), ("with", words)):
                begin = time.monotonic()
                subprocess.run([args.llmprof, "analyze", kept, "--json", "--quiet", *more], check=True, capture_output=True)
                times[name].append(time.monotonic() - begin)
        without, simulated = (statistics.median(times[name]) for name in ("without", "with"))
        peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
        print(f"{kernels:,} kernels, {changes} what-ifs: {simulated:.2f} s, without them {without:.2f} s "
              f"({simulated - without:.2f} s for the changes); at most {peak_mb:.0f} MB")
    return 0 if kernels >= 100_000 and simulated - without <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
