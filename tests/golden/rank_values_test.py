#!/usr/bin/env python3
"""Joined recordings of ranks, against the simulated jobs that wrote them.

Waits, wires, rates, late ranks and differences of clocks must be what the job had; no rank's own figures may change by being joined; what is no set of
ranks of one job must be refused, with the file that does not fit.
"""

import argparse
import collections
import gzip
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

import nsys_recordings
from rank_recordings import ELEMENT_BYTES, KERNEL, NCCL_TYPE, Job
from report_checks import expect, near, problems

BINARY = ""


def run(*files, code=0):
    done = subprocess.run([BINARY, "analyze", *map(str, files), "--json", "--top", "0"], capture_output=True, text=True, timeout=240)
    expect(done.returncode == code, f"{[file.name for file in files]}: exit {done.returncode}: {done.stderr}")
    return (json.loads(done.stdout) if done.stdout else collections.defaultdict(list)), done.stderr


def factor(name, ranks):
    """Of nccl-tests: what a link carries of a byte."""
    return {"allreduce": 2 * (ranks - 1) / ranks, "_allgather_base": (ranks - 1) / ranks, "_reduce_scatter_base": (ranks - 1) / ranks}.get(name, 1)


def size(one):
    """Of nccl-tests: all-gather counts what is there in the end."""
    return one.elements * ELEMENT_BYTES[one.dtype] * (len(one.ranks) if one.name == "_allgather_base" else 1)


def bounds(job, given, matched):
    """Least and most that has to be added to a rank's clock to have that of the first, by relaxing every inequality until nothing changes."""
    local = lambda rank, ns: ns - job.offsets.get(rank, 0)
    edges = collections.defaultdict(lambda: None)  # (a, b): offset of a is at most that of b plus this
    for one in job.collectives:
        ranks = [rank for rank in given if rank in one.seen]
        for a in ranks:
            for b in ranks:
                # A receiver needs the sender, and not the other way round; of a broadcast the recording does not say whose it is.
                if a != b and one.root is None and (one.name != "send" or (a, b) == one.ranks):
                    most = local(b, one.ends[b]) - local(a, one.starts[a])
                    edges[a, b] = most if edges[a, b] is None else min(edges[a, b], most)
    def furthest(forwards):
        out = {given[0]: 0}
        while True:
            before = dict(out)
            for (a, b), most in edges.items():
                to, from_ = (a, b) if forwards else (b, a)
                if from_ in out:
                    out[to] = min(out.get(to, out[from_] + most), out[from_] + most)
            if out == before:
                return out
    most, least = furthest(True), furthest(False)
    return {rank: (-least[rank] if rank in least else None, most.get(rank)) for rank in given}


