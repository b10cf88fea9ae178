#!/usr/bin/env python3
"""How fast `llmprof analyze` is, from the file to the whole report, and how much memory it takes.

    ./dev bench [--folder DIR] [--runs N] [--sizes 400MB,4GB] [--cores 2]

A shipped recording is grown to each size (grow_trace). Every file is read once so that it lies in the page cache; then
the sizes take turns, N times, each run a fresh process pinned to the given number of cores. Reported: median of the
wall time, peak resident memory of the process, bytes per second, and the ratios to

  - HolisticTraceAnalysis on a 400 MB recording with 2 cores: 39.6 s and 2.2 GB to read it and to do its kernel and idle
    breakdowns (measured once, on a machine of this kind; the constant below),
  - Python's json.load of a grown recording, measured here, in the same run.

Results go to benchmarks/results/<host kind>.json when --write is given.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("LLMPROF_STORE", "off")  # nothing of this among the runs of whoever calls it

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORDING = ROOT / "tests/golden/inputs/kineto_llama-3.1-8b_unlabelled.json.gz"
HTA_SECONDS, HTA_FILE_BYTES, HTA_PEAK_BYTES = 39.6, 400e6, 2.2e9
PYTHON_SAMPLE_BYTES = 60e6


def parse_size(text):
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if text.upper().endswith(unit):
            return int(float(text[:-2]) * scale)
    return int(text)


def grow(tool, folder, size):
    path = folder / f"grown_{size // 1000000}MB.json"
    if not path.exists() or abs(path.stat().st_size - size) > 0.1 * size:
        subprocess.run([tool, RECORDING, path, str(size)], check=True, stdout=subprocess.DEVNULL)
    return path


def warm(path):
    """Reads the file once; says whether it fits the page cache, judged by a second read."""
    for _ in range(2):
        start = time.perf_counter()
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
        rate = path.stat().st_size / (time.perf_counter() - start)
    return rate


def run_once(command, cores):
    """Wall seconds and peak resident bytes of one process pinned to `cores`."""
    with open(os.devnull, "wb") as sink:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=sink, stderr=subprocess.PIPE,
                                 preexec_fn=lambda: os.sched_setaffinity(0, cores))
        stderr = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} exits {child.returncode}: {stderr.decode()[-500:]}")
    return {"seconds": seconds, "peak_bytes": usage.ru_maxrss * 1024,
            "cpu_seconds": usage.ru_utime + usage.ru_stime}


def machine():
    model = ""
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version()}


def summary(runs):
    """Of repeats of one thing, each as run_once gives it."""
    seconds = [run["seconds"] for run in runs]
    return {"runs": len(runs), "seconds_median": statistics.median(seconds), "seconds_min": min(seconds),
            "seconds_max": max(seconds), "cpu_seconds_median": statistics.median(run["cpu_seconds"] for run in runs),
            "peak_bytes": max(run["peak_bytes"] for run in runs)}


def in_words(row):
    return (f"{row['seconds_median']:6.2f} s ({row['seconds_min']:.2f} to {row['seconds_max']:.2f}), "
            f"{row['cpu_seconds_median']:.2f} s of processors, peak {row['peak_bytes'] / 1e6:.0f} MB")


def write_rows(options, cores, rows):
    """As --write asks: the rows with the machine."""
    if not options.write:
        return
    target = ROOT / "benchmarks/results" / f"{options.write}.json"
    result = {"machine": machine(), "cores_used": len(cores), "note": options.note, "rows": rows}
    target.write_text(json.dumps(result, indent=2) + "\n")
    print(f"wrote {target.relative_to(ROOT)}")


def report(row):
    size, seconds = row["file_bytes"], row["seconds_median"]
    hta = HTA_SECONDS * size / HTA_FILE_BYTES / seconds
    return (f"{size / 1e6:8.0f} MB  {seconds:7.3f} s  ({row['seconds_min']:.3f} to {row['seconds_max']:.3f})  "
            f"{size / seconds / 1e6:7.0f} MB/s  peak {row['peak_bytes'] / 1e6:6.0f} MB = "
            f"{row['peak_bytes'] / size:5.3f} of the file  {hta:6.1f} x HTA  {row['times_python_json']:6.1f} x Python json")


def run_benchmark(parser, measure, runs):
    """measure(options, folder, cores) with the options that every benchmark of files has."""
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--folder", type=pathlib.Path, help="where the files lie (default: a temporary folder)")
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--write", metavar="NAME", help="write benchmarks/results/NAME.json")
    parser.add_argument("--note", help="what else to know of the machine, for that file")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:options.cores]
    with tempfile.TemporaryDirectory(prefix="llmprof-bench-") as temporary:
        folder = options.folder or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        measure(options, folder, cores)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="400MB,4GB")
    run_benchmark(parser, measure, runs=7)


def measure(options, folder, cores):
    llmprof, tool = options.bin / "llmprof", options.bin / "grow_trace"
    sample = grow(tool, folder, int(PYTHON_SAMPLE_BYTES))
    warm(sample)
    script = "import json, sys; json.load(open(sys.argv[1]))"
    python = [run_once([sys.executable, "-c", script, sample], cores)["seconds"] for _ in range(3)]
    python_rate = sample.stat().st_size / statistics.median(python)
    print(f"Python json.load: {python_rate / 1e6:.1f} MB/s")

    files = [grow(tool, folder, parse_size(size)) for size in options.sizes.split(",")]
    runs = {path: [] for path in files}
    for turn in range(options.runs):
        for path in files:
            rate = warm(path) if turn == 0 or len(files) > 1 else None
            if turn == 0 and rate < 1e9:
                print(f"note: {path.name} reads at {rate / 1e6:.0f} MB/s; it does not stay in the page cache")
            runs[path].append(run_once([llmprof, "analyze", path, "--json"], cores))

    rows = []
    for path in files:
        seconds = [run["seconds"] for run in runs[path]]
        size, median = path.stat().st_size, statistics.median(seconds)
        rows.append({"file_bytes": size, "runs": len(seconds), "seconds_median": median, "seconds_min": min(seconds),
                     "seconds_max": max(seconds), "seconds_stdev": statistics.stdev(seconds) if len(seconds) > 1 else 0,
                     "cpu_seconds_median": statistics.median(run["cpu_seconds"] for run in runs[path]),
                     "peak_bytes": max(run["peak_bytes"] for run in runs[path]),
                     "bytes_per_s": size / median, "times_python_json": size / median / python_rate})
        print(report(rows[-1]))
    if len(rows) > 1:
        small, large = rows[0], rows[-1]
        growth = (large["seconds_median"] / small["seconds_median"]) / (large["file_bytes"] / small["file_bytes"])
        print(f"time per byte, {large['file_bytes'] / 1e6:.0f} MB against {small['file_bytes'] / 1e6:.0f} MB: "
              f"{growth:.2f} (1 is linear)")
    if options.write:
        result = {"machine": machine(), "cores_used": len(cores), "note": options.note, "python_json_bytes_per_s": python_rate,
                  "hta": {"seconds": HTA_SECONDS, "file_bytes": HTA_FILE_BYTES, "peak_bytes": HTA_PEAK_BYTES}, "rows": rows}
        path = ROOT / "benchmarks/results" / f"{options.write}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
