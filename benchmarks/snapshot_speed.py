#!/usr/bin/env python3
"""How fast `llmprof analyze` reads a memory snapshot of PyTorch, from the file to the whole report, and in how much memory.

    python3 benchmarks/snapshot_speed.py [--folder DIR] [--runs N] [--size 100MB] [--depths 4,60] [--cores 2] [--write NAME]

The snapshots are those of the allocator that the tests simulate (tests/golden/memory_recordings.py, with a seed), one for each mean depth of a stack:
few frames make many events, many frames make large ones. Each run is a fresh process pinned to the given number of cores, with the file in the page
cache. Beside it stands Python's `pickle.load` of the same file, which makes objects of it and computes nothing.
"""

import argparse
import sys

from import_speed import ROOT, in_words, parse_size, run_benchmark, run_once, summary, warm, write_rows

sys.path.insert(0, str(ROOT / "tests/golden"))
from memory_recordings import write_large  # noqa: E402

PYTHON = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="100MB")
    parser.add_argument("--depths", default="4,60", help="frames of a stack")
    run_benchmark(parser, measure, runs=5)


def measure(options, folder, cores):
    size = parse_size(options.size)
    rows = []
    for depth in map(int, options.depths.split(",")):
        path = folder / f"snapshot_{size // 1000000}MB_{depth}.pickle"
        if not path.exists():
            write_large(size / 1e6, path, depth)
        warm(path)
        commands = {"llmprof": [options.bin / "llmprof", "analyze", path, "--json"], "pickle.load": [sys.executable, "-c", PYTHON, path]}
        runs = {what: [] for what in commands}
        for _ in range(options.runs):
            for what, command in commands.items():
                runs[what].append(run_once(command, cores))
        for what, done in runs.items():
            row = {"what": what, "frames": depth, "file_bytes": path.stat().st_size, **summary(done)}
            rows.append(row)
            print(f"{what:12} {row['file_bytes'] / 1e6:6.0f} MB, {depth:2} frames  {in_words(row)}", flush=True)
    write_rows(options, cores, rows)


if __name__ == "__main__":
    main()