def check(what, job, report, given=None):
    given = list(given if given is not None else range(job.size))
    whole = [one for one in job.collectives if len([rank for rank in given if rank in one.ranks]) > 1
             and all(rank in one.seen for rank in given if rank in one.ranks)]
    rows = {row["rank"]: row for row in report["ranks"]}
    if not expect(list(rows) == given and len(rows) == len(report["ranks"]), f"{what}: ranks {list(rows)}"):
        return
    expect(report["source"]["recording"] == rows[given[0]]["file"] and report["source"]["recording"] in report["source"]["files"],
           f"{what}: on the clock of {report['source']}")
    limits = bounds(job, given, whole)
    for number, rank in enumerate(given):
        row = rows[rank]
        expect((row["device"], row["recorded_device"], row["world_size"]) == (number, job.local_device(rank), job.size), f"{what}: {row}")
        expect(row["file"].endswith(f"rank{rank}.json.gz") and row["host"] == job.hosts.get(rank), f"{what}: {row['file']}, {row['host']}")
        own = [one for one in job.collectives if rank in one.seen]
        joined = [one for one in whole if rank in one.ranks and one.root is None]
        here = lambda one: [other for other in one.ranks if other in given]
        last = lambda one: max(one.starts[other] for other in here(one))
        waiting = sum(last(one) - one.starts[rank] for one in joined)
        late = []
        for one in joined:
            others = [one.starts[other] for other in here(one) if other != rank]
            if one.starts[rank] > max(others):
                late.append(one.starts[rank] - max(others))
        for name, value in (("collectives", len(own)), ("joined", len(joined)), ("last", len(late)), ("late_ms", sum(late) / 1e6),
                            ("collectives_ms", sum(one.ends[rank] - one.starts[rank] for one in own) / 1e6), ("waiting_ms", waiting / 1e6),
                            ("wire_ms", sum(one.ends[rank] - last(one) for one in joined) / 1e6)):
            expect(near(row[name], value), f"{what}: rank {rank}, {name}: {row[name]}, {value}")
        # Clocks: what was planted, exactly, as all ends are one; within the bounds, which are those that the inequalities give.
        planted = (job.offsets.get(rank, 0) - job.offsets.get(given[0], 0)) / 1e3
        if job.hosts:  # ranks of a host bound each other's clock together
            low, high = row["offset_low_us"] * 1e3, row["offset_high_us"] * 1e3
            expect(low <= planted * 1e3 <= high, f"{what}: rank {rank}: {low} to {high}")
        else:
            low, high = limits[rank]
            for name, limit in (("offset_low_us", low), ("offset_high_us", high)):
                expect(row[name] is None if limit is None else near(row[name], limit / 1e3), f"{what}: rank {rank}: {name} {row[name]}, not of {limit} ns")
        expect(near(row["offset_us"], planted) or abs(row["offset_us"] - planted) < job.spread_ns / 1e3, f"{what}: rank {rank}: offset {row['offset_us']}, {planted}")
        expect(near(row["shift_us"], row["offset_us"] if (low or 0) > 0 or (high or 0) < 0 else 0), f"{what}: rank {rank}: shift {row['shift_us']} of {planted}")
        if rank == given[0]:
            continue
        file = next(one for one in report["joined_files"] if one["file"] == row["file"])
        expect(file["joined_by"] == "order of collectives", f"{what}: {file}")
        expect((file["records"], file["matched"], file["not_matched"]) == (len(own), len(joined), len(own) - len(joined)), f"{what}: {file}")
        expect((file["why"] is None) == (len(own) == len(joined)), f"{what}: {file}")
        expect(near(file["offset_s"], row["shift_us"] / 1e6), f"{what}: {file}")
        bound = None if low is None or high is None else max(abs(low / 1e9 - file["offset_s"]), abs(high / 1e9 - file["offset_s"]))
        expect(file["offset_bound_s"] is None if bound is None else near(file["offset_bound_s"], bound), f"{what}: {file}, bound {bound}")
    expect(len(report.get("joined_files", [])) == len(given) - 1, f"{what}: {report.get('joined_files')}")
    check_kinds(what, job, report, given, whole)


