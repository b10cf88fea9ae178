#!/usr/bin/env python3
"""Snapshots of PyTorch's memory against the same files read by Python's own pickle module.

Rows of `llmprof export` and the report: every block and event, sums by action, what is in use at each event, at the peak and at the
snapshot by code, of a recording of a GPU and of simulated allocators in every protocol, with lost beginnings, several GPUs, failures,
and files that are cut. Hostile files end soon and in bounded memory.
"""

import argparse
import collections
import csv
import gzip
import json
import pathlib
import pickle
import random
import resource
import subprocess
import sys
import tempfile

import memory_recordings

INPUTS = pathlib.Path(__file__).resolve().parent / "inputs"
BEFORE = "[before the history]"
NO_PYTHON = "[no Python code]"
problems = []


def expect(condition, text):
    if not condition and len(problems) < 20:
        problems.append(text)
    return condition


def run(binary, *arguments):
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    expect(done.returncode in (0, 3), f"{arguments}: exit {done.returncode}: {done.stderr}")
    return done


def report_of(binary, *files):
    return json.loads(run(binary, "analyze", *files, "--json", "--top", "0", "--no-store").stdout)


def tables_of(binary, file, *names):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "tables"
        run(binary, "export", file, "--to", "csv", "-o", out)
        tables = []
        for name in names:
            with open(out / f"{name}.csv", encoding="utf-8", newline="") as rows:
                tables.append(list(csv.DictReader(rows)))
        return tables


def name_of(frames):
    """The innermost Python code that is not torch's, else torch's: by the documentation."""
    python = [f for f in frames if f["filename"].endswith(".py") or f["filename"].startswith("<")]
    below = [(f["filename"].split("/site-packages/")[-1], f) for f in python]
    own = [(file, f) for file, f in below if not (file != f["filename"] and file.startswith("torch/"))]
    return next((f"{file}:{f['line']} {f['name']}" for file, f in own or below), None)


def replay(all_events, places, kept, blocks, names):
    """In use by address behind every kept event, in plain dicts; places of what is older come from `blocks` alone."""
    first, live = len(all_events) - kept, {}
    at_end = {block["address"]: names[block["address"]] for block in blocks}
    levels, best, peak = [], None, None

    def consider():
        nonlocal best, peak
        level = sum(size for size, _, _ in live.values())
        if best is None or level > best:
            best, peak = level, dict(live)
        return level

    for i, event in enumerate(all_events):
        if i == first:
            consider()
        if event["action"] == "alloc":
            live[event["addr"]] = (event["size"], i, places[i])
        elif event["action"] == "free_requested":
            live.pop(event["addr"], None)
        if i >= first and event["action"] in ("alloc", "free_requested"):
            levels.append(consider())

    def by_place(used):
        out = collections.Counter()
        for address, (size, i, place) in used.items():
            still = address in live and live[address][1] == i and at_end.get(address)
            out[(place or NO_PYTHON) if i >= first else still or BEFORE] += size
        return out

    return levels, best, by_place(peak), by_place(live)


def check_tables(binary, file, snapshot, what):
    blocks, events, failures = tables_of(binary, file, "memory_blocks", "memory_events", "memory_failures")
    wanted = [(s["device"], s["address"], b["address"], b["size"], b["requested_size"], b["state"], name_of(b["frames"]) or "")
              for s in snapshot["segments"] for b in s["blocks"]]
    got = [(int(r["device"]), int(r["segment"]), int(r["address"]), int(r["bytes"]), int(r["requested_bytes"]), r["state"], r["place"]) for r in blocks]
    expect(sorted(got) == sorted(wanted), f"{what}: {len(got)} blocks, not {len(wanted)} as Python reads them")
    for device, trace in enumerate(snapshot["device_traces"]):
        for action, sign in (("alloc", 1), ("free_requested", -1)):
            wanted = [(e["addr"], e["size"]) for e in trace if e["action"] == action]
            got = [(int(r["address"]), abs(int(r["bytes"]))) for r in events if int(r["device"]) == device and int(r["bytes"]) * sign > 0]
            expect(got == wanted, f"{what}, GPU {device}: {len(got)} events {action}, {len(wanted)} by Python")
        wanted = [(e["size"], e["device_free"], name_of(e["frames"]) or "") for e in trace if e["action"] == "oom"]
        got = [(int(r["requested_bytes"]), int(r["free_bytes"]), r["place"]) for r in failures if int(r["device"]) == device]
        expect(got == wanted, f"{what}, GPU {device}: failures {got}, {wanted} by Python")
    return events


