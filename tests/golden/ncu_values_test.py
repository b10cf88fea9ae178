#!/usr/bin/env python3
"""Every kernel and every metric of two recordings of Nsight Compute, against Python's csv module.

`llmprof export` gives the tables as they were imported. Names, grids, blocks, streams, ranges and durations of all kernels
must be those of the file, and every number must have the digits that the file prints: no rounding, nothing missing, nothing
in addition. The report's traffic and shares are computed here once more from the file alone.
"""

import argparse
import csv
import decimal
import gzip
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

INPUTS = pathlib.Path(__file__).resolve().parent / "inputs"
NVTX = "thread Domain:"
OF_KERNEL = {"ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
             "Grid Size", "Device", "CC"}
NUMBER = re.compile(r"-?[0-9]+(,[0-9]{3})*(\.[0-9]+)?$")

problems = []


def expect(condition, text):
    if not condition and len(problems) < 20:
        problems.append(text)
    return condition


def table_of(path):
    """Names and rows below the header; what the program and ncu printed before it is left out."""
    lines = gzip.open(path, "rt", encoding="utf-8").read().split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith('"ID","Process ID"'))
    rows = [row for row in csv.reader(lines[first:]) if row]
    return rows[0], rows[1:]


def kernels_of(path):
    """[{facts of the kernel, "metrics": [(section, name, unit, text)]}], in the order of the file."""
    names, rows = table_of(path)
    out, known = [], {}
    if "Metric Name" not in names:
        units, rows = rows[0], rows[1:]
    for row in rows:
        cells = dict(zip(names, row))
        key = (cells["ID"], cells["Process ID"], cells["Kernel Name"])
        if "Metric Name" not in names or key not in known:
            known[key] = {**cells, "metrics": []}
            out.append(known[key])
        metrics = known[key]["metrics"]
        if "Metric Name" in names:
            if cells["Metric Name"]:
                metrics.append((cells["Section Name"], cells["Metric Name"], cells["Metric Unit"], cells["Metric Value"]))
        else:
            metrics += [("", name, unit, text) for name, unit, text in zip(names, units, row)
                        if name not in OF_KERNEL and not name.startswith((NVTX, "Id:Domain:")) and text]
    return out


def exported(binary, path, folder):
    done = subprocess.run([binary, "export", path, "--to", "csv", "-o", folder], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"export of {path.name}: exit code {done.returncode}\n{done.stderr}")
    read = {}
    for name in ("profiled_kernels", "kernel_counters", "streams", "launch_configs", "devices"):
        with open(folder / f"{name}.csv", encoding="utf-8", newline="") as file:
            read[name] = list(csv.DictReader(file))
    return read


def size(config, what):
    return f"({config[what + '_x']}, {config[what + '_y']}, {config[what + '_z']})"


def ranges(cell):
    return "\n".join(text.split(":")[1] for text in re.findall(r'"([^"]*)"', cell))


def same_kernel(where, kernel, row, tables):
    stream = tables["streams"][int(row["stream"])]
    config = tables["launch_configs"][int(row["config"])]
    expect(row["name"] == kernel["Kernel Name"], f"{where}: name {row['name']}")
    expect((stream["device"], stream["context"], stream["stream"]) ==
           (kernel["Device"], kernel["Context"], kernel["Stream"]), f"{where}: device, context, stream {stream}")
    expect(size(config, "grid") == kernel["Grid Size"], f"{where}: grid {size(config, 'grid')}")
    expect(size(config, "block") == kernel["Block Size"], f"{where}: block {size(config, 'block')}")
    expect((row["number"], row["process_id"]) == (kernel["ID"], kernel["Process ID"]), f"{where}: number, process")
    nvtx = next(text for name, text in kernel.items() if name.startswith(NVTX))
    expect(row["ranges"] == ranges(nvtx), f"{where}: ranges {row['ranges']!r}")
    durations = [text for _, name, unit, text in kernel["metrics"]
                 if name in ("Duration", "gpu__time_duration.sum") and unit == "ns"]
    expect([row["dur_ns"]] == [text.replace(",", "") for text in durations], f"{where}: duration {row['dur_ns']}")


def same_metric(where, metric, row):
    section, name, unit, text = metric
    expect((row["section"], row["name"], row["unit"]) == (section, name, unit), f"{where}: {row} for {metric}")
    if NUMBER.match(text):
        digits = decimal.Decimal(text.replace(",", ""))
        got = decimal.Decimal(row["value"]) if row["value"] else None
        expect(got == digits and row["text"] == "", f"{where}: {row['value']!r} for {text!r}")
        return 1
    expect(row["value"] == "" and row["text"] == text, f"{where}: {row} for {text!r}")
    return 0