def check_kinds(what, job, report, given, whole):
    kinds = collections.defaultdict(list)
    for one in job.collectives:
        kernel = f"ncclDevKernel_{KERNEL[one.name]}_{NCCL_TYPE[one.dtype]}_RING_LL"
        kinds[(None if job.graphs else str(list(one.ranks)), kernel if job.graphs else one.name, None if job.graphs else one.dtype,
               None if job.graphs else size(one))].append(one)
    found = {(row["members"], row["name"], row["dtype"], row["bytes"]): row for row in report["joined_collectives"]}
    kinds = {key: ones for key, ones in kinds.items() if any(rank in given for one in ones for rank in one.seen)}
    expect(set(found) == set(kinds) and len(found) == len(report["joined_collectives"]), f"{what}: {sorted(map(str, set(found) ^ set(kinds)))}")
    for key, ones in kinds.items():
        row = found.get(key)
        if row is None:
            continue
        joined = [one for one in ones if one in whole]
        here = lambda one: [rank for rank in one.ranks if rank in given]
        last = lambda one: max(one.starts[rank] for rank in here(one))
        calls = sum(rank in one.seen for one in ones for rank in given)
        expect((row["count"], row["calls"], row["unmatched"]) == (len(joined), calls, calls - sum(len(here(one)) for one in joined)), f"{what}: {key}: {row}")
        if not joined:
            continue
        if joined[0].root is not None:
            met = [one for one in joined if last(one) <= min(one.ends.values()) + 10_000]
            wire = statistics.median(one.end - last(one) for one in met) / 1e3 if 10 * len(met) >= 9 * len(joined) else None
            expect(row["wait_us"] is None and row["last_rank"] is None and row["last_count"] == 0, f"{what}: {key}: waits of a broadcast: {row}")
            expect(row["wire_us"] is None and row["bus_gbs"] is None if wire is None else near(row["wire_us"], wire), f"{what}: {key}: {row}, {wire}")
            continue
        late = collections.defaultdict(list)
        for one in joined:
            order = sorted(here(one), key=lambda rank: one.starts[rank])
            if one.starts[order[-1]] > one.starts[order[-2]]:
                late[order[-1]].append(one.starts[order[-1]] - one.starts[order[-2]])
        values = {"wait_us": statistics.median(last(one) - min(one.starts[rank] for rank in here(one)) for one in joined) / 1e3,
                  "wire_us": statistics.median(one.end - last(one) for one in joined) / 1e3}
        if not job.graphs:
            values["bus_gbs"] = statistics.median(size(one) * factor(one.name, len(one.ranks)) / (one.end - last(one)) for one in joined)
        for name, value in values.items():
            expect(near(row[name], value), f"{what}: {key}: {name} {row[name]}, {value}")
        if late:
            most = max(len(each) for each in late.values())
            expect(row["last_count"] == most and len(late[row["last_rank"]]) == most, f"{what}: {key}: {row['last_rank']} {row['last_count']}, {most}")
            expect(near(row["late_us"], statistics.median(late[row["last_rank"]]) / 1e3), f"{what}: {key}: late {row['late_us']}")
    print(f"{what}: {len(whole)} of {len(job.collectives)} collectives, {len(kinds)} kinds")


OWN_FIGURES = {
    "stages": ("name", "kind", "count", "tokens", "wall_ms", "gpu_busy_ms", "gpu_idle_ms", "not_recorded_ms", "gpu_busy_frac", "kernels", "launches", "flops"),
    "stage_steps": None,
    "kernels_topk": ("name", "category", "stage", "calls", "total_ms", "mean_ms", "min_ms", "p50_ms"),
    "categories": ("category", "stage", "kernels", "time_ms", "share", "wall_share"),
    "idle": ("cause", "stage", "gaps", "total_ms"),
    "idle_sites": None,
    "host": None,
}


def check_alone(what, files, report):
    """No rank's own figures change by being joined."""
    for row in report["ranks"]:
        alone, _ = run(files[row["rank"]])
        expect(not alone.get("ranks"), f"{what}: one recording is no job")
        for table, names in OWN_FIGURES.items():
            def own(rows, device):
                out = []
                for one in rows:
                    if one["device"] == device:
                        out.append(json.dumps({name: one[name] for name in names or one if name != "device"}, sort_keys=True))
                return sorted(out)
            mine, joined = own(alone[table], row["recorded_device"]), own(report[table], row["device"])
            expect(mine == joined and (mine or table != "stages"), f"{what}: rank {row['rank']}, {table}: alone {mine[:2]}, joined {joined[:2]}")


def finding_of(report, name):
    return next((one for one in report["findings"] if one["id"] == name), None)


