#!/usr/bin/env python3
"""How fast `llmprof analyze` joins the traces of several ranks of one job, from the files to the whole report, and in how much memory.

    python3 benchmarks/join_speed.py [--folder DIR] [--runs N] [--ranks 8] [--size 100MB] [--cores 2] [--write NAME]

The job is the one that the tests simulate (tests/golden/rank_recordings.py, with a seed): 32 layers of products and an all-reduce, one rank late. Each
trace is filled up to its size with operators of a second thread. Each run is a fresh process pinned to the given number of cores, with the files in the
page cache; the same is measured of one of the files alone, and of all of them one after the other.
"""

import argparse
import json
import sys

from import_speed import ROOT, in_words, parse_size, run_benchmark, run_once, summary, warm, write_rows

sys.path.insert(0, str(ROOT / "tests/golden"))
from rank_recordings import Job  # noqa: E402

STEPS, LAYERS = 250, 32


def fill(document, size):
    """The document as text of about that size."""
    text = json.dumps(document, separators=(",", ":"))
    head, end = text[:-2], text[-2:]  # ]}
    begin, number, parts, length = 20_000.0, 0, [], len(head)
    while length < size:
        block = "".join(
            f',{{"ph":"X","cat":"cpu_op","name":"aten::view_{n % 7}","pid":4000,"tid":4001,"ts":{begin + n * 2:.3f},"dur":{1 + n % 5 / 8:.3f},"args":'
            f'{{"External id":{10_000_000 + n},"Record function id":0,"Ev Idx":{n},"Input Dims":[[{n % 64 + 1},4096],[4096,{n % 8 * 128 + 128}],[]],'
            f'"Input type":["c10::BFloat16","c10::BFloat16","Scalar"],"Concrete Inputs":["","","1"]}}}}' for n in range(number, number + 10_000))
        number += 10_000
        parts.append(block)
        length += len(block)
    return head + "".join(parts) + end


def make(folder, ranks, size):
    paths = [folder / f"rank{rank}_{size // 1000000}MB.json" for rank in range(ranks)]
    if all(path.exists() and abs(path.stat().st_size - size) < 0.1 * size for path in paths):
        return paths
    job = Job(ranks, steps=STEPS, layers=LAYERS, late={ranks - 2: 200_000})
    for rank, path in enumerate(paths):
        path.write_text(fill(job.document(rank), size))
    return paths


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--size", default="100MB")
    run_benchmark(parser, measure, runs=5)


def measure(options, folder, cores):
    paths = make(folder, options.ranks, parse_size(options.size))
    for path in paths:
        warm(path)
    analyze = [options.bin / "llmprof", "analyze", "--json"]
    cases = {"joined": [[*analyze, *paths]], "one of them": [[*analyze, paths[0]]], "one by one": [[*analyze, path] for path in paths]}
    rows = []
    for what, commands in cases.items():
        runs = []  # all commands of one repeat together
        for _ in range(options.runs):
            done = [run_once(command, cores) for command in commands]
            runs.append({"seconds": sum(one["seconds"] for one in done), "cpu_seconds": sum(one["cpu_seconds"] for one in done),
                         "peak_bytes": max(one["peak_bytes"] for one in done)})
        row = {"what": what, "files": len(commands[-1]) - len(analyze) if what == "joined" else len(commands),
               "bytes": sum(path.stat().st_size for path in (paths if what != "one of them" else paths[:1])), **summary(runs)}
        rows.append(row)
        print(f"{what:12} {row['bytes'] / 1e6:6.0f} MB  {in_words(row)}", flush=True)
    write_rows(options, cores, rows)


if __name__ == "__main__":
    main()
