#!/usr/bin/env python3
"""Logs of nvidia-smi beside a recording: planted zones and clocks must be found, and nothing be placed where they cannot be.

The recording is written here: one GPU, kernels over 20 s from a known Unix time, so every answer is this file's own arithmetic.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

START_S = 1795600000  # Unix time of the first kernel
LENGTH_S = 20
problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)


def trace():
    events = [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": i * 1000, "dur": 900,
               "args": {"device": 0, "context": 1, "stream": 7, "correlation": i + 1}} for i in range(LENGTH_S * 1000)]
    return {"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0}],
            "baseTimeNanoseconds": START_S * 10**9, "traceEvents": events}


# Busy and idle by turns, of lengths that no shift of 20 s maps onto themselves: seconds at which it changes, busy first.
CHANGES_S = (0, 5, 9, 16, 19, 28, 36, 41, 52, 56, 64, 71, 75, 84, 90)
PATTERN = list(zip(CHANGES_S[::2], CHANGES_S[1::2])) + [(CHANGES_S[-1], CHANGES_S[-1] + 6)]


def pattern_trace():
    spans = [(start * 1000 + i, 1) for start, end in PATTERN for i in range((end - start) * 1000)]
    return {**trace(), "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": ms * 1000, "dur": 950,
                                       "args": {"device": 0, "context": 1, "stream": 7, "correlation": i + 1}} for i, (ms, _) in enumerate(spans)]}


def loaded(zone_h, shift_s, first_s=-5, last_s=101, load=None):
    """A log of dmon of that load, printed at s and taken at s + 0.3 over half a second; its clock is shift_s ahead."""
    lines = ["#Date       Time        gpu     sm    pwr", "#YYYYMMDD   HH:MM:SS    Idx      %      W"]
    for s in range(first_s, last_s):
        at = s + 0.3
        share = sum(max(0, min(at, end) - max(at - 0.5, start)) for start, end in PATTERN) / 0.5
        lines.append(f" {local(START_S + s + shift_s, zone_h):%Y%m%d   %H:%M:%S}      0    {round(100 * share) if load is None else load}    300")
    return "\n".join(lines) + "\n"


def local(unix_s, zone_h):
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=unix_s + zone_h * 3600)


def dmon(zone_h, first_s, last_s, gpu=0):
    lines = ["#Date       Time        gpu    pwr   pclk", "#YYYYMMDD   HH:MM:SS    Idx      W    MHz"]
    lines += [f" {local(START_S + s, zone_h):%Y%m%d   %H:%M:%S}      {gpu}    {300 + s}   {1500 + s}" for s in range(first_s, last_s)]
    return "\n".join(lines) + "\n"


def query(zone_h, name="NVIDIA H200"):
    lines = ["timestamp, index, name, power.draw [W], clocks.current.sm [MHz]"]
    lines += [f"{local(START_S + i / 10 + 0.001, zone_h):%Y/%m/%d %H:%M:%S.%f}"[:23] + f", 0, {name}, {300 + i}.00 W, 1500 MHz" for i in range(-20, 220)]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "trace.json").write_text(json.dumps(trace()))
        joined = {}

        def report(name, text):
            (root / name).write_text(text)
            done = subprocess.run([binary, "analyze", str(root / "trace.json"), str(root / name), "--format", "json", "--gpu", "h200-sxm"],
                                  capture_output=True, text=True, timeout=120)
            if done.returncode not in (0, 3):
                problems.append(f"{name}: exit {done.returncode}: {done.stderr}")
                return {}, ""
            found = json.loads(done.stdout)
            [joined[name]] = found["joined_files"]
            expect(joined[name]["file"] == str(root / name), f"{name}: {joined[name]}")
            return found.get("telemetry") or {}, json.dumps([found.get("cannot_tell"), found.get("diagnostics")])

        def row(name, **wanted):
            got = {key: joined[name][key] for key in wanted}
            expect(got == wanted, f"{name}: joined_files has {got}, planted {wanted}")

        for zone in (-8, 0, 5.75, 2):
            # Printed at s, taken within s to s + 1: surely inside are 0 to 18 (19 may be at the end, up to 20 - 0.1 ms).
            sign = "-" if zone < 0 else "+"
            text = f"UTC{sign}{int(abs(zone)):02}:{round(abs(zone) % 1 * 60):02}"
            telemetry, why = report("dmon.txt", dmon(zone, -5, 30))
            expect(telemetry.get("nvml_samples") == 19, f"dmon {zone}: {telemetry.get('nvml_samples')} readings, 19 planted")
            expect((telemetry.get("power_w") or {}).get("mean") == 309, f"dmon {zone}: power {telemetry.get('power_w')}")
            expect(text in why and "0 to 1000 ms" in why and "1 by index" in why, f"dmon {zone}: {why}")
            row("dmon.txt", format="dmon", joined_by="time and GPU index", offset_s=0.5 - zone * 3600, offset_bound_s=0.5,
                records=35, matched=19, not_matched=16, why="16 lie outside the recording or at its edge")
            telemetry, why = report("query.csv", query(zone))
            expect(telemetry.get("nvml_samples") == 200, f"query {zone}: {telemetry.get('nvml_samples')} readings, 200 planted")
            expect((telemetry.get("power_w") or {}).get("mean") == 399.5, f"query {zone}: power {telemetry.get('power_w')}")
            expect(text in why and "0 to 1 ms" in why, f"query {zone}: {why}")
            row("query.csv", format="smi-query", joined_by="time and GPU index", offset_s=0.0005 - zone * 3600,
                offset_bound_s=0.0005, records=240, matched=200, not_matched=40)
        for name, text, reason in (("hour.txt", dmon(2, -1000, 1000), "zone is not known"), ("other.txt", dmon(2, 100, 200), "in no time zone"),
                                   ("gpu.txt", dmon(2, -5, 30, gpu=3), "none of its GPUs"), ("name.csv", query(2, "NVIDIA L4"), "none of its GPUs")):
            telemetry, why = report(name, text)
            expect(not telemetry and reason in why, f"{name}: {telemetry.get('nvml_samples')}: {why}")
            lines = len(text.splitlines()) - (2 if name.endswith("txt") else 1)
            row(name, joined_by=None, offset_s=None, offset_bound_s=None, records=lines, matched=0, not_matched=lines)
            expect(reason in joined[name]["why"], f"{name}: {joined[name]}")

        # Utilisation: right, 20 s off, of an idle GPU, over several zones; and a constant load, with which nothing tells the time.
        constant = (root / "trace.json").read_text()
        (root / "trace.json").write_text(json.dumps(pattern_trace()))
        for name, text, agree, why_said in (("right.txt", loaded(2, 0), 1, False), ("late.txt", loaded(2, 20), None, True),
                                            ("idle.txt", loaded(2, 0, load=0), None, True), ("hours.txt", loaded(2, 0, -3000, 3000), 1, False),
                                            ("hours_late.txt", loaded(2, 450, -3000, 3000), None, None)):
            telemetry, why = report(name, text)
            if why_said is None:
                expect(not telemetry and "does not tell" in why, f"{name}: {why}")
                continue
            got = joined[name]
            expect(got["utilisation_readings"] >= 20, f"{name}: {got}")
            expect(got["utilisation_agree_frac"] == 1 if agree else got["utilisation_agree_frac"] < 0.75, f"{name}: {got}")
            expect(("readings-contradict" in why) == why_said, f"{name}: {why}")
            expect(telemetry["nvml_samples"] > 70 and "UTC+02:00" in why, f"{name}: {why}")
        (root / "trace.json").write_text(constant)
        for load, contradicts in ((90, False), (0, True)):
            _, why = report("constant.txt", loaded(2, 0, 0, 19, load=load))
            got = joined["constant.txt"]
            expect(got["utilisation_readings"] > 10 and got["utilisation_agree_frac"] == (0 if contradicts else None), f"constant: {got}")
            expect(("readings-contradict" in why) == contradicts, f"constant: {why}")

        # Of two GPUs in the log the recording has one, and a second log of that one is left out.
        both = dmon(2, -5, 30) + "".join(dmon(2, -5, 30, gpu=3).splitlines(True)[2:])
        report("both.txt", both)
        row("both.txt", records=70, matched=19, not_matched=51,
            why="16 lie outside the recording or at its edge, 35 are of GPUs that are not in it")
        (root / "again.txt").write_text(dmon(2, -5, 30))
        (root / "page.txt").write_text("# HELP vllm:num_requests_running r\n# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3\n")
        names = ["trace.json", "dmon.txt", "again.txt", "page.txt"]
        done = subprocess.run([binary, "analyze", *(str(root / name) for name in names), "--json", "--gpu", "h200-sxm"], capture_output=True, text=True, timeout=120)
        rows = {pathlib.Path(one["file"]).name: one for one in json.loads(done.stdout)["joined_files"]}
        expect(sorted(rows) == sorted(names[1:]), f"several files: {rows}")
        expect((rows["dmon.txt"]["matched"], rows["again.txt"]["matched"]) == (19, 0), f"two logs: {rows}")
        expect("another log has readings" in rows["again.txt"]["why"], f"two logs: {rows}")
        expect([rows["page.txt"][key] for key in ("format", "joined_by", "records", "matched")] == ["prometheus", None, None, None], f"a page: {rows}")
        # Whatever is named first, all times are on the clock of the recording; of logs alone, on that of none.
        for given, recording in ((names, "trace.json"), (names[::-1], "trace.json"), (names[:1], "trace.json"), (["dmon.txt"], None),
                                 (["page.txt"], None), (["page.txt", "dmon.txt"], None)):
            done = subprocess.run([binary, "analyze", *(str(root / name) for name in given), "--json", "--gpu", "h200-sxm"], capture_output=True, text=True, timeout=120)
            source = json.loads(done.stdout)["source"] if done.stdout else {"recording": done.stderr}
            expect(source["recording"] == (recording and str(root / recording)), f"{given}: on the clock of {source}")
        # The saved recording has the same rows.
        saved = root / "saved.llmprof"
        subprocess.run([binary, "analyze", *(str(root / name) for name in names), "--save", str(saved), "--json"], capture_output=True, text=True, timeout=120)
        done = subprocess.run([binary, "analyze", str(saved), "--json", "--gpu", "h200-sxm"], capture_output=True, text=True, timeout=120)
        again = {pathlib.Path(one["file"]).name: one for one in json.loads(done.stdout)["joined_files"]} if done.stdout else done.stderr
        expect(again == rows, f"saved: {again}")
        # Text: under --full alone, with the reason; paths are not in it.
        done = subprocess.run([binary, "analyze", *(str(root / name) for name in names), "--full", "--redact"], capture_output=True, text=True, timeout=120)
        expect("Joined files" in done.stdout and "again.txt: another log" in done.stdout and str(root) not in done.stdout, f"--full: {done.stdout[-3000:]}")
    print("\n".join(problems) or "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