def right(folder):
    late = {2: 300_000}
    jobs = {
        "two": dict(ranks=2, late={1: 150_000}),
        "four": dict(ranks=4, late=late),
        "eight": dict(ranks=8, late={5: 250_000}, steps=8),
        "unnumbered": dict(ranks=4, late=late, numbered=False),
        "own ordinals": dict(ranks=4, late=late, own_ordinals=True),
        "clocks apart": dict(ranks=4, late=late, offsets={1: 5_000_000, 2: -3_000_000, 3: 700_000}),
        "clocks apart, unnumbered": dict(ranks=4, late=late, offsets={0: 2_000_000, 1: 5_000_000, 3: -900_000}, numbered=False),
        "two hosts": dict(ranks=4, late=late, offsets={2: 4_000_000, 3: 4_000_000}, hosts={0: "a", 1: "a", 2: "b", 3: "b"}),
        "uneven end": dict(ranks=4, late=late, lost={1: 1}),
        "uneven end, unnumbered": dict(ranks=4, late=late, lost={1: 1, 3: 2}, numbered=False),
        "uneven begin, unnumbered": dict(ranks=4, late=late, missed={0: 3, 2: 1}, numbered=False),
        "pipeline": dict(ranks=4, late={3: 100_000}, tensor_parallel=2),
        "pipeline of eight": dict(ranks=8, late={1: 200_000}, tensor_parallel=4, steps=8, numbered=False),
        "graphs": dict(ranks=4, late=late, graphs=True),
        "ends apart": dict(ranks=4, late=late, spread_ns=3_000),
        "early root": dict(ranks=4, late=late, broadcasts=True),
        "early root, unnumbered": dict(ranks=4, late=late, offsets={1: 5_000_000}, broadcasts=True, numbered=False),
        "root with others": dict(ranks=4, late={2: 20_000}, kernel_ns=10_000, layers=1, broadcasts=True),
    }
    for name, how in jobs.items():
        job = Job(**how)
        files = job.write(folder / name.replace(" ", "_").replace(",", ""))
        report, _ = run(*files.values())
        check(name, job, report)
        expect(all(one["ok"] for one in report["conservation"]), f"{name}: conservation")
        if name in ("two", "four", "clocks apart", "pipeline", "uneven begin, unnumbered"):
            check_alone(name, files, report)
        skew = finding_of(report, "rank-skew")
        if "pipeline" not in name and max(job.late.values()) >= 100_000 and expect(skew, f"{name}: no rank-skew"):
            rank = next(iter(job.late))
            expect(f"rank {rank} (rank{rank}.json.gz, GPU {job.local_device(rank)}) is the late one" in skew["advice"][0], f"{name}: {skew['advice'][0]}")
    # Ends that are not one leave an error of that much in the clocks, and so in what is waited for.
    job = Job(4, late=late, offsets={1: 5_000_000, 3: -4_000_000}, spread_ns=3_000)
    report, _ = run(*job.write(folder / "both_apart").values())
    for rank, row in enumerate(report["ranks"]):
        planted = job.offsets.get(rank, 0) / 1e3
        expect(abs(row["offset_us"] - planted) < 3 and row["offset_low_us"] <= planted <= row["offset_high_us"], f"both apart: {row}")
        waiting = sum(one.last_start - one.starts[rank] for one in job.collectives) / 1e6
        expect(abs(row["waiting_ms"] - waiting) < 0.003 * 2 * len(job.collectives), f"both apart: {row['waiting_ms']}, {waiting}")
    expect("rank 2 (" in finding_of(report, "rank-skew")["advice"][0], "both apart: the late rank")
    even = Job(2)
    report, _ = run(*even.write(folder / "even").values())
    check("even", even, report)
    expect(finding_of(report, "rank-skew") is None, f"even: {finding_of(report, 'rank-skew')}")
    # In another order of files, and of ranks of which one is missing.
    job = Job(8, steps=6, late={3: 200_000})
    files = job.write(folder / "missing")
    report, _ = run(*files.values())
    backwards, _ = run(*reversed(files.values()))
    for one in (report, backwards):
        one["source"].pop("files")
    expect(backwards == report, "another order of files gives another report")
    given = [rank for rank in files if rank != 6]
    report, _ = run(*(files[rank] for rank in given))
    check("seven of eight", job, report, given)
    expect(any("1 more rank of the job do (6)" in row["question"] for row in report["cannot_tell"]), f"seven of eight: {report['cannot_tell']}")
    # Without numbers of ranks their order counts, if they have collectives in common.
    job = Job(2, steps=6)
    files = job.write(folder / "unranked", ranks_known=False)
    report, _ = run(files[0], files[1])
    expect([row["rank"] for row in report["ranks"]] == [0, 1] and report["ranks"][0]["world_size"] is None, f"unranked: {report['ranks']}")