def check_state(report, snapshot, what):
    for device in {segment["device"] for segment in snapshot["segments"]}:
        segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
        [row] = [row for row in report["allocators"] if row["device"] == device]
        blocks = [block for segment in segments for block in segment["blocks"]]
        live = [block for block in blocks if block["state"] == "active_allocated"]
        wanted = {"segments": len(segments), "live_blocks": len(live), "reserved_bytes": sum(s["total_size"] for s in segments),
                  "allocated_bytes": sum(s["allocated_size"] for s in segments), "active_bytes": sum(s["active_size"] for s in segments),
                  "requested_bytes": sum(b["requested_size"] for b in live),
                  "largest_free_bytes": max((b["size"] for b in blocks if b["state"] == "inactive"), default=0)}
        wanted["fragmentation_bytes"] = wanted["reserved_bytes"] - wanted["allocated_bytes"]
        wanted["rounding_bytes"] = wanted["allocated_bytes"] - wanted["requested_bytes"]
        expect({key: row[key] for key in wanted} == wanted, f"{what}, GPU {device}: {row} is not {wanted}")
        expect(row["checked"] >= 3 and row["disagreeing"] == 0, f"{what}: {row['disagreeing']} of {row['checked']} figures disagree")


def places_of(report, device, moment):
    return collections.Counter({row["place"]: int(row["bytes"]) for row in report["memory_places"]
                                if row["device"] == device and row["moment"] == moment})


def check_simulated(binary, folder, what, allocators, protocol=4, kept=None, with_frames=True):
    snapshot = memory_recordings.snapshot_of(allocators, kept, with_frames)
    file = folder / f"{what.replace(' ', '_')}.pickle"
    file.write_bytes(pickle.dumps(snapshot, protocol=protocol))
    snapshot = pickle.loads(file.read_bytes())
    events = check_tables(binary, file, snapshot, what)
    report = report_of(binary, file)
    check_state(report, snapshot, what)
    expect(not report["diagnostics"], f"{what}: {report['diagnostics']}")
    for one in allocators:
        blocks = [block for segment in snapshot["segments"] if segment["device"] == one.device for block in segment["blocks"]]
        names = {block["address"]: name_of(block["frames"]) for block in blocks}
        levels, best, peak, end = replay(one.events, one.places, len(snapshot["device_traces"][one.device]), blocks, names)
        got = [int(row["allocated_bytes"]) for row in events if int(row["device"]) == one.device]
        expect(got == levels, f"{what}, GPU {one.device}: in use behind each event")
        [row] = [row for row in report["allocators"] if row["device"] == one.device]
        expect(row["history_peak_bytes"] == best, f"{what}: peak {row['history_peak_bytes']}, {best} by Python")
        expect(places_of(report, one.device, "peak") == peak, f"{what}: by code at the peak {places_of(report, one.device, 'peak')}, not {peak}")
        expect(places_of(report, one.device, "snapshot") == end, f"{what}: by code at the snapshot")
    failures = sum(event["action"] == "oom" for trace in snapshot["device_traces"] for event in trace)
    expect(len(report.get("out_of_memory", [])) == failures, f"{what}: {failures} failures")


