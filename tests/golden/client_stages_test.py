#!/usr/bin/env python3
"""What the GPU did while requests of a client waited, against a schedule that is planted here.

A recording of one GPU and files of its client are written from one schedule of steps and requests. The parts of each request are
found here by cutting time at every begin and end and asking of each piece what was under way, which is not how llmprof does it;
bounds of the clocks by trying the difference itself. Both must agree to the nanosecond.
"""

import argparse
import csv
import gzip
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

BASE_NS = 1795600000 * 10**9
US = 1000
PARTS = ("queue", "prefill", "mixed", "decode", "other", "host", "gap")
NAMES = {"prefill": "execute_context_1(64)_generation_0(0)", "mixed": "execute_context_1(64)_generation_3(3)",
         "decode": "execute_context_0(0)_generation_3(3)"}
problems = []


def expect(condition, text):
    if not condition and len(problems) < 20:
        problems.append(text)


class Schedule:
    """Steps with their calls and kernels, and requests: ns since BASE_NS."""

    def __init__(self, seed, steps, alone=False):
        made = random.Random(seed)
        at, self.steps, self.requests = 1_000_000 * US, [], []
        for number in range(steps):
            kind = "prefill" if number % (8 if alone else 5) == 0 else "decode" if alone else made.choice(("decode", "decode", "decode", "mixed"))
            at += made.randint(4_000, 40_000) * US if kind == "prefill" else made.randint(20, 900) * US + made.randint(0, 999)
            kernels, end = [], at + 150 * US
            for _ in range(3):
                start = end + made.choice((0, 7 * US, 123_457))
                end = start + made.randint(300, 3000 if kind != "decode" else 900) * US + made.randint(0, 999)
                kernels.append((start, end))
            done = end + made.randint(15, 90) * US
            self.steps.append({"kind": kind, "host": at, "kernels": kernels, "end": done})
            at = done
        # Windows as docs/glossary.md says: a decode or mixed step begins where the one before ended.
        for before, step in zip([None] + self.steps, self.steps):
            step["start"] = step["host"] if before is None or step["kind"] == "prefill" else before["end"]
        self.from_ns, self.to_ns = self.steps[0]["host"], self.steps[-1]["end"]
        for i, step in enumerate(self.steps):
            if step["kind"] == "decode" or (i == 0 and not alone):
                continue
            late = 7 if alone else made.randint(1, 6)
            sent = step["kernels"][0][0] - (100 * US if alone else made.choice((10, 200, 1500, 9000)) * US)
            first = step["end"] + made.randint(40, 400) * US
            last = self.steps[min(i + late, len(self.steps) - 1)]["end"] + made.randint(5, 15) * US
            self.requests.append({"sent": sent, "first": first, "end": max(last, first), "tokens": late + 1})

    def trace(self):
        events, key = [], 0
        for step in self.steps:
            on = {"pid": 9, "tid": 9}
            events.append({"ph": "X", "cat": "user_annotation", "name": NAMES[step["kind"]], **on, **span(step["host"], step["end"])})
            for i, (start, end) in enumerate(step["kernels"]):
                key += 1
                call = step["host"] + i * 10 * US
                events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **on, **span(call, call + 5 * US),
                               "args": {"correlation": key}})
                events.append({"ph": "X", "cat": "kernel", "name": f"k{i}", "pid": 0, "tid": 7, **span(start, end),
                               "args": {"device": 0, "context": 1, "stream": 7, "correlation": key}})
            key += 1
            events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", **on,
                           **span(step["host"] + 60 * US, step["end"]), "args": {"correlation": key}})
        return {"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0}],
                "baseTimeNanoseconds": BASE_NS, "traceEvents": events}

    def parts(self, start, end, queue):
        out = dict.fromkeys(PARTS, 0)
        cuts = {start, end}
        for step in self.steps:
            for edge in (step["start"], step["end"], *(edge for kernel in step["kernels"] for edge in kernel)):
                if start < edge < end:
                    cuts.add(edge)
        cuts = sorted(cuts)
        for low, high in zip(cuts, cuts[1:]):
            step = next((one for one in self.steps if one["start"] <= low < one["end"]), None)
            busy = any(a <= low < b for one in self.steps for a, b in one["kernels"])
            if step is None:
                out["other" if busy else "gap"] += high - low
            elif not busy:
                out["host"] += high - low
            else:
                out["queue" if queue and step["kernels"][0][0] < start else step["kind"]] += high - low
        return out

    def fits(self, ahead, requests):
        """Whether the client's clock may be ahead by so much: no wait in recorded time lacks a step with a prompt."""
        for one in requests:
            sent, first = one["sent"] - ahead, one["first"] - ahead
            if sent < self.from_ns or first > self.to_ns or one.get("error"):
                continue
            if not any(step["kind"] != "decode" and step["kernels"][0][0] >= sent and step["kernels"][-1][1] <= first for step in self.steps):
                return False
        return True