def other_ways(folder):
    """The same joined recording from llmprof's own file, with any number of threads, and of another recorder."""
    job = Job(4, steps=6, late={1: 200_000}, offsets={3: 4_000_000})
    files = job.write(folder / "saved")
    report, _ = run(*files.values())
    saved = folder / "joined.llmprof"
    done = subprocess.run([BINARY, "analyze", *map(str, files.values()), "--save", str(saved), "--json"], capture_output=True, text=True, timeout=240)
    expect(done.returncode == 0, f"--save: {done.stderr}")
    back, _ = run(saved)
    for one in (report, back):
        one.pop("source")
    expect(back == report, f"saved and read again: {[key for key in report if back.get(key) != report[key]]}")
    refused("joined already", (saved, files[0]), "expected recordings of one rank each", str(saved))
    hosts = {0: "secret-alpha", 1: "secret-beta"}
    named = Job(2, steps=3, hosts=hosts).write(folder / "named")
    for more in ((), ("--redact",)):
        text = subprocess.run([BINARY, "analyze", *map(str, named.values()), "--json", *more], capture_output=True, text=True, timeout=240).stdout
        expect(all((host in text) != bool(more) for host in hosts.values()), f"{more}: names of hosts")
    outputs = set()
    for threads in ("1", "3"):
        outputs.add(subprocess.run([BINARY, "analyze", *map(str, files.values()), "--json"], capture_output=True, timeout=240,
                                   env={**os.environ, "LLMPROF_THREADS": threads}).stdout)
    expect(len(outputs) == 1, "the report depends on the number of threads")
    # Exports of Nsight Systems know kernels by name only, and no ranks: the order of the files is theirs.
    exports, waits = [], {}
    for rank, slow in enumerate((1, 3)):
        exports.append(folder / f"nsys{rank}.sqlite")
        export = nsys_recordings.Export(exports[-1], nsys_recordings.SCHEMA_2023)
        nsys_recordings.describe(export, 1)
        one = nsys_recordings.Process(export, 4000)
        for step in range(5):
            one.host = begin = 1_000_000 * (step + 1)
            one.kernel("gemm", 50_000 * slow)
            waits.setdefault(step, {})[rank] = one.gpu  # where the next kernel begins
            one.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", begin + 250_000 - one.gpu)
            one.host = one.gpu
            one.span("decode", begin)
        export.close()
    report, _ = run(*exports)
    expect([(row["rank"], row["host"], row["joined"]) for row in report["ranks"]] == [(0, "node-1", 5), (1, "node-1", 5)], f"nsys: {report['ranks']}")
    own = {row["rank"]: row["waiting_ms"] for row in report["ranks"]} or {0: None, 1: None}
    late = sum(of[1] - of[0] for of in waits.values()) / 1e6
    expect(near(own[0], late) and own[1] == 0, f"nsys: {own}, {late}")


def refused(what, files, *words):
    report, error = run(*files, code=2)
    expect(not report and all(word in error for word in words), f"{what}: {error}")