def compare(binary, name, kernels_least, numbers_least):
    path = INPUTS / name
    kernels = kernels_of(path)
    with tempfile.TemporaryDirectory() as folder:
        tables = exported(binary, path, pathlib.Path(folder))
    expect(len(kernels) == len(tables["profiled_kernels"]) >= kernels_least,
           f"{name}: {len(tables['profiled_kernels'])} kernels of {len(kernels)}")
    by_kernel = {}
    for row in tables["kernel_counters"]:
        by_kernel.setdefault(int(row["kernel"]), []).append(row)
    numbers = 0
    for at, (kernel, row) in enumerate(zip(kernels, tables["profiled_kernels"])):
        where = f"{name}, kernel {kernel['ID']}"
        same_kernel(where, kernel, row, tables)
        got = by_kernel.get(at, [])
        expect(len(got) == len(kernel["metrics"]), f"{where}: {len(got)} metrics of {len(kernel['metrics'])}")
        for metric, counter in zip(kernel["metrics"], got):
            numbers += same_metric(where, metric, counter)
    expect(numbers >= numbers_least, f"{name}: only {numbers} numbers compared")
    print(f"{name}: {len(kernels)} kernels, {len(tables['kernel_counters'])} values, {numbers} of them numbers")
    return kernels


def value_of(kernel, names, unit):
    for _, name, has, text in kernel["metrics"]:
        if name in names and has == unit and NUMBER.match(text):
            return float(text.replace(",", ""))
    return None


def close(got, expected):
    return got is not None and expected is not None and math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-12)


def same_report(binary, name, kernels):
    """Traffic and occupancy of the rows of a report: means over the calls, shares by time."""
    done = subprocess.run([binary, "analyze", INPUTS / name, "--json"], capture_output=True, text=True)
    report = json.loads(done.stdout)
    groups = {}
    for kernel in kernels:
        nvtx = next(text for column, text in kernel.items() if column.startswith(NVTX))
        key = (kernel["Kernel Name"], kernel["Grid Size"], kernel["Block Size"], ranges(nvtx).replace("\n", "/"))
        groups.setdefault(key, []).append(kernel)
    expect(sum(row["calls"] for row in report["profiled_kernels"]) == len(kernels), f"{name}: calls of the report")
    checked = 0
    for row in report["profiled_kernels"]:
        key = (row["name"], "(" + row["grid"].replace("x", ", ") + ")", "(" + row["block"].replace("x", ", ") + ")",
               row["ranges"])
        calls = groups.get(key, [])
        if not expect(len(calls) == row["calls"], f"{name}: {row['calls']} calls of {key}, {len(calls)} in the file"):
            continue
        times = [value_of(call, ("Duration", "gpu__time_duration.sum"), "ns") for call in calls]
        expect(close(row["duration_us"], sum(times) / len(times) / 1e3), f"{name}: duration of {key}")
        traffic = []
        for call, time in zip(calls, times):
            read = value_of(call, ("dram__bytes_read.sum",), "byte")
            rate = value_of(call, ("Memory Throughput",), "byte/s")
            traffic.append(read + value_of(call, ("dram__bytes_write.sum",), "byte") if read is not None
                           else round(rate * time / 1e9))
        expect(close(row["dram_bytes"], sum(traffic) / len(calls)), f"{name}: traffic of {key}: {row['dram_bytes']}")
        shares = [value_of(call, ("Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"), "%")
                  for call in calls]
        mean = sum(share * time for share, time in zip(shares, times)) / sum(times) / 100
        expect(close(row["occupancy_frac"], mean), f"{name}: occupancy of {key}: {row['occupancy_frac']}, not {mean}")
        checked += 1
    expect(checked >= 10, f"{name}: only {checked} rows checked")
    for absent in ("latency", "stages", "idle", "steps", "kernels_topk"):
        expect(not report[absent], f"{name}: {absent} of kernels without a place in time")


FLOP_FILE = """==PROF== Connected to process 9 (a.out)
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",{names}
"","","","","","","","","","","",{units}
"0","9","a.out","host","gemm","1","7","(128, 1, 1)","(132, 1, 1)","0","9.0",{values}
"""
# name, unit, text, its number in the base unit
FLOP_METRICS = [("gpu__time_duration.sum", "usecond", "50.25", 50250.0),
                ("dram__bytes_read.sum", "Mbyte", "40.5", 40.5e6), ("dram__bytes_write.sum", "Kbyte", "500", 500e3),
                ("device__attribute_display_name", "", "NVIDIA H200", None),
                ("sm__ops_path_tensor_src_bf16_dst_fp32.sum", "", "20,000,000,000", 20e9),
                ("sm__inst_executed_pipe_tensor.sum", "inst", "1,024", 1024.0)]
