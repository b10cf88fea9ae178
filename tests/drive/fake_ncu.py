#!/usr/bin/env python3
"""Stands in for Nsight Compute on PATH: takes the options that its manual documents, refuses all others, runs the program
and writes a table of the launches that the filters let pass.

Its behaviour: FAKE_NCU = profiles (default), permission (no counters for this user), hangs (the program never ends), busy.
The launches are those of FAKE_NCU_TABLE, a CSV of the raw page (as ncu 2025.3 wrote it), or FAKE_NCU_KERNELS, names in
order with "x" and a count between. What it was called with is written to FAKE_NCU_CALL as JSON.
"""
import csv
import gzip
import json
import os
import re
import subprocess
import sys

# Of the Nsight Compute CLI's manual: option, and the values that it takes (None: any one value; (): no value).
OPTIONS = {
    "--target-processes": {"all", "application-only"},
    "--clock-control": {"none", "base"},
    "--cache-control": {"none", "all"},
    "--csv": (),
    "--page": {"raw", "details", "source", "session"},
    "--print-units": {"auto", "base"},
    "--log-file": None,
    "--metrics": None,
    "--nvtx": (),
    "--nvtx-include": None,
    "--kernel-name-base": {"function", "demangled", "mangled"},
    "--kernel-name": None,
    "--launch-skip": re.compile(r"\d+$"),
    "--launch-count": re.compile(r"\d+$"),
}


def parse(words):
    options, at = {}, 0
    while at < len(words) and words[at].startswith("-"):
        name = words[at]
        if name not in OPTIONS:
            sys.exit(f"==ERROR== unrecognised option '{name}'. Use --help for further details.")
        if name in options:
            sys.exit(f"==ERROR== option '{name}' cannot be specified more than once")
        kind = OPTIONS[name]
        at += 1
        if kind == ():
            options[name] = True
            continue
        if at == len(words):
            sys.exit(f"==ERROR== the required argument for option '{name}' is missing")
        value = words[at]
        if (isinstance(kind, set) and value not in kind) or (isinstance(kind, re.Pattern) and not kind.match(value)):
            sys.exit(f"==ERROR== the argument ('{value}') for option '{name}' is invalid")
        options[name] = value
        at += 1
    if at == len(words):
        sys.exit("==ERROR== no target application")
    return options, words[at:]


def function_of(name):
    """The function's name without return type, namespaces, template arguments and parameters, as the manual defines it."""
    depth, kept = 0, ""
    name = name.replace("(anonymous namespace)", "").replace("<unnamed>", "")
    for c in name:
        if c == "<":
            depth += 1
        elif c == ">":
            depth -= 1
        elif c == "(" and depth == 0:
            break
        elif depth == 0:
            kept += c
    return re.split(r"[ :]", kept)[-1]


def table():
    """Names, units and rows: those of the recorded CSV, or made up."""
    if path := os.environ.get("FAKE_NCU_TABLE"):
        lines = gzip.open(path, "rt", encoding="utf-8").read().split("\n")
        first = next(i for i, line in enumerate(lines) if line.startswith('"ID","Process ID"'))
        rows = [row for row in csv.reader(lines[first:]) if row]
        launches = rows[2:] * 40  # of two decode steps: the program goes on
        return rows[0], rows[1], [[str(number), *row[1:]] for number, row in enumerate(launches)]
    metrics = {"gpu__time_duration.sum": ("ns", "1500"), "dram__bytes_read.sum": ("byte", "4096"),
               "dram__bytes_write.sum": ("byte", "1024"), "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "42.5")}
    names = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device",
             "CC", *metrics]
    units = [""] * 11 + [unit for unit, _ in metrics.values()]
    rows = []
    for word in os.environ["FAKE_NCU_KERNELS"].split(";"):
        kernel, count = word.rsplit("x", 1)
        for _ in range(int(count)):
            rows.append([str(len(rows)), "7", "python3", "host", kernel, "1", "7", "(128, 1, 1)", "(8, 1, 1)", "0", "9.0",
                         *(value for _, value in metrics.values())])
    return names, units, rows


def main():
    options, command = parse(sys.argv[1:])
    seen = {"options": options, "command": command,
            "injected": [f"{name}={value}" for name, value in os.environ.items()
                         if "llmprof_inject" in value or name.startswith("LLMPROF_SESSION")]}
    if path := os.environ.get("FAKE_NCU_CALL"):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(seen, file)
    behaviour = os.environ.get("FAKE_NCU", "profiles")
    log = open(options["--log-file"], "w", encoding="utf-8")
    print("==WARNING== Note: Running with unmodified GPU clocks. If not controlled otherwise, profiling results may be "
          "inconsistent.", file=log)
    child = subprocess.Popen(command)
    print(f"==PROF== Connected to process {child.pid} ({command[0]})", file=log, flush=True)
    code = child.wait()
    print(f"==PROF== Disconnected from process {child.pid}", file=log)
    if behaviour == "permission":
        print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
              "target device 0. For instructions on enabling permissions and to get more information see "
              "https://developer.nvidia.com/ERR_NVGPUCTRPERM", file=log)
        return 1
    if behaviour == "busy":
        print("==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM) is "
              "concurrently collecting profiling data.", file=log)
        return 1
    names, units, rows = table()
    if expression := options.get("--kernel-name"):
        kernel = names.index("Kernel Name")
        assert options.get("--kernel-name-base", "function") == "function"
        if expression.startswith("regex:"):
            wanted = re.compile(expression[len("regex:"):])
            rows = [row for row in rows if wanted.search(function_of(row[kernel]))]
        else:
            rows = [row for row in rows if function_of(row[kernel]) == expression]
    skip, count = int(options.get("--launch-skip", 0)), int(options.get("--launch-count", 0)) or len(rows)
    rows = rows[skip:skip + count]
    if not rows:
        print("==WARNING== No kernels were profiled.", file=log)
        return code
    writer = csv.writer(log, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for row in (names, units, *rows):
        writer.writerow(row)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