def wrong(folder):
    job = Job(2, steps=6)
    files = job.write(folder / "a")
    copy = folder / "copy.json.gz"
    copy.write_bytes(files[1].read_bytes())
    refused("the same rank twice", (files[0], files[1], copy), "found rank 1 twice", "rank1.json.gz and ", "copy.json.gz", "name one of the two")
    four = Job(4, steps=6).write(folder / "b")
    refused("another job", (files[0], four[1]), "rank 0 is of 2 ranks", "rank 1 of 4", str(four[1]))
    single = Job(1, steps=6)
    document = single.document(0)
    document["distributedInfo"] |= {"rank": 1, "world_size": 2}
    alone = folder / "alone.json"
    alone.write_text(json.dumps(document))
    refused("no collective in common", (files[0], alone), "expected collectives", "none of rank", "try:")
    document = job.document(1)
    document["baseTimeNanoseconds"] += 3 * 3600 * 10**9
    later = folder / "later.json"
    later.write_text(json.dumps(document))
    refused("another time", (files[0], later), "rank 1 was recorded 3.0 hours from rank 0", str(later))
    apart = Job(2, steps=6, offsets={1: 30_000_000_000}, numbered=False).write(folder / "d")
    refused("other steps", (apart[0], apart[1]), "expected recordings of the same steps, found 30.0 s between", str(apart[1]))
    apart = Job(2, steps=6, offsets={1: 30_000_000_000})
    report, _ = run(*apart.write(folder / "e").values())
    check("half a minute", apart, report)
    other = Job(2, steps=6, kernel_ns=90_000, seed=7).write(folder / "c")
    refused("another run", (files[0], other[1]), "miss each other by", str(other[1]))
    document = job.document(1, ranks_known=False)
    unknown = folder / "unknown.json"
    unknown.write_text(json.dumps(document))
    refused("a rank that is not known", (files[0], unknown), "no rank (distributedInfo)", "1 of 2", str(unknown))
    for name in ("first", "second"):
        document = Job(1, steps=3).document(0, ranks_known=False)
        (folder / f"{name}.json").write_text(json.dumps(document))
    refused("no ranks at all", (folder / "first.json", folder / "second.json"), "nothing shows that they are of one job", "second.json")
    # A cut file counts up to where it ends.
    cut = folder / "cut.json"
    text = gzip.decompress(files[1].read_bytes())
    events = text.index(b'"traceEvents"')
    cut.write_bytes(text[:events + (len(text) - events) // 2])
    report, _ = run(files[0], cut, code=3)
    expect("truncated-file" in {row["key"] for row in report["diagnostics"]}, f"cut: {report['diagnostics']}")
    expect(0 < report["ranks"][1]["joined"] < len(job.collectives), f"cut: {report['ranks']}")
    expect(sum(row["unmatched"] for row in report["joined_collectives"]) == len(job.collectives) - report["ranks"][1]["joined"], f"cut: {report['ranks']}")
    # Collectives without a partner hold waits that nobody knows, and a title that leaves waits out says of how many.
    for lost in (0, 60):
        job = Job(2, steps=20, wire_ns=200_000, lost={1: lost})
        report, _ = run(*job.write(folder / f"lost_{lost}").values())
        titles = [row["title"] for row in report["findings"] if row["id"] == "comm-bound" and row["title"].startswith("rank 0")]
        known = sum(int(number) for title in titles for number in re.findall(r"in the (\d+) of its \d+ collectives where that is known$", title))
        whole = sum(title.endswith("apart from waiting for other ranks") for title in titles)
        expect((known, whole) == ((len(job.collectives) - lost, 0) if lost else (0, 1)), f"{lost} lost of {len(job.collectives)}: {titles}")


def main():
    global BINARY
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    BINARY = parser.parse_args().binary
    with tempfile.TemporaryDirectory() as name:
        right(pathlib.Path(name) / "right")
        other_ways(pathlib.Path(name))
        wrong(pathlib.Path(name) / "wrong")
    for problem in problems:
        print("FAILED", problem[:900])
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
