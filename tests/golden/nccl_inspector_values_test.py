#!/usr/bin/env python3
"""What NCCL's Inspector writes, against the same files read here with json and statistics.

Every group of operations in the report must be what the lines say. Then files are given in other forms: each alone, in another order, in the form of
another version, with lines that are broken, cut or of other kinds.
"""

import argparse
import collections
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from report_checks import expect, near, problems, report_of

INPUTS = pathlib.Path(__file__).resolve().parent / "inputs"
OLDER, NEWER = INPUTS / "nccl_inspector_4100.json", INPUTS / "nccl_inspector_4101.json"


def keys(report):
    return {row["key"]: row["count"] for row in report["diagnostics"]}


def questions(report):
    return " ".join(row["question"] for row in report["cannot_tell"])


def groups_of(*files):
    groups = collections.defaultdict(list)
    for file in files:
        header = None
        for text in file.read_text().splitlines():
            line = json.loads(text)
            header = line.get("header", header)
            for kind in ("coll", "p2p"):
                one = line.get(f"{kind}_perf")
                if one:
                    key = (header["id"], one[kind], one.get("coll_algo"), one.get("coll_proto"), one[f"{kind}_timing_source"], one[f"{kind}_msg_size_bytes"])
                    groups[key].append((header, [one[f"{kind}_{name}"] for name in ("exec_time_us", "algobw_gbs", "busbw_gbs")]))
    return groups


def check(report, *files):
    groups = groups_of(*files)
    found = {(row["communicator"], row["operation"], row["algorithm"], row["protocol"], row["timing"], row["bytes"]): row
             for row in report["nccl_operations"]}
    expect(set(found) == set(groups) and len(found) == len(report["nccl_operations"]), f"groups: {sorted(map(str, set(found) ^ set(groups)))}")
    for key, rows in groups.items():
        row = found.get(key, {})
        us, algorithm, bus = (list(values) for values in zip(*(values for _, values in rows)))
        header = rows[0][0]
        expect((row["name"], row["ranks"], row["nodes"]) == (header.get("comm_name"), header["n_ranks"], header["nnodes"]), f"{key}: {row}")
        expect((row["operations"], row["ranks_logged"]) == (len(rows), len({one["rank"] for one, _ in rows})), f"{key}: {row}")
        for name, value in (("total_ms", sum(us) / 1e3), ("median_us", statistics.median(us)), ("most_us", max(us)),
                            ("algorithm_gbs", statistics.median(algorithm)), ("bus_gbs", statistics.median(bus)), ("bus_least_gbs", min(bus))):
            expect(near(row[name], value), f"{key}, {name}: {row[name]}, {value}")
        if len(us) > 1:
            expect(near(row["p99_us"], statistics.quantiles(us, n=100, method="inclusive")[98]), f"{key}: p99")
        # Rates by definition (NCCL's tests), from size and time.
        traffic = key[5] * (header["n_ranks"] if key[1] in ("AllGather", "ReduceScatter") else 1)
        wrong = sum(abs(rate - traffic / 1e3 / time) > 1e-3 * rate + 1e-6 for time, rate in zip(us, algorithm))
        expect((row["checked"], row["disagreeing"]) == (len(us), wrong), f"{key}: {row['checked']}, {row['disagreeing']}, {wrong}")
    expect([row["total_ms"] for row in report["nccl_operations"]] == sorted((row["total_ms"] for row in report["nccl_operations"]), reverse=True), "order")
    print(f"{sum(map(len, groups.values()))} operations in {len(groups)} groups")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    report = report_of(binary, OLDER, NEWER)
    check(report, OLDER, NEWER)
    expect(keys(report) == {"figure-disagrees": 1}, f"{report['diagnostics']}")
    expect("What did 14 more operations" in questions(report), questions(report))
    for file in (OLDER, NEWER):
        check(report_of(binary, file), file)
    expect(report_of(binary, NEWER, OLDER)["nccl_operations"] == report["nccl_operations"], "another order of files")
    expect("more operations" not in questions(report_of(binary, OLDER)), "nothing was lost")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def write(name, lines, end="\n"):
            file = folder / f"{name}.json"
            file.write_text("\n".join(lines) + end)
            return file

        # Format 4.2: statistics, and a header in each line too.
        lines, last = [], {}
        for text in NEWER.read_text().splitlines():
            line = json.loads(text)
            last = {key: line[key] for key in ("header", "metadata")} if "header" in line else last
            lines.append(json.dumps({**last, **line}))
        expect(report_of(binary, write("v4.2", lines))["nccl_operations"] == report_of(binary, NEWER)["nccl_operations"], "format 4.2")
        lines = OLDER.read_text().splitlines()
        bad = list(lines)
        bad[3], bad[5], bad[7] = bad[3][:60], "[1]", "{}"
        bad[9] = json.dumps({**json.loads(bad[9]), "coll_perf": {"coll": "AllReduce", "coll_msg_size_bytes": "x", "coll_exec_time_us": -1}})
        got = report_of(binary, write("bad", bad))
        expect(sum(row["operations"] for row in got["nccl_operations"]) == 116, "a bad line costs itself")
        expect(keys(got) == {"malformed-event": 2, "missing-field": 2, "bad-number": 2}, f"bad lines: {keys(got)}")
        got = report_of(binary, write("cut", lines[:9] + [lines[9][:-40]], ""), code=3)
        expect(sum(row["operations"] for row in got["nccl_operations"]) == 9 and keys(got).get("truncated-file") == 1, f"cut: {keys(got)}")
        orphans = [text for text in NEWER.read_text().splitlines() if "header" not in text]
        file = write("orphans", orphans)
        done = subprocess.run([binary, "analyze", str(file)], capture_output=True, text=True, timeout=120)
        expect(done.returncode == 1 and "Inspector" in done.stderr, f"lines without a header: {done.returncode} {done.stderr}")
    print("5 other forms")
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


main()
