#!/usr/bin/env python3
"""How fast `llmprof export` is, from the file to the export, and how much memory and disk it takes.

    python3 benchmarks/export_speed.py [--folder DIR] [--runs N] [--size 500MB] [--cores 2] [--write NAME]

A shipped recording is grown (grow_trace) to about 1.6 million slices and exported to each format by turns, beside
`analyze`, which reads and derives the same: the difference is what writing costs. Each run is a fresh process pinned to the
given number of cores. Slices are rows of ops, api_calls, gpu_ops and gaps, counted in the SQLite export.
"""

import argparse
import json
import shutil
import sqlite3
import statistics

from import_speed import ROOT, grow, machine, parse_size, run_benchmark, run_once, warm

FORMATS = {"perfetto": "trace.pftrace", "sqlite": "trace.sqlite", "csv": "tables", "json": "trace.json"}
TIMELINE = ("ops", "api_calls", "gpu_ops", "gaps")


def size_of(path):
    return sum(file.stat().st_size for file in path.iterdir()) if path.is_dir() else path.stat().st_size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="500MB")
    run_benchmark(parser, measure, runs=7)


def measure(options, folder, cores):
    path = grow(options.bin / "grow_trace", folder, parse_size(options.size))
    warm(path)
    runs, bytes_of, slices = {}, {}, 0
    for _ in range(options.runs):
        runs.setdefault("analyze", []).append(run_once([options.bin / "llmprof", "analyze", path, "--json"], cores))
        for name, file in FORMATS.items():
            out = folder / file
            if out.is_dir():
                shutil.rmtree(out)
            runs.setdefault(name, []).append(
                run_once([options.bin / "llmprof", "export", path, "--to", name, "-o", out], cores))
            bytes_of[name] = size_of(out)
    with sqlite3.connect(folder / FORMATS["sqlite"]) as database:
        slices = sum(database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in TIMELINE)
    rows = []
    for name, all_runs in runs.items():
        seconds = [run["seconds"] for run in all_runs]
        rows.append({"to": name, "runs": len(seconds), "seconds_median": statistics.median(seconds),
                     "seconds_min": min(seconds), "seconds_max": max(seconds),
                     "cpu_seconds_median": statistics.median(run["cpu_seconds"] for run in all_runs),
                     "peak_bytes": max(run["peak_bytes"] for run in all_runs), "export_bytes": bytes_of.get(name)})
        row = rows[-1]
        print(f"{name:9} {row['seconds_median']:6.2f} s ({row['seconds_min']:.2f} to {row['seconds_max']:.2f}), "
              f"{row['cpu_seconds_median']:.2f} s of processors, peak {row['peak_bytes'] / 1e6:.0f} MB"
              + (f", {bytes_of[name] / 1e6:.0f} MB written" if name in bytes_of else ""))
    print(f"{slices:,} slices in {path.stat().st_size / 1e6:.0f} MB, {len(cores)} cores")
    if options.write:
        target = ROOT / "benchmarks/results" / f"{options.write}.json"
        result = {"machine": machine(), "cores_used": len(cores), "file_bytes": path.stat().st_size, "slices": slices,
                  "note": options.note, "rows": rows}
        target.write_text(json.dumps(result, indent=2) + "\n")
        print(f"wrote {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
