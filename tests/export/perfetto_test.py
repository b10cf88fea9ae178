#!/usr/bin/env python3
"""What `llmprof export --to perfetto` writes, read by protoc, against the recordings themselves.

Counts, names, starts and durations to the nanosecond, arguments, flows from calls to kernels and counters are computed
here from the JSON of torch.profiler; slices on each track must nest, and on a stream none lies in another.
"""

import argparse
import collections
import csv
import gc
import gzip
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
from decimal import Decimal

import decoded

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
INPUTS = ROOT / "tests/golden/inputs"
SAMPLE = 40  # differences shown

# Category of an event of torch.profiler -> that of a slice.
CATEGORIES = {"cpu_op": "operator", "python_function": "python", "cuda_runtime": "cuda", "cuda_driver": "cuda",
              "user_annotation": "range", "gpu_user_annotation": "range", "overhead": "recorder", "kernel": "kernel",
              "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
ON_GPU = ("kernel", "memcpy", "memset")

problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)
    return condition


def same(what, found, expected):
    """Two collections, each entry as often in one as in the other."""
    found, expected = collections.Counter(found), collections.Counter(expected)
    missing, extra = expected - found, found - expected
    expect(expected, f"{what}: nothing to compare")
    expect(not missing and not extra, f"{what}: {sum(missing.values())} of {sum(expected.values())} missing, "
           f"{sum(extra.values())} too many: {list(missing)[:2]} {list(extra)[:2]}")


class Recording:
    def __init__(self, path):
        document = json.loads(gzip.open(path).read(), strict=False, parse_float=Decimal)
        self.base = int(document.get("baseTimeNanoseconds", 0))
        self.events = [event for event in document["traceEvents"] if event.get("cat") in CATEGORIES and event["ph"] == "X"]
        self.instants = [event for event in document["traceEvents"] if event.get("cat") == "cpu_instant_event"]
        self.threads = {(event["pid"], event["tid"]): event["args"]["name"] for event in document["traceEvents"]
                        if event["ph"] == "M" and event["name"] == "thread_name"}

    def start(self, event):
        return self.base + int(Decimal(event["ts"]) * 1000)

    @staticmethod
    def device(event):
        """That it ran on; a copy between two says where."""
        return int(event["args"].get("device", event["args"].get("inDevice")))

    def key(self, event):
        return (CATEGORIES[event["cat"]], event["name"], self.start(event), int(Decimal(event["dur"]) * 1000))


def check_slices(name, recording, trace):
    shown = [piece for piece in trace.slices if piece.category in CATEGORIES.values()]
    offset = trace.unix_ns or 0
    same(f"{name}: slices", ((piece.category, piece.name, piece.start + offset, piece.end - piece.start) for piece in shown),
         map(recording.key, recording.events))
    # On its own thread, by the ids of the system.
    threads = {}
    for piece in shown:
        if piece.category in ("operator", "python", "cuda"):
            thread = trace.tracks[piece.track]
            while "thread" not in thread:
                thread = trace.tracks[decoded.one(thread, "parent_uuid")]
            ids = decoded.one(thread, "thread")
            key = (decoded.one(ids, "pid"), decoded.one(ids, "tid"))
            threads[key] = threads.get(key, 0) + 1
    expected = collections.Counter((int(event["pid"]), int(event["tid"])) for event in recording.events
                                   if CATEGORIES[event["cat"]] in ("operator", "python", "cuda"))
    expect(threads == dict(expected), f"{name}: slices by thread: {threads}, expected {dict(expected)}")


def check_streams(name, recording, trace):
    found = collections.Counter()
    for piece in trace.slices:
        if piece.category not in ON_GPU:
            continue
        expect(piece.depth == 0, f"{name}: {piece.name} lies in another slice of its stream")
        device, stream = trace.path_of(piece.track)[:2]
        found[(int(device.split()[1].rstrip(":")), int(stream.split()[1]))] += 1
    expected = collections.Counter((recording.device(event), int(event["args"]["stream"]))
                                   for event in recording.events if CATEGORIES[event["cat"]] in ON_GPU)
    expect(found == expected, f"{name}: activities by device and stream: {dict(found)}, expected {dict(expected)}")


