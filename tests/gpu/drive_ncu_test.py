#!/usr/bin/env python3
"""`llmprof run --with ncu` on a GPU: counters of the hot kernels of a recording of a small PyTorch program.

    python3 tests/gpu/drive_ncu_test.py [--state drive_ncu.json]

The program is recorded, then run under ncu with `--hot`. The kernels that ncu profiled must be those that the command line
names and kernels of the recording, every hot kernel must be among them, and each value of the report must be the mean of
what ncu's own table has, which is read here with Python's csv module. Takes about a minute.
"""
import collections
import csv
import json
import math
import pathlib
import re
import shlex
import shutil
import sys
import tempfile

import harness

KERNELS = 3
PROGRAM = [str(harness.ROOT / "tests/gpu/diff_target.py"), "--mode", "eager", "--steps", "30", "--requests", "2"]
TENSOR = re.compile(r"sm__ops_path_tensor_src_(?!u?int)(?!.*sparsity)\w+\.sum$")
NEAR = 1e-6  # of sums in another order


def function_of(name):
    """A kernel's function without return type, namespaces, template arguments and parameters."""
    depth, kept = 0, ""
    for c in name.replace("(anonymous namespace)", "").replace("<unnamed>", ""):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            break
        kept += c if depth == 0 and c != ">" else ""
    return re.split(r"[ :]", kept)[-1]


def number(text):
    return float(text.replace(",", "")) if text else None


def read_table(path):
    """{(name, grid, block): [row]} of ncu's raw page, and the metrics' units."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if line.startswith('"')))
    groups = collections.defaultdict(list)
    for row in rows[1:]:
        size = lambda column: row[column].strip("()").replace(", ", "x")
        groups[row["Kernel Name"], size("Grid Size"), size("Block Size")].append(row)
    return groups, rows[0]


def figures(rows):
    """What the report must say of calls of one kernel, by ncu's table alone."""
    mean = lambda name: sum(number(row[name]) for row in rows) / len(rows)
    times = [number(row["gpu__time_duration.sum"]) for row in rows]
    warps = [number(row["sm__warps_active.avg.pct_of_peak_sustained_active"]) for row in rows]
    out = {"calls": len(rows), "duration_us": sum(times) / len(times) / 1e3, "dram_read_bytes": mean("dram__bytes_read.sum"),
           "dram_write_bytes": mean("dram__bytes_write.sum"),
           "occupancy_frac": sum(time * percent for time, percent in zip(times, warps)) / sum(times) / 100}
    op = lambda kind: mean(f"sm__sass_thread_inst_executed_op_{kind}_pred_on.sum")
    out["fp32_flops"] = op("fadd") + op("fmul") + 2 * op("ffma")
    paths = [name for name in rows[0] if name and TENSOR.match(name)]
    whole = [name for name in paths if "_dst_" not in name]
    sources = {re.match(r"sm__ops_path_tensor_src_(\w+)\.sum", name)[1] for name in whole}
    paths = [name for name in paths if name in whole or re.search(r"src_(\w+?)_dst_", name)[1] not in sources]
    if any(mean(name) > 0 for name in paths):
        out["tensor_flops"] = sum(mean(name) for name in paths)
    return out


def compare(report, groups):
    """Values that differ, and how many were compared."""
    problems, compared = [], 0
    rows = {(row["name"], row["grid"], row["block"]): row for row in report["profiled_kernels"]}
    if set(rows) != set(groups):
        return [f"kernels differ: {len(rows)} rows in the report, {len(groups)} in ncu's table"], 0
    for key, calls in groups.items():
        for name, value in figures(calls).items():
            found = rows[key][name]
            compared += 1
            if found is None or not math.isclose(found, value, rel_tol=NEAR, abs_tol=1e-9):
                problems.append(f"{key[0][:60]} {name}: {found} in the report, {value} by ncu")
    return problems, compared


def test(args, folder):
    program = [args.python, *PROGRAM]
    record = [args.llmprof, "run", "--counters", "off", "--no-report", "-q", "-o", str(folder / "recorded"), "--", *program]
    recorded = harness.execute(record, args.timeout)
    if recorded.failure():
        return {"error": "recording: " + recorded.failure()}
    words = [args.llmprof, "run", "--with", "ncu", "--hot", str(folder / "recorded"), "--kernels", str(KERNELS), "--budget-s", "60",
             "--report", str(folder / "report.json"), "-o", str(folder / "ncu"), "--", *program]
    profiled = harness.execute(words, args.timeout)
    if profiled.failure() or not (folder / "report.json").exists():
        return {"error": f"{profiled.failure() or 'no report'}: {profiled.stderr[-1500:]}"}
    report = json.loads((folder / "report.json").read_text())
    line = shlex.split((folder / "ncu/command.txt").read_text())
    option = lambda name: line[line.index(name) + 1] if name in line else None
    wanted = re.compile(option("--kernel-name").removeprefix("regex:"))
    groups, units = read_table(folder / "ncu/ncu.csv")
    problems, compared = compare(report, groups)
    names = {function_of(row["name"]) for row in report["profiled_kernels"]}
    problems += [f"{name} was not asked for" for name in names if not wanted.search(name)]
    hot = option("--kernel-name").removeprefix("regex:^(").removesuffix(")$").split("|")
    caught = collections.Counter(function_of(key[0]) for key, calls in groups.items() for _ in calls)
    problems += [f"{name} was not caught" for name in hot if caught[name.replace("\\", "")] == 0]
    in_recording = {function_of(row["name"]) for row in report["kernels_topk"]}
    problems += [f"{name} is no kernel of the recording" for name in names if name not in in_recording]
    joined = [row for row in report["profiled_kernels"] if row["recorded_us"] is not None]
    # Names that both recorders write alike have no template arguments: those must be joined.
    plain = [row["name"] for row in report["profiled_kernels"] if "<" not in row["name"] and row["recorded_us"] is None]
    problems += [f"{name} is not joined with the recording" for name in plain]
    if not joined:
        problems.append("no profiled kernel is joined with the recording")
    if units.get("gpu__time_duration.sum") != "ns":
        problems.append(f"expected ns, found {units.get('gpu__time_duration.sum')!r}")
    passes = next(iter(groups.values()))[0].get("profiler__replayer_passes")
    return {"seconds": {"recording": round(recorded.seconds, 1), "ncu": round(profiled.seconds, 1)}, "hot": hot,
            "launch_skip": option("--launch-skip"), "launch_count": option("--launch-count"), "passes": passes,
            "launches": sum(caught.values()), "caught": dict(caught), "rows": len(groups), "joined": len(joined), "values_compared": compared,
            "said": [text for text in profiled.stderr.splitlines() if "notice" in text][:5],
            "program_ended": profiled.result is not None, "problems": problems[:10]}


def main():
    parser = harness.arguments(__doc__, "drive_ncu_results.json")
    args = parser.parse_args()
    state = harness.State(args.state, args.fresh)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="llmprof-gpu-test-"))
    try:
        result = test(args, folder)
    except (OSError, ValueError, KeyError, StopIteration, IndexError) as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    finally:
        if args.keep:
            shutil.copytree(folder, pathlib.Path(args.keep) / "drive_ncu", dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    passed = "error" not in result and not result["problems"]
    state.save(machine=harness.machine(args.python), summary={"passed": passed, **result})
    harness.write_summary(args, state)
    print(json.dumps({"passed": passed, **result}, indent=1))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
