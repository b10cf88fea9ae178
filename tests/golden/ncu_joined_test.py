#!/usr/bin/env python3
"""Counters of Nsight Compute joined to a recording of the same program, on an H200, against ncu's own pages.

tests/golden/ncu_joined has a recording by `llmprof run` of tests/gpu/held_out_causes_13/choir_notes.py --steps 5 (with the
folder's name changed), and what `ncu --clock-control none --launch-skip 900 --launch-count 16` with the sections of speed of
light, roofline, memory, occupancy and stalls printed of 16 kernels of another run of it: --page raw, which llmprof reads, and
--page details, which it does not read here. Checked:

  details   durations, occupancies, hit rates and throughputs of every kernel have the digits that the details page prints
  roofline  FLOPs and bytes of roofline.csv are what ncu's roofline charts take them from, by its raw page; of kernels whose
            arithmetic is known (65536 x 128 x 8 elements), FLOPs are that arithmetic
  joined    every one of them is in the recording, whose tables call it otherwise: calls and means of the same functor, grid
            and block by these tables
"""
import argparse
import csv
import decimal
import gzip
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent / "ncu_joined"
Number = decimal.Decimal
UNITS = {"": 1, "%": Number("0.01"), "us": 1, "ms": 1000, "ns": Number("0.001"), "Gbyte/s": 1, "Tbyte/s": 1000,
         "Mbyte/s": Number("0.001")}
# Of the details page: section, label, the unit's factor to the report's field.
DETAILS = {
    ("GPU Speed Of Light Throughput", "Duration"): "duration_us",
    ("GPU Speed Of Light Throughput", "Compute (SM) Throughput"): "sm_frac",
    ("GPU Speed Of Light Throughput", "Memory Throughput"): "memory_frac",
    ("GPU Speed Of Light Throughput", "DRAM Throughput"): "dram_frac",
    ("Memory Workload Analysis", "Memory Throughput"): "gbs",
    ("Memory Workload Analysis", "L1/TEX Hit Rate"): "l1_hit_frac",
    ("Memory Workload Analysis", "L2 Hit Rate"): "l2_hit_frac",
    ("Occupancy", "Achieved Occupancy"): "occupancy_frac",
    ("Occupancy", "Theoretical Occupancy"): "theoretical_occupancy_frac",
}
problems, compared = [], {"details": 0, "roofline": 0, "closed form": 0, "joined": 0}


def expect(part, condition, text):
    compared[part] += 1
    if not condition and len(problems) < 20:
        problems.append(text)


def size(text):
    return "x".join(part.strip() for part in text.strip("()").split(","))


def key(row):
    return row["Kernel Name"], size(row["Grid Size"]), size(row["Block Size"])


def read(name):
    lines = gzip.open(FOLDER / name, "rt", encoding="utf-8").read().split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    return list(csv.DictReader(lines[first:]))


def groups(rows):
    out = {}
    for row in rows:
        out.setdefault(key(row), {}).setdefault(row["ID"], []).append(row)
    return out


def details(profiled):
    """One call: the printed digits. Several: their mean, to half a unit of the last digit of each."""
    for of, calls in groups(read("details.csv.gz")).items():
        row = profiled.get(of)
        expect("details", row is not None and row["calls"] == len(calls), f"{of}: expected {len(calls)} calls, found {row}")
        if row is None:
            continue
        for (section, label), field in DETAILS.items():
            values, steps = [], []
            for lines in calls.values():
                line = next(line for line in lines if (line["Section Name"], line["Metric Name"]) == (section, label))
                printed = Number(line["Metric Value"].replace(",", ""))
                values.append(printed * UNITS[line["Metric Unit"]])
                steps.append(Number(1).scaleb(printed.as_tuple().exponent) * UNITS[line["Metric Unit"]])
            if field == "gbs" and len(calls) > 1:
                continue  # bytes over time of all calls, which is no mean of rates
            off = abs(Number(row[field]) - sum(values) / len(values))
            expect("details", off <= max(steps) / 2 * Number("1.0001"),
                   f"{of}, {label}: the details page prints {values}, the report has {row[field]}")


def number(cell):
    return Number(cell.replace(",", ""))