def check_arguments(name, recording, trace):
    offset = trace.unix_ns or 0
    found, expected = [], []
    for piece in trace.slices:
        if piece.category == "kernel" and "grid" in piece.args:
            found.append((piece.name, piece.start + offset, piece.args["grid"], piece.args["block"],
                          piece.args.get("correlation", 0), piece.args.get("registers_per_thread")))
        expect(piece.category != "kernel" or "category" in piece.args, f"{name}: {piece.name} has no category")
    for event in recording.events:
        if event["cat"] == "kernel" and "grid" in event["args"]:
            args = event["args"]
            expected.append((event["name"], recording.start(event), " x ".join(map(str, args["grid"])),
                             " x ".join(map(str, args["block"])), args.get("correlation", 0),
                             args.get("registers per thread")))
    same(f"{name}: grid, block, correlation, registers", found, expected)
    shapes = [(piece.name, piece.start + offset, json.dumps(json.loads(piece.args["shapes"])))
              for piece in trace.slices if piece.category == "operator" and "shapes" in piece.args]
    same(f"{name}: shapes of operators", shapes,
         ((event["name"], recording.start(event), json.dumps(event["args"]["Input Dims"])) for event in recording.events
          if event["cat"] == "cpu_op" and event["args"].get("Input Dims")))
    copies = [(piece.name, piece.start + offset, piece.args["bytes"]) for piece in trace.slices
              if piece.category in ("memcpy", "memset")]
    if copies:
        same(f"{name}: bytes", copies, ((event["name"], recording.start(event), event["args"]["bytes"])
                                        for event in recording.events if event["cat"] in ("gpu_memcpy", "gpu_memset")))


def check_flows(name, recording, trace):
    """A flow for each GPU activity whose launch was recorded, from the call to the activity."""
    ends = collections.defaultdict(list)
    for piece in trace.slices:
        for flow in piece.flows:
            ends[flow].append(piece)
    offset = trace.unix_ns or 0
    found = []
    for flow, pieces in ends.items():
        if not expect(len(pieces) == 2, f"{name}: flow {flow} joins {len(pieces)} slices"):
            continue
        host, device = sorted(pieces, key=lambda piece: piece.category in ON_GPU)
        expect(host.category == "cuda" and device.category in ON_GPU, f"{name}: flow {flow} joins {host.name}, {device.name}")
        found.append((host.name, host.start + offset, device.name, device.start + offset))
    calls = {event["args"]["correlation"]: event for event in recording.events
             if event["cat"] in ("cuda_runtime", "cuda_driver")}
    expected = []
    for event in recording.events:
        call = calls.get(event["args"].get("correlation")) if CATEGORIES[event["cat"]] in ON_GPU else None
        if call:
            expected.append((call["name"], recording.start(call), event["name"], recording.start(event)))
    same(f"{name}: flows", found, expected)


def check_stages(name, recording, trace):
    """Kernels launched within a range the program calls a stage are of it; steps carry the same names."""
    ranges = [event for event in recording.events if event["cat"] == "user_annotation" and event["name"] in ("prefill", "decode")]
    calls = {event["args"]["correlation"]: recording.start(event) for event in recording.events
             if event["cat"] in ("cuda_runtime", "cuda_driver")}
    expected = collections.Counter()
    for event in recording.events:
        if event["cat"] == "kernel":
            at = calls.get(event["args"]["correlation"], 0)
            for around in ranges:
                if recording.start(around) <= at <= recording.start(around) + int(Decimal(around["dur"]) * 1000):
                    expected[around["name"]] += 1
    found = collections.Counter(piece.args.get("stage") for piece in trace.slices if piece.category == "kernel")
    found.pop(None, None)
    expect(expected and found == expected, f"{name}: kernels by stage: {dict(found)}, expected {dict(expected)}")
    steps = collections.Counter(piece.name for piece in trace.slices if piece.category == "step")
    expect(steps == collections.Counter(event["name"] for event in ranges), f"{name}: steps: {dict(steps)}")


def check_idle(name, trace):
    """Idle time and the union of activities fill each device's time, from its first activity to its last, without a gap."""
    for group in {trace.path_of(piece.track)[0] for piece in trace.slices if piece.category == "kernel"}:
        pieces = [(piece.start, piece.end, piece.category == "idle") for piece in trace.slices
                  if piece.category in (*ON_GPU, "idle") and trace.path_of(piece.track)[0] == group]
        expect(any(idle for _, _, idle in pieces), f"{name}: no idle time on {group}")
        at = first = min(start for start, _, _ in pieces)
        idle_ns = busy_ns = 0
        for start, end, idle in sorted(pieces):
            expect(start <= at, f"{name}: {start - at} ns of {group} are neither busy nor idle")
            expect(not idle or start >= at, f"{name}: {group} is idle and busy at {start}")
            if idle:
                idle_ns += end - start
            else:
                busy_ns += max(0, end - max(at, start))
            at = max(at, end)
        expect(idle_ns + busy_ns == at - first, f"{name}: {group}: {idle_ns} idle and {busy_ns} busy of {at - first} ns")