FLOP_METRICS += [(f"sm__sass_thread_inst_executed_op_{width}{kind}_pred_on.sum", "inst", f"{n},000", n * 1e3)
                 for n, (width, kind) in enumerate([(w, k) for w in "fhd" for k in ("add", "mul", "fma")], 1)]


def counted_roofline(binary):
    """Intensity of the roofline's CSV from counted FLOPs and bytes."""
    quoted = [",".join(f'"{metric[i]}"' for metric in FLOP_METRICS) for i in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "ncu.csv"
        path.write_text(FLOP_FILE.format(names=quoted[0], units=quoted[1], values=quoted[2]))
        done = subprocess.run([binary, "analyze", path, "--format", "csv", "-o", f"{folder}/out"], capture_output=True,
                              text=True)
        if not expect(done.returncode == 0, f"roofline: exit code {done.returncode}\n{done.stderr}"):
            return
        with open(f"{folder}/out/roofline.csv", newline="") as file:
            rows = list(csv.DictReader(file))
    by_name = {name: number for name, _, _, number in FLOP_METRICS}
    flops = by_name["sm__ops_path_tensor_src_bf16_dst_fp32.sum"]
    for width in "fhd":
        for kind, weight in (("add", 1), ("mul", 1), ("fma", 2)):
            flops += weight * by_name[f"sm__sass_thread_inst_executed_op_{width}{kind}_pred_on.sum"]
    expect(len(rows) == 1, f"roofline: {len(rows)} rows")
    for name, expected in (("flops", flops), ("bytes", 41e6), ("intensity", flops / 41e6),
                           ("tflops", flops / 50250 / 1e3), ("gbs", 41e6 / 50250), ("ridge", 989.4e12 / 4.8e12)):
        tolerance = 2e-3 if name == "ridge" else 1e-9
        expect(math.isclose(float(rows[0][name]), expected, rel_tol=tolerance),
               f"roofline: {name} is {rows[0][name]}, expected {expected}")
    expect((rows[0]["dtype"], rows[0]["bound"]) == ("bf16", "compute"), f"roofline: {rows[0]['dtype']}, {rows[0]['bound']}")


def recorded_beside(binary):
    """Calls and durations that a recording beside has of the same kernels, against its own events."""
    trace = "kineto_llama-3.1-8b_unlabelled.json.gz"
    done = subprocess.run([binary, "analyze", INPUTS / trace, INPUTS / "ncu_raw_decode.csv.gz", "--json"],
                          capture_output=True, text=True)
    if not expect(done.returncode == 0, f"beside: exit code {done.returncode}\n{done.stderr}"):
        return
    report = json.loads(done.stdout)
    events = {}
    for event in json.load(gzip.open(INPUTS / trace))["traceEvents"]:
        if event.get("cat") == "kernel":
            sizes = tuple("x".join(map(str, event["args"][what])) for what in ("grid", "block"))
            events.setdefault((event["name"], *sizes), []).append(event["dur"])
    exact = unmatched = 0
    for row in report["profiled_kernels"]:
        durations = events.get((row["name"], row["grid"], row["block"]))
        unmatched += row["recorded_calls"] is None
        if durations is None:
            continue
        exact += 1
        expect(row["recorded_calls"] == len(durations), f"beside: {row['recorded_calls']} calls of {row['name']}")
        expect(close(row["recorded_us"], sum(durations) / len(durations)), f"beside: {row['recorded_us']} us of {row['name']}")
    expect(exact >= 5, f"beside: only {exact} kernels with the same name")
    said = [row["why"] for row in report["cannot_tell"] if "profiled kernels" in row["question"]]
    counts = [int(n) for n in re.findall(r"[0-9]+", said[0])] if said else []
    expect(bool(said) == (unmatched > 0) and (not said or counts[0] == len(report["profiled_kernels"])) and
           sum(counts[1:]) == unmatched, f"beside: {unmatched} without a match, said: {said}")
    expect(report["latency"] and report["stages"], "beside: what the recording says by itself is missing")
    print(f"beside a recording: {len(report['profiled_kernels']) - unmatched} kernels matched, {unmatched} not")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    for name, kernels_least, numbers_least in (("ncu_raw_decode.csv.gz", 456, 100_000),
                                               ("ncu_details_prefill.csv.gz", 12, 900)):
        same_report(binary, name, compare(binary, name, kernels_least, numbers_least))
    counted_roofline(binary)
    recorded_beside(binary)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