def span(start, end):
    return {"ts": start / 1000, "dur": (end - start) / 1000}


def moved(requests, ns):
    return [one | {"sent": one["sent"] + ns, "first": one["first"] + ns, "end": one["end"] + ns} for one in requests]


def aiperf(requests):
    out = []
    for one in requests:
        metrics = {"time_to_first_token": {"value": (one["first"] - one["sent"]) / 1e6, "unit": "ms"},
                   "request_latency": {"value": (one["end"] - one["sent"]) / 1e6, "unit": "ms"},
                   "output_sequence_length": {"value": one["tokens"], "unit": "tokens"}}
        record = {"metadata": {"request_start_ns": BASE_NS + one["sent"], "benchmark_phase": "profiling"},
                  "metrics": {} if one.get("error") else metrics, "error": {"type": one["error"]} if one.get("error") else None}
        out.append(json.dumps(record) + "\n")
    return "".join(out)


def guidellm(requests):
    rows = [{"request_start_time": (BASE_NS + one["sent"]) / 1e9, "request_latency": (one["end"] - one["sent"]) / 1e9,
             "time_to_first_token_ms": (one["first"] - one["sent"]) / 1e6, "prompt_tokens": 8, "output_tokens": one["tokens"]} for one in requests]
    return json.dumps({"metadata": {"guidellm_version": "0.5.3"}, "benchmarks": [
        {"type_": "generative_benchmark", "duration": 1.0, "metrics": {"request_totals": {"successful": len(rows)}},
         "requests": {"successful": rows, "incomplete": [], "errored": []}}]})


def vllm(requests):
    """Its start_times are of time.perf_counter."""
    return json.dumps({"backend": "vllm", "duration": 2.0, "completed": len(requests), "total_input_tokens": 8 * len(requests),
                       "total_output_tokens": sum(one["tokens"] for one in requests), "request_throughput": 1.0,
                       "input_lens": [8] * len(requests), "output_lens": [one["tokens"] for one in requests],
                       "ttfts": [(one["first"] - one["sent"]) / 1e9 for one in requests],
                       "latencies": [(one["end"] - one["sent"]) / 1e9 for one in requests],
                       "start_times": [one["sent"] / 1e9 for one in requests], "errors": [""] * len(requests)})


class Tool:
    def __init__(self, binary, root):
        self.binary, self.root = binary, root

    def run(self, *arguments):
        done = subprocess.run([self.binary, *map(str, arguments)], capture_output=True, text=True, timeout=120)
        expect(done.returncode in (0, 3), f"{arguments}: exit {done.returncode}: {done.stderr}")
        return done.stdout

    def write(self, schedule, files):
        (self.root / "trace.json").write_text(json.dumps(schedule.trace()))
        for name, text in files.items():
            (self.root / name).write_text(text)
        return [self.root / "trace.json", *(self.root / name for name in files)]

    def report(self, schedule, files, *more):
        paths = self.write(schedule, files)
        return json.loads(self.run("analyze", *paths, "--format", "json", "--top", "0", "--no-store", *more))

    def splits(self, schedule, text):
        """Rows by request, of one file beside the recording."""
        paths = self.write(schedule, {"client.jsonl": text})
        with tempfile.TemporaryDirectory() as out:
            self.run("export", *paths, "--to", "csv", "-o", out)
            with open(pathlib.Path(out) / "client_splits.csv", encoding="utf-8", newline="") as rows:
                return list(csv.DictReader(rows))