def check_memory(name, recording, trace):
    offset = trace.unix_ns or 0
    found = [(trace.name_of(track).split()[0], time + offset, value) for track, values in trace.counters.items()
             for time, value in values if trace.path_of(track)[0].startswith("GPU")]
    expected = []
    for event in recording.instants:
        args = event["args"]
        if event["name"] == "[memory]" and args["Device Type"] == 1:
            expected += [("allocated_bytes", recording.start(event), args["Total Allocated"]),
                         ("reserved_bytes", recording.start(event), args["Total Reserved"])]
    same(f"{name}: memory counters", found, expected)


def check_readings(name, path, trace):
    """Counters of `nvidia-smi dmon`: the columns of its text, a value a second."""
    lines = path.read_text().splitlines()
    header = lines[0].lstrip("#").split()
    rows = [dict(zip(header, line.split())) for line in lines if not line.startswith("#")]
    for column, counter, unit, scale in (("pwr", "power_w", "W", 1), ("gtemp", "temperature_c", "C", 1),
                                         ("mclk", "memory_clock_mhz", "MHz", 1), ("sm", "gpu_util_frac", "frac", 0.01),
                                         ("fb", "memory_used_bytes", None, 1 << 20)):
        tracks = [uuid for uuid in trace.counters if trace.name_of(uuid).split()[0] == counter]
        if not expect(len(tracks) == 1, f"{name}: {len(tracks)} tracks of {counter}"):
            continue
        descriptor = decoded.one(trace.tracks[tracks[0]], "counter")
        expect(descriptor.get("unit_name") == [unit] if unit else descriptor.get("unit") == ["UNIT_SIZE_BYTES"],
               f"{name}: unit of {counter}: {descriptor}")
        values = trace.counters[tracks[0]]
        expect(len(values) == len(rows) and all(abs(value - float(row[column]) * scale) <= 1e-6 * abs(value)
                                                for (_, value), row in zip(values, rows)), f"{name}: values of {counter}")
        expect([time - values[0][0] for time, _ in values] == [second * 10**9 for second in range(len(rows))],
               f"{name}: times of {counter}")


# Of the tables of a trace, those that are slices: category (or the column that says it), start, and length or end.
SLICES = {"ops": "operator", "api_calls": "cuda", "library_calls": "library", "python_calls": "python",
          "annotations": "range", "overheads": "recorder", "sync_events": "wait"}
NO_COUNTERS = ("row", "start_ns", "time_ns", "dur_ns", "device", "source")
UNKNOWN = {"", "-1", str((1 << 64) - 1)}