def check_recording(binary):
    packed = INPUTS / "memory_snapshot.pickle.gz"
    snapshot = pickle.loads(gzip.decompress(packed.read_bytes()))
    check_tables(binary, packed, snapshot, "recording")
    report = report_of(binary, packed)
    check_state(report, snapshot, "recording")
    live = sum(b["requested_size"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated")
    level, best = live, live
    for event in reversed(snapshot["device_traces"][0]):  # backwards, since the beginning is lost
        level -= {"alloc": 1, "free_requested": -1}.get(event["action"], 0) * event["size"]
        best = max(best, level)
    [row] = report["allocators"]
    expect((row["before_history_bytes"], row["history_peak_bytes"]) == (level, best), "recording: the levels of its history")
    # What PyTorch itself counted of the same process: current figures are those of the snapshot, and no peak is below it.
    stats = json.loads((INPUTS / "memory_stats.json").read_text())
    [both] = report_of(binary, packed, INPUTS / "memory_stats.json")["allocators"]
    for field, name in (("reserved_bytes", "reserved_bytes"), ("allocated_bytes", "allocated_bytes"), ("active_bytes", "active_bytes"),
                        ("requested_bytes", "requested_bytes"), ("inactive_split_bytes", "inactive_split_bytes")):
        expect(row[field] == stats[f"{name}.all.current"], f"recording: {field} {row[field]} of the blocks, PyTorch has {stats[f'{name}.all.current']}")
    expect(row["segments"] == stats["segment.all.current"] and row["live_blocks"] == stats["allocation.all.current"], "recording: counts")
    expect(row["history_peak_bytes"] <= stats["requested_bytes.all.peak"], "recording: a peak above that of the process")
    expect((both["peak_allocated_bytes"], both["peak_reserved_bytes"], both["retries"], both["out_of_memory"]) ==
           (stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"], 0, 0), "recording: the statistics beside it")
    [alone] = report_of(binary, INPUTS / "memory_stats.json")["allocators"]
    expect(alone["device"] is None and alone["reserved_bytes"] == row["reserved_bytes"], "statistics alone")


def nested(flat):
    out = {}
    for name, value in flat.items():
        at = out
        *around, last = name.split(".")
        for key in around:
            at = at.setdefault(key, {})
        at[last] = value
    return out


def check_statistics(binary, folder):
    """Statistics of several GPUs in each form, alone, beside a snapshot and beside a recording."""
    flat = json.loads((INPUTS / "memory_stats.json").read_text())
    of = [{name: value * factor for name, value in flat.items()} for factor in (1, 3, 7)]
    file = folder / "statistics.json"

    def rows(what, *beside):
        file.write_text(json.dumps(what))
        return report_of(binary, *beside, file)["allocators"]

    def expect_rows(found, devices, what):
        got = [(row["device"], row["peak_allocated_bytes"], row["reserved_bytes"]) for row in found]
        wanted = [(device, one["allocated_bytes.all.peak"], one["reserved_bytes.all.current"]) for device, one in devices]
        expect(got == wanted, f"{what}: {got}, not {wanted}")

    expect_rows(rows(of), list(enumerate(of)), "a list")
    expect_rows(rows([nested(one) for one in of]), list(enumerate(of)), "a list of nested ones")
    expect_rows(rows([of[0], {}, of[2]]), [(0, of[0]), (2, of[2])], "a GPU that was not used")
    expect_rows(rows({"cuda:3": of[1], "0": nested(of[0])}), [(0, of[0]), (3, of[1])], "an object")
    expect_rows(rows([of[1]]), [(0, of[1])], "a list of one")
    # Beside the snapshot of GPU 0: its row has the statistics of GPU 0, and GPU 1 a row of its own.
    snapshot = INPUTS / "memory_snapshot.pickle.gz"
    [first, second] = rows(of[:2], snapshot)
    [without] = report_of(binary, snapshot)["allocators"]
    expect((first["device"], first["live_blocks"], first["peak_allocated_bytes"]) == (0, without["live_blocks"], of[0]["allocated_bytes.all.peak"]), f"{first}")
    expect_rows([second], [(1, of[1])], "the GPU that the snapshot has not")
    [one, other] = rows({"cuda:1": of[1]}, snapshot)
    expect(one["peak_allocated_bytes"] is None and one["device"] == 0 and other["device"] == 1, "statistics of another GPU than the snapshot")
    recording = INPUTS / "pipeline_two_gpus.json.gz"
    expect_rows(rows(of[:2], recording), list(enumerate(of[:2])), "beside a recording")
    file.write_text(json.dumps([3, of[1], "x"]))
    wrong = report_of(binary, file)
    expect_rows(wrong["allocators"], [(1, of[1])], "elements that are none")
    expect([(row["key"], row["count"]) for row in wrong["diagnostics"]] == [("malformed-event", 2)], f"{wrong['diagnostics']}")


def levels_of(one):
    """(time, in use behind it) of each allocation and free, from an empty allocator on."""
    live, out = {}, []
    for event in one.events:
        if event["action"] == "alloc":
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_requested":
            live.pop(event["addr"], None)
        else:
            continue
        out.append((event["time_us"], sum(live.values())))
    return out


def check_ranges(binary, folder, seed):
    """Ranges that are drawn at random, nested and not, are written as PyTorch writes them: a START and an END of each."""
    rng = random.Random(seed)
    allocators = memory_recordings.small(seed, devices=2, steps=300)
    snapshot = memory_recordings.snapshot_of(allocators)
    ranges, marks = [], []
    times = sorted(event["time_us"] for one in allocators for event in one.events)
    for number in range(40):
        device = rng.randrange(2)
        start, end = sorted(rng.choices(times, k=2))
        name = f"range {number % 7}" + "x" * 300 * (number == 5)
        # Two of one name and GPU that overlap cannot be told apart: END has a name alone.
        if any(other[:2] == (name, device) and start <= other[3] and other[2] <= end for other in ranges):
            continue
        ranges.append((name, device, start, end))
        marks += [(start, 0, {"name": name, "stage": "START"}, device), (end, 1, {"name": name, "stage": "END"}, device)]
    for name, device, start in (("open", 0, times[len(times) // 2]), ("open", 1, times[3])):
        ranges.append((name, device, start, None))
        marks.append((start, 0, {"name": name, "stage": "START"}, device))
    marks.append((times[5], 1, {"name": "began before", "stage": "END"}, 0))
    marks.append((times[5], 1, {"user": "noted down"}, 0))
    marks.sort(key=lambda mark: mark[:2])
    snapshot["external_annotations"] = [{**entry, "device": device, "time_us": time} for time, _, entry, device in marks]
    file = folder / "ranges.pickle"
    file.write_bytes(pickle.dumps(snapshot, protocol=2))
    report = report_of(binary, file)
    expect(not report["diagnostics"], f"ranges {seed}: {report['diagnostics']}")
    [rows] = tables_of(binary, file, "memory_ranges")
    expect(len(rows) == len(ranges), f"ranges {seed}: {len(rows)} rows, {len(ranges)} ranges")
    wanted = {}
    for name, device, start, end in ranges:
        levels = levels_of(allocators[device])
        at_start = max((pair for pair in enumerate(levels) if pair[1][0] < start), default=(0, (0, 0)))[1][1]
        inside = [level for time, level in levels if time >= start and (end is None or time <= end)]
        row = wanted.setdefault((device, name[:200]), [0, 0, 0.0, 0, 0])
        row[0] += 1
        row[1] += end is None
        row[2] += 0 if end is None else (end - start) / 1000
        row[3] = max(row[3], at_start, *inside) if inside else max(row[3], at_start)
        row[4] += (inside[-1] if inside else at_start) - at_start
    got = {(row["device"], row["name"]): [row["ranges"], row["open"], round(row["total_ms"] or 0, 6), row["peak_bytes"], row["change_bytes"]]
           for row in report["memory_ranges"]}
    wanted = {key: [*row[:2], round(row[2], 6), *row[3:]] for key, row in wanted.items()}
    expect(got == wanted, f"ranges {seed}: {[(key, got.get(key), row) for key, row in wanted.items() if got.get(key) != row][:3]}")
    for device, one in enumerate(allocators):
        best = max(level for _, level in levels_of(one))
        moment = next(time for time, level in levels_of(one) if level == best)
        around = sorted((start, -(end or 1 << 62), name[:200]) for name, of, start, end in ranges if of == device and start <= moment <= (end or 1 << 62))
        [row] = [row for row in report["allocators"] if row["device"] == device]
        expect(row["history_peak_ranges"] == (" > ".join(name for _, _, name in around) or None), f"ranges {seed}: around the peak {row['history_peak_ranges']}")
    # Of a history that does not lead to the snapshot no levels are known.
    snapshot["segments"] = []
    file.write_bytes(pickle.dumps(snapshot, protocol=2))
    cut = report_of(binary, file)
    expect({row["peak_bytes"] for row in cut["memory_ranges"]} == {None} and all(row["history_peak_ranges"] is None for row in cut["allocators"]), "no levels")
    snapshot["external_annotations"] += [{"name": "x", "stage": "START", "device": -2, "time_us": 5}, {"stage": "END", "device": 0, "time_us": 5}]
    file.write_bytes(pickle.dumps(snapshot, protocol=2))
    keys = [(row["key"], row["count"]) for row in report_of(binary, file)["diagnostics"]]
    expect(keys == [("missing-field", 2)], f"marks without a device or name: {keys}")


def check_changed(binary, folder):
    """A sum that the blocks do not give is counted; a file that is cut keeps its blocks, and no levels."""
    [one] = memory_recordings.small(9)
    snapshot = memory_recordings.snapshot_of([one])
    snapshot["segments"][0]["allocated_size"] += 1
    file = folder / "changed.pickle"
    file.write_bytes(pickle.dumps(snapshot, protocol=4))
    report = report_of(binary, file)
    counts = [row["count"] for row in report["diagnostics"] if row["key"] == "figure-disagrees"]
    expect(counts == [1] and report["allocators"][0]["disagreeing"] == 1, f"a changed sum: {counts}")
    whole = pickle.dumps(memory_recordings.snapshot_of([one]), protocol=4)
    file.write_bytes(whole[:-300])
    report = report_of(binary, file)
    expect(any(row["key"] == "truncated-file" for row in report["diagnostics"]), "a cut file is said to be cut")
    expect(report["allocators"][0]["live_blocks"] == len(one.live) and report["allocators"][0]["history_peak_bytes"] is None, "what is left of a cut file")
    kept = report["allocators"][0]["events"]
    expect(0 < kept < sum(event["action"] in ("alloc", "free_requested") for event in one.events), f"{kept} events of a cut file")


def check_hostile(binary, folder, sanitized):
    """Small files that stand for much: each must end within seconds and 1 GB of address space, whatever it answers. A
    sanitizer takes terabytes of address space for itself, and several times as long: there they have to end."""
    def limited():
        seconds = 100 if sanitized else 20
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        if not sanitized:
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    many = {f"key{i}": 1 for i in range(100_000)}
    event = {"action": "alloc", "addr": 1, "size": 2, "time_us": 3, "frames": [], **many}
    frame = {**many, "name": "f", "filename": "a.py", "line": 1}
    frames = [[frame] * 2000 for _ in range(500)]
    doubled = []
    for _ in range(200):
        doubled = [doubled, doubled]
    files = {
        "one event often": pickle.dumps({"segments": [], "device_traces": [[event] * 200_000] * 1000}, protocol=4),
        "one frame often": pickle.dumps({"segments": [], "device_traces": [[{**event, "addr": i, "frames": one} for i, one in enumerate(frames[:20])]]}, protocol=4),
        "frames of frames": pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": i, "size": 2, "time_us": 3, "frames": one}
                                                                            for i, one in enumerate(frames)]]}, protocol=4),
        "one block often": pickle.dumps({"segments": [{"device": 0, "address": i, "total_size": 1, "blocks": [{"size": 1, "history": [many]}] * 1000}
                                                      for i in range(100)]}, protocol=4),
        "doubled": pickle.dumps({"segments": doubled, "device_traces": doubled}, protocol=4),
        "deep": b"\x80\x04" + b"](" * 1_000_000,
        "deep without marks": b"\x80\x04" + b"]" * 1_000_000 + b"a" * 999_999 + b".",
        "gigabytes of None": gzip.compress(b"\x80\x04}\x8c\x08segments](" + b"N" * 300_000_000, 1),
        "a text of 2^60 bytes": b"\x80\x04}\x8d" + (1 << 60).to_bytes(8, "little") + b"segments",
        "a memo of 2^32": b"\x80\x04}\x8c\x08segmentsr\xff\xff\xff\xff",
    }
    for name, data in files.items():
        file = folder / "hostile.pickle"
        file.write_bytes(data)
        done = subprocess.run([binary, "analyze", file, "--no-store"], capture_output=True, text=True, timeout=120, preexec_fn=limited)
        expect(done.returncode in (0, 1, 3), f"{name}: exit {done.returncode}: {done.stderr[:500]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--sanitized", action="store_true", help="the binary is built with a sanitizer of memory")
    args = parser.parse_args()
    binary = args.binary
    check_recording(binary)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for protocol in (2, 3, 4, 5):
            check_simulated(binary, folder, f"protocol {protocol}", memory_recordings.small(protocol, steps=300), protocol)
        for seed in range(10, 18):
            allocators = memory_recordings.small(seed, devices=1 + seed % 3, steps=400, failures=2, share=seed % 2 == 0)
            check_simulated(binary, folder, f"several GPUs {seed}", allocators)
            check_simulated(binary, folder, f"lost beginning {seed}", memory_recordings.small(seed, steps=500), kept=150 + 40 * (seed - 10))
            check_simulated(binary, folder, f"blocks without frames {seed}", memory_recordings.small(seed, steps=500), kept=300, with_frames=False)
        check_statistics(binary, folder)
        for seed in range(20, 26):
            check_ranges(binary, folder, seed)
        check_changed(binary, folder)
        check_hostile(binary, folder, args.sanitized)
    for problem in problems:
        print(problem)
    print("failed" if problems else "every row and sum is that of Python's pickle")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