def planted(schedule, requests):
    """What must be found of each request: parts of its wait and output, and why one is absent."""
    out = []
    for one in requests:
        row = {"wait": None, "out": None, "why": ""}
        if one.get("error"):
            row["why"] = "failed"
        else:
            if schedule.from_ns <= one["sent"] and one["first"] <= schedule.to_ns:
                row["wait"] = schedule.parts(one["sent"], one["first"], True)
            if schedule.from_ns <= one["first"] and one["end"] <= schedule.to_ns:
                row["out"] = schedule.parts(one["first"], one["end"], False)
            row["why"] = "" if row["wait"] and row["out"] else "outside"
        row["others"] = sum(other is not one and other["sent"] < one["first"] and (bool(other.get("error")) or other["end"] > one["sent"])
                            for other in requests)
        out.append(row)
    return out


def check_rows(tool, schedule, requests, what):
    found = tool.splits(schedule, aiperf(requests))
    expected = planted(schedule, requests)
    expect(len(found) == len(expected), f"{what}: {len(found)} rows of {len(expected)} requests")
    for row, one, want in zip(found, requests, expected):
        for key, parts in (("wait", want["wait"]), ("out", want["out"])):
            length = one["first"] - one["sent"] if key == "wait" else one["end"] - one["first"]
            got = {part: int(row[f"{key}_{part}_ns"]) for part in PARTS if key == "wait" or part != "queue"}
            if parts is None:
                expect(set(got.values()) | {int(row[f"{key}_ns"])} == {-1}, f"{what}: {key} outside: {got}")
                continue
            expect(sum(got.values()) == length == int(row[f"{key}_ns"]), f"{what}: {key}: {got} of {length}")
            expect(all(parts[part] == ns for part, ns in got.items()), f"{what}: {key}: {got}, planted {parts}")
        expect(row["why"] == want["why"], f"{what}: '{row['why']}', planted '{want['why']}'")
        if not one.get("error"):
            expect(int(row["others"]) == want["others"], f"{what}: {row['others']} others, planted {want['others']}")
    return expected


def check_report(report, source, schedule, requests, what, tolerance=1e-6):
    expected = planted(schedule, requests)
    waits = [row["wait"] for row in expected if row["wait"]]
    outs = [(row["out"], one["tokens"] - 1) for row, one in zip(expected, requests) if row["out"]]
    rows = [row for row in report.get("client_stages", []) if row["source"] == source]
    for row in rows:
        pieces = [(parts, 1) for parts in waits] if row["figure"] == "ttft" else outs
        values = [(sum(parts.values()) if row["part"] == "all" else parts[row["part"]]) / per / 1e6 for parts, per in pieces]
        expect(row["requests"] == len(values), f"{what}: {row['figure']} of {row['requests']}, planted {len(values)}")
        expect(abs(row["mean_ms"] - statistics.fmean(values)) <= tolerance, f"{what}: mean {row}: {statistics.fmean(values)}")
        expect(abs(row["median_ms"] - statistics.median(values)) <= tolerance, f"{what}: median {row}: {statistics.median(values)}")
        p90 = statistics.quantiles(values, n=10, method="inclusive")[8] if len(values) > 1 else values[0]
        expect(abs(row["p90_ms"] - p90) <= tolerance, f"{what}: p90 {row}: {p90}")
    expect(len(rows) == 8 * bool(waits) + 7 * bool(outs), f"{what}: {len(rows)} rows of parts")
    [clock] = [row for row in report["client_clocks"] if row["source"] == source]
    expect(clock["waits"] == len(waits) and clock["outputs"] == len(outs), f"{what}: {clock}, planted {len(waits)} and {len(outs)}")
    expect(clock["outside"] == sum(row["why"] == "outside" for row in expected), f"{what}: outside {clock}")
    expect(clock["failed"] == sum(row["why"] == "failed" for row in expected) and clock["not_recorded"] == 0, f"{what}: {clock}")
    alone = sum(row["wait"] is not None and row["others"] == 0 for row in expected)
    expect(clock["alone"] == alone, f"{what}: {clock['alone']} alone, planted {alone}")
    return clock