def roofline(rows, raw):
    """ncu's charts: achieved work is add + mul + 2 x fma per cycle, times cycles per second; traffic is bytes per second."""
    scale = {"Ghz": Number(10) ** 9, "Mhz": Number(10) ** 6, "Tbyte/s": Number(10) ** 12, "Gbyte/s": Number(10) ** 9,
             "Mbyte/s": Number(10) ** 6, "us": Number("1e-6"), "ms": Number("1e-3"), "ns": Number("1e-9"), "": 1,
             "inst/cycle": 1, "inst": 1}
    units = raw[0]

    def value(row, name):
        return number(row[name]) * scale[units[name]]

    for of, calls in groups(raw[1:]).items():
        flops = traffic = 0
        for (row,) in calls.values():
            seconds = value(row, "gpu__time_duration.sum")
            per_cycle = sum(value(row, f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum.per_cycle_elapsed") * by
                            for op, by in (("fadd", 1), ("fmul", 1), ("ffma", 2), ("dadd", 1), ("dmul", 1), ("dfma", 2)))
            tensor = sum(number(row[name]) for name in units
                         if name.startswith("sm__ops_path_tensor_src_") and name.endswith(".sum"))
            flops += per_cycle * value(row, "smsp__cycles_elapsed.avg.per_second") * seconds + tensor
            traffic += value(row, "dram__bytes.sum.per_second") * seconds
        shape = f"grid {of[1]} block {of[2]}"
        row = next((one for one in rows if (one["name"], one["shape"]) == (of[0], shape)), None)
        if flops == 0:
            continue  # no point of the chart
        if row is None:
            expect("roofline", False, f"{of}: expected in roofline.csv, found none")
            continue
        for field, expected in (("flops", flops / len(calls)), ("bytes", traffic / len(calls))):
            off = abs(Number(row[field]) / expected - 1)
            expect("roofline", off < Number("1e-5"), f"{of}: {field} {expected} by the raw page, {row[field]} in roofline.csv")
        passes = {"MulFunctor<float>": 1, "CUDAFunctor_add<float>": 2, "pow_tensor_scalar_kernel_impl<float": 2}
        for name, each in passes.items():
            if "vectorized_elementwise_kernel<4" in of[0] and name in of[0] and of[1] == "65536x1x1":
                elements = 65536 * 128 * 8
                off = abs(float(row["flops"]) / (each * elements) - 1)
                expect("closed form", off < 1e-5, f"{of}: {each} x {elements} operations, {row['flops']} in roofline.csv")


def table(folder, name):
    with open(folder / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# What tells a kernel from others of its function, as both recorders write it.
TELLING = ("AUnaryFunctor<", "CUDAFunctor_add<", "pow_tensor_scalar_kernel_impl", "addcmul_cuda_kernel", "BinaryFunctor<c10",
           "vectorized_layer_norm_kernel", "CatArrayBatchedCopy", "flash_fwd_kernel", "direct_copy_kernel_cuda")


def joined(profiled, folder):
    configs, seen = table(folder, "launch_configs"), {}
    for op in table(folder, "gpu_ops"):
        if op["kind"] != "kernel" or not op["config"]:
            continue
        config = configs[int(op["config"])]
        name = next((word for word in TELLING if word in op["name"]), op["name"])
        of = (name, *("x".join(config[f"{what}_{axis}"] for axis in "xyz") for what in ("grid", "block")))
        seen.setdefault(of, []).append(int(op["dur_ns"]))
    for of, row in profiled.items():
        name = next((word for word in TELLING if word in of[0]), of[0])
        took = seen.get((name, *of[1:]))
        if took is None:
            expect("joined", False, f"{of}: not in the recording's tables")
            continue
        mean_us = sum(took) / len(took) / 1e3
        expect("joined", row["recorded_calls"] == len(took) and abs(row["recorded_us"] - mean_us) < 1e-6,
               f"{of}: {len(took)} calls of {mean_us} us by the tables, {row['recorded_calls']} of {row['recorded_us']}")

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmprof-ncu-joined-") as work:
        work = pathlib.Path(work)
        with tarfile.open(FOLDER / "recording.tar.xz") as archive:
            archive.extractall(work)

        def llmprof(*words):
            done = subprocess.run([args.binary, *map(str, words)], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{words[0]}: exit code {done.returncode}\n{done.stderr}")
            return done.stdout

        recording, raw = work / "recording", FOLDER / "raw.csv.gz"
        report = json.loads(llmprof("analyze", recording, raw, "--json", "--quiet"))
        profiled = {(row["name"], row["grid"], row["block"]): row for row in report["profiled_kernels"]}
        details(profiled)
        llmprof("analyze", raw, "--format", "csv", "--quiet", "-o", work / "tables")
        roofline(table(work / "tables", "roofline"), read("raw.csv.gz"))
        llmprof("export", recording, "--to", "csv", "--quiet", "-o", work / "trace")
        joined(profiled, work / "trace")
        [file] = report["joined_files"]
        calls = sum(len(calls) for calls in groups(read("details.csv.gz")).values())
        expect("joined", (file["format"], file["records"], file["matched"], file["not_matched"]) == ("ncu", calls, calls, 0),
               f"{calls} kernels on the details page, all in the recording: {file}")
    least = {"details": 100, "roofline": 16, "closed form": 3, "joined": 13}
    for part, count in least.items():
        if compared[part] < count:
            problems.append(f"{part}: expected {count} comparisons at least, found {compared[part]}")
    if problems:
        print("\n".join(problems))
        return 1
    print(f"{len(profiled)} kernels, compared: {compared}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
