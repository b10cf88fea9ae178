#!/usr/bin/env python3
"""The log of NCCL against the same text read here with regular expressions, and against what the script that made it meant.

Every rank, connection, collective, choice and warning of the report must be what the lines say. Then the log is given in other forms: one file
for each process, lines in another order where the order says nothing, behind what a launcher puts before each line, with times.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

INPUTS = pathlib.Path(__file__).resolve().parent / "inputs"
SIZES = {"7": ("fp32", 4), "9": ("bf16", 2)}
TABLES = ("nccl_ranks", "nccl_links", "nccl_collectives", "nccl_choices", "nccl_warnings")

problems = []


def expect(condition, text):
    if not condition and len(problems) < 20:
        problems.append(text)
    return condition


def report_of(binary, *files):
    done = subprocess.run([binary, "analyze", *map(str, files), "--json"], capture_output=True, text=True, timeout=120)
    expect(done.returncode == 0, f"{files}: exit {done.returncode}: {done.stderr}")
    return json.loads(done.stdout) if done.stdout else {}


def tables_of(report):
    return {name: report.get(name, []) for name in TABLES}


def check_rows(report, text):
    ids = dict(re.findall(r"comm (0x\w+) rank .* commId (0x\w+) - Init COMPLETE", text))
    for address, parent, child, color in re.findall(r"comm (0x\w+) rank .* parent (0x\w+) childCount (\d+) color (\d+) .*- Init COMPLETE", text):
        ids[address] = f"{ids[parent]}/{child}/{color}"
    ranks = {(ids[address], int(rank)): (host, int(process), int(ranks), int(device), bus) for host, process, address, rank, ranks, device, bus in
             re.findall(r"^(\S+?):(\d+):\d+ .* comm (0x\w+) rank (\d+) nranks (\d+) cudaDev (\d+) .*busId (\w+) .*Init COMPLETE$", text, re.M)}
    found = {(row["communicator"], row["rank"]): (row["host"], row["process_id"], row["ranks"], row["device"], row["bus_id"])
             for row in report["nccl_ranks"]}
    expect(found == ranks and len(ranks) == 6, f"ranks: {found}, {ranks}")
    expect(all(row["version"] == "2.27.5+cuda12.9" for row in report["nccl_ranks"]), "version")
    expect(sorted(str(row["channels"]) for row in report["nccl_ranks"]) == ["4"] * 4 + ["None"] * 2, "channels")

    calls = collections.defaultdict(list)
    for operation, count, dtype, address in re.findall(r"NCCL INFO (\w+): opCount .* count (\d+) datatype (\d+) .* comm (0x\w+) \[", text):
        name, size = SIZES[dtype]
        calls[ids[address], operation, name].append(int(count) * size)
    found = {(row["communicator"], row["operation"], row["dtype"]): (row["calls"], row["bytes"], row["bytes_min"], row["bytes_max"])
             for row in report["nccl_collectives"]}
    expect(found == {key: (len(sizes), sum(sizes), min(sizes), max(sizes)) for key, sizes in calls.items()}, f"collectives: {found}")
    expect([row["ranks_logged"] for row in report["nccl_collectives"]] == [4, 2], "ranks that logged calls")

    taken = collections.defaultdict(list)
    for operation, size, algorithm, protocol, low, high in re.findall(
            r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}", text):
        taken[operation, algorithm, protocol].append((int(size), int(high) - int(low) + 1))
    found = {(row["operation"], row["algorithm"], row["protocol"]): (row["calls"], row["bytes_min"], row["bytes_max"], row["channels_most"])
             for row in report["nccl_choices"]}
    expect(found == {key: (len(rows), min(rows)[0], max(rows)[0], max(row[1] for row in rows)) for key, rows in taken.items()}, f"choices: {found}")

    # What the script meant: who is on which host, and how they are connected.
    main, split = "0x56bea185a98d5193", "0x56bea185a98d5193/1/77"
    meant = {(main, a, b, "one", "SHM/direct/direct", 4) for a, b in ((0, 1), (1, 0))}
    meant |= {(main, a, b, "one", "P2P/CUMEM/read", 4) for a, b in ((2, 3), (3, 2))}
    meant |= {(main, a, b, "two", f"NET/IB/{card}/GDRDMA", 2) for a, b in ((1, 2), (3, 0)) for card in (0, 1)}
    meant |= {(split, a, b, "two", "NET/Socket/0", 1) for a, b in ((0, 1), (1, 0))}
    found = {(row["communicator"], row["from_rank"], row["to_rank"], row["hosts"], row["path"], row["channels"]) for row in report["nccl_links"]}
    expect(found == meant and len(found) == len(report["nccl_links"]), f"links: {sorted(found ^ meant)}")
    expect(all(row["transport"] == row["path"].split("/")[0] for row in report["nccl_links"]), "transports")

    warnings = collections.Counter(re.findall(r"(\S+?):\d+:\d+ \[\d\] (\S+) \(\w+\) NCCL WARN (.*)", text))
    found = {(row["host"], row["place"], row["text"]): row["count"] for row in report["nccl_warnings"]}
    expect(found == warnings and sum(found.values()) == 2, f"warnings: {found}")
    expect([(row["key"], row["count"]) for row in report["diagnostics"]] == [("cut-record", 1)], f"{report['diagnostics']}")
    print(", ".join(f"{len(report[name])} {name}" for name in TABLES))


def check_forms(binary, folder, text, wanted):
    lines = text.splitlines()

    def same(name, changed):
        file = folder / f"{name}.log"
        file.write_text("\n".join(changed) + "\n")
        expect(tables_of(report_of(binary, file)) == wanted, f"{name}: other rows")

    same("launcher", [f"(Worker_TP0 pid=4100) {line}" if "NCCL" in line else line for line in lines])
    same("openmpi", [f"[1,0]<stdout>:{line}" if "NCCL" in line else line for line in lines])
    same("times", [f"[2026-11-24 09:13:41] {line}" if "NCCL INFO" in line else line for line in lines])
    same("crlf", [line + "\r" for line in lines])
    same("no_start", [line for line in lines if not line.endswith("Init START")])
    connections = [line for line in lines if " via " in line]
    others = [line for line in lines if " via " not in line]
    random.Random(3).shuffle(connections)
    first = next(number for number, line in enumerate(others) if "ncclCommSplit" in line)
    same("shuffled", others[:first] + [line for line in connections if "Socket" not in line] + others[first:] +
         [line for line in connections if "Socket" in line])
    early = [line for line in connections if "Socket" not in line]
    same("connected_before", early + [line for line in lines if line not in early and not line.endswith("Init START")])
    same("old_numbers", [line.replace("Algo TREE proto LL ", "Algo 0 proto 0 ").replace("Algo RING proto SIMPLE", "Algo 1 proto 2") for line in lines])
    # One file for each process (NCCL_DEBUG_FILE), in any order; what rank 0 alone prints, its version, is known of its process only.
    files = []
    for process in ("4100", "4101", "5200", "5201"):
        files.append(folder / f"nccl.{process}.log")
        files[-1].write_text("\n".join(line for line in lines if f":{process}:" in line) + "\n")
    joined = tables_of(report_of(binary, *files))
    expect([row["version"] for row in joined["nccl_ranks"] if row["process_id"] != 4100] == [None] * 4, "the version of other processes")
    for row in joined["nccl_ranks"]:
        row["version"] = "2.27.5+cuda12.9"
    expect(joined == wanted, f"files of processes: {[name for name in TABLES if joined[name] != wanted[name]]}")
    print("9 other forms")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    text = (INPUTS / "nccl_job.log").read_text()
    report = report_of(binary, INPUTS / "nccl_job.log")
    check_rows(report, text)
    with tempfile.TemporaryDirectory() as folder:
        check_forms(binary, pathlib.Path(folder), text, tables_of(report))
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


main()