def check_bounds(clock, schedule, requests, what):
    for key, step in (("ahead_least_ms", -1), ("ahead_most_ms", 1)):
        expect(clock[key] is not None, f"{what}: no {key}")
        if clock[key] is None:
            continue
        bound = round(clock[key] * 1e6)
        expect(bound * step >= 0 and schedule.fits(bound, requests), f"{what}: {key} {bound} does not fit")
        expect(not schedule.fits(bound + step, requests), f"{what}: {key} {bound} is not the last that fits")
        expect(all(schedule.fits(bound * i // 50, requests) for i in range(50)), f"{what}: not all up to {key} {bound} fit")


def why_of(report):
    return json.dumps([report["cannot_tell"], report.get("client_clocks")])


def check_hostile(tool):
    """Times that no clock has, and an end before the first output: what is good beside them is split as without them."""
    schedule = Schedule(5, 60)
    good = [json.loads(line) for line in aiperf(schedule.requests).splitlines()]
    last = schedule.requests[-1]

    def bad(start, ttft=5.0, latency=9.0):
        return {"metadata": {"request_start_ns": start, "benchmark_phase": "profiling"}, "error": None,
                "metrics": {"time_to_first_token": {"value": ttft, "unit": "ms"}, "request_latency": {"value": latency, "unit": "ms"},
                            "output_sequence_length": {"value": 5, "unit": "tokens"}}}

    no_clock = [bad(start) for start in (0, 1, -5, 10**18 - 1, 4 * 10**18 + 1, 2**63 - 1, 2**63, 10**30, "1795600000000000000", None, 1.5e18)]
    far = [bad(10**18), bad(4 * 10**18), bad(4 * 10**18, 2.3e12, 2.3e12)]
    endless = [bad(BASE_NS + last["sent"], 9e12, 9e12), bad(BASE_NS + last["sent"], -1.0, -1.0), bad(BASE_NS + last["sent"], 1e300, 1e300)]
    backwards = [bad(BASE_NS + last["sent"], (last["first"] - last["sent"]) / 1e6, 0.001)]
    text = "".join(json.dumps(one) + "\n" for one in good + no_clock + far + endless + backwards)
    found = tool.splits(schedule, text)
    expect(len(found) == len(good) + len(far) + len(endless) + len(backwards), f"hostile: {len(found)} rows")
    same = ("wait_ns", "out_ns", "why") + tuple(f"wait_{part}_ns" for part in PARTS)
    for row, alone in zip(found, tool.splits(schedule, aiperf(schedule.requests))):
        expect(all(row[key] == alone[key] for key in same), f"hostile: {row}, alone {alone}")
    expect([row["why"] for row in found[len(good):]] == ["outside"] * 3 + ["no-times"] * 4, f"hostile: {[row['why'] for row in found[len(good):]]}")
    expect(int(found[-1]["wait_ns"]) == last["first"] - last["sent"] and found[-1]["out_ns"] == "-1", f"hostile: {found[-1]}")
    report = tool.report(schedule, {"client.jsonl": text})
    [clock] = report["client_clocks"]
    expect(clock["timed"] == len(found) and clock["failed"] == 4 and clock["requests"] == len(found) + len(no_clock), f"hostile: {clock}")


def write_inputs(folder):
    """The pair that golden cases and the page's test use."""
    schedule = Schedule(1, 60)
    with gzip.GzipFile(folder / "client_stages.json.gz", "wb", mtime=0) as out:
        out.write(json.dumps(schedule.trace()).encode())
    every = schedule.requests + moved(schedule.requests[:2], -600_000_000) + [schedule.requests[3] | {"error": "TimeoutError"}]
    (folder / "client_stages.jsonl").write_text(aiperf(every))
    (folder / "client_stages_late.jsonl").write_text(aiperf(moved(schedule.requests, 3_000_000)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary")
    parser.add_argument("--write", type=pathlib.Path, help="write the inputs of the golden cases into this folder instead")
    options = parser.parse_args()
    if options.write:
        return write_inputs(options.write)
    binary = options.binary
    with tempfile.TemporaryDirectory() as folder:
        tool = Tool(binary, pathlib.Path(folder))
        for seed in (1, 2, 3):
            schedule = Schedule(seed, 60)
            requests = schedule.requests
            far = moved(requests[:3], -600_000_000) + moved(requests[-2:], 900_000_000)
            failed = [requests[4] | {"sent": requests[4]["sent"] + 11, "error": "TimeoutError"}]
            every = requests + far + failed
            check_rows(tool, schedule, every, f"schedule {seed}")
            report = tool.report(schedule, {"client.jsonl": aiperf(every)})
            clock = check_report(report, "client.jsonl", schedule, every, f"schedule {seed}")
            expect(clock["apart_ms"] is None and clock["timed"] == len(every), f"schedule {seed}: {clock}")
            check_bounds(clock, schedule, every, f"schedule {seed}")
            # A clock that is ahead by 3 ms cannot be the recorder's, one that is ahead by seconds has nothing recorded.
            for shift in (3_000_000, -3_000_000):
                shifted = moved(requests, shift)
                expect(not schedule.fits(0, shifted), f"schedule {seed}: 3 ms fit, plant another")
                report = tool.report(schedule, {"client.jsonl": aiperf(shifted)})
                [clock] = report["client_clocks"]
                expect("client_stages" not in report and clock["waits"] == 0, f"schedule {seed}, {shift}: split")
                least = round((clock["apart_ms"] or 0) * 1e6)
                expect(0 < least <= 3_000_000, f"schedule {seed}, {shift}: apart by {least}")
                expect(not any(schedule.fits(sign * least * i // 100, shifted) for i in range(100) for sign in (-1, 1)), f"schedule {seed}: {least} is too much")
                expect("differ by at least" in why_of(report), f"schedule {seed}: {why_of(report)}")
            report = tool.report(schedule, {"client.jsonl": aiperf(moved(requests, 5_000_000_000))})
            [clock] = report["client_clocks"]
            expect("client_stages" not in report and clock["outside"] == len(requests) and "wholly in recorded time" in why_of(report),
                   f"schedule {seed}, 5 s: {clock}")
        schedule = Schedule(7, 40, alone=True)
        clock = check_report(tool.report(schedule, {"client.jsonl": aiperf(schedule.requests)}), "client.jsonl", schedule, schedule.requests, "alone")
        expect(clock["alone"] == clock["waits"] > 2, f"alone: {clock}")
        one = schedule.requests[1:2]
        check_rows(tool, schedule, one, "one request")
        check_report(tool.report(schedule, {"client.jsonl": aiperf(one)}), "client.jsonl", schedule, one, "one request")
        # Two files, one with doubles of seconds, which keep 240 ns; and one without a wall clock.
        report = tool.report(schedule, {"client.jsonl": aiperf(one), "guide.json": guidellm(schedule.requests), "vllm.json": vllm(schedule.requests)})
        check_report(report, "client.jsonl", schedule, one, "two files")
        check_report(report, "guide.json", schedule, schedule.requests, "guidellm", tolerance=1e-3)
        [clock] = [row for row in report["client_clocks"] if row["source"] == "vllm.json"]
        expect(clock["timed"] == clock["waits"] == 0 and "wall clock" in clock["why"], f"vllm: {clock}")
        check_hostile(tool)
        text = tool.run("analyze", *tool.write(schedule, {"client.jsonl": aiperf(schedule.requests)}), "--no-store")
        expect("While they waited" in text and "client's clock is ahead by" in text, f"page: {text}")
    print("\n".join(problems) or "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