def check_tables(binary, path, trace, folder):
    """Slices and counters against the CSV export of the same recording: what recordings of llmprof hold."""
    place = pathlib.Path(folder) / f"{path.name}.tables"
    subprocess.run([binary, "export", path, "--to", "csv", "-o", place, "-q"], check=True, timeout=250)

    def rows(table):
        with open(place / f"{table}.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    offset = trace.unix_ns - int(next(row["value"] for row in rows("facts") if row["key"] == "base_unix_ns"))
    expected = [(category, row["name"], int(row["start_ns"]), int(row["dur_ns"]))
                for table, category in SLICES.items() for row in rows(table)]
    expected += [(row["kind"], row["name"], int(row["start_ns"]), int(row["dur_ns"])) for row in rows("gpu_ops")]
    expected += [("place", row["kind"], int(row["start_ns"]), int(row["dur_ns"])) for row in rows("host_places")]
    expected += [("idle", row["cause"], int(row["start_ns"]), int(row["dur_ns"])) for row in rows("gaps")]
    expected += [("recorder", row["level"], int(row["start_ns"]), int(row["dur_ns"])) for row in rows("recorded")]
    expected += [("step", row["stage"], int(row["start_ns"]), int(row["end_ns"]) - int(row["start_ns"]))
                 for row in rows("steps")]
    same(f"{path.name}: slices", ((piece.category, piece.name, piece.start + offset, piece.end - piece.start)
                                  for piece in trace.slices), expected)
    values = []
    for table, source in (("gpu_samples", None), ("nvml_samples", "nvml")):
        for row in rows(table):
            values += [(f"{column} ({source or row['source']})", int(row.get("start_ns") or row["time_ns"]), float(text))
                       for column, text in row.items() if column not in NO_COUNTERS and text not in UNKNOWN]
    found = [(trace.name_of(track), time + offset, value) for track, all_values in trace.counters.items()
             for time, value in all_values]
    if values or found:
        # Most are floats: Perfetto has the double that each is, CSV its fewest digits.
        same(f"{path.name}: counters", *(((name, time, struct.pack("f", value)) for name, time, value in counted)
                                         for counted in (found, values)))


def check_tracks(name, trace):
    for uuid, track in trace.tracks.items():
        parent = decoded.one(track, "parent_uuid", 0)
        expect(not parent or parent in trace.tracks, f"{name}: track {uuid} lies under {parent}, which does not exist")
    used = {piece.track for piece in trace.slices} | set(trace.counters)
    parents = {decoded.one(track, "parent_uuid", 0) for track in trace.tracks.values()}
    idle = [trace.path_of(uuid) for uuid, track in trace.tracks.items() if uuid not in used | parents and "thread" not in track]
    expect(not idle, f"{name}: tracks without events: {idle}")


def export(binary, recording, folder):
    path = pathlib.Path(folder) / "trace.pftrace"
    done = subprocess.run([binary, "export", recording, "--to", "perfetto", "-o", path, "--quiet"], capture_output=True,
                          text=True, timeout=250, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"llmprof export {recording}: exit {done.returncode}\n{done.stderr}")
    trace = decoded.Decoded(path)
    trace.nesting()
    return trace


def overlapping(folder):
    """Operators that cross on a thread, and kernels that lie in, cross and touch each other on a stream: a few by hand in the
    first 200 us, and 3,000 at random behind them."""
    some = random.Random(1)
    times = {"kernel": [(0, 100), (10, 20), (90, 50), (140, 10), (140, 0), (150, 5), (150, 5)],
             "cpu_op": [(0, 50), (0, 50), (10, 60), (50, 10), (60, 100), (65, 2), (70, 0), (70, 100)]}
    for pairs in times.values():
        pairs += [(1000 + some.randrange(4000), some.choice((0, 1, 2, 5, 30, 200))) for _ in range(3000)]
    events = []
    for category, pairs in times.items():
        for number, (start, length) in enumerate(pairs):
            args = {"device": 0, "stream": 7, "correlation": number + 1} if category == "kernel" else {"External id": number + 1}
            events.append({"ph": "X", "cat": category, "name": f"{category} {number}", "pid": 1, "tid": 1,
                           "ts": 1000 + start, "dur": length, "args": args})
    path = pathlib.Path(folder) / "overlapping.json.gz"
    with gzip.open(path, "wt") as file:
        json.dump({"schemaVersion": 1, "traceEvents": events}, file)
    return path


def lanes_at(trace, category):
    return {piece.track for piece in trace.slices if piece.category == category}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    gc.disable()  # millions of small dictionaries without a cycle: looking for one takes most of the time
    compared = 0
    with tempfile.TemporaryDirectory(prefix="llmprof-export-") as folder:
        crossing = overlapping(folder)
        files = [INPUTS / f"{stem}.json.gz" for stem in (
            "kineto_qwen2.5-0.5b_annotated", "kineto_qwen2.5-0.5b_cuda_graph", "kineto_qwen2.5-0.5b_memory_stack",
            "pipeline_two_gpus", "two_streams", "hostile_names")]
        for path in [*files, crossing]:
            name = path.name.removesuffix(".json.gz")
            try:
                recording, trace = Recording(path), export(binary, path, folder)
            except decoded.Broken as broken:
                problems.append(f"{name}: {broken}")
                continue
            compared += len(trace.slices)
            check_tracks(name, trace)
            if name != "hostile_names":
                check_slices(name, recording, trace)
                check_streams(name, recording, trace)
            if path == crossing:
                early = min(piece.start for piece in trace.slices) + 200000
                lanes = {piece.track for piece in trace.slices if piece.category == "kernel" and piece.start < early}
                expect(len(lanes) == 2, f"{name}: {len(lanes)} lanes of kernels, expected 2")
                most = max(len(lanes_at(trace, kind)) for kind in ("kernel", "operator"))
                expect(10 < most < 1000, f"{name}: {most} lanes")
                continue
            check_idle(name, trace)
            if name != "hostile_names":
                check_arguments(name, recording, trace)
                check_flows(name, recording, trace)
            if "annotated" in name:
                check_stages(name, recording, trace)
            if "memory" in name:
                check_memory(name, recording, trace)
        readings = INPUTS / "dmon_dated.txt"
        check_readings(readings.name, readings, export(binary, readings, folder))
        # A workload under `llmprof run` on the GPU, the counters and the power that tests/fakes make up. Its first readings
        # come before the time that its epoch is.
        for path in (HERE / "live.llmprof", INPUTS / "streams.spool"):
            live = export(binary, path, folder)
            check_tracks(path.name, live)
            check_tables(binary, path, live, folder)
            check_idle(path.name, live)
            expect(any(piece.category == "kernel" and piece.flows for piece in live.slices), f"{path.name}: no flows")
        expect(min(piece.start for piece in live.slices) >= 0, "negative times")
    print("\n".join(problems[:SAMPLE]))
    print(f"{compared} slices compared, {len(problems)} problems")
    sys.exit(1 if problems or compared < 50000 else 0)


if __name__ == "__main__":
    main()
