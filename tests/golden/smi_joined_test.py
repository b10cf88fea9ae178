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

        def report(name, text):
            (root / name).write_text(text)
            done = subprocess.run([binary, "analyze", str(root / "trace.json"), str(root / name), "--format", "json", "--gpu", "h200-sxm"],
                                  capture_output=True, text=True, timeout=120)
            if done.returncode not in (0, 3):
                problems.append(f"{name}: exit {done.returncode}: {done.stderr}")
                return {}, ""
            found = json.loads(done.stdout)
            return found.get("telemetry") or {}, json.dumps([found.get("cannot_tell"), found.get("diagnostics")])

        for zone in (-8, 0, 5.75, 2):
            # Printed at s, taken within s to s + 1: surely inside are 0 to 18 (19 may be at the end, up to 20 - 0.1 ms).
            sign = "-" if zone < 0 else "+"
            text = f"UTC{sign}{int(abs(zone)):02}:{round(abs(zone) % 1 * 60):02}"
            telemetry, why = report("dmon.txt", dmon(zone, -5, 30))
            expect(telemetry.get("nvml_samples") == 19, f"dmon {zone}: {telemetry.get('nvml_samples')} readings, 19 planted")
            expect((telemetry.get("power_w") or {}).get("mean") == 309, f"dmon {zone}: power {telemetry.get('power_w')}")
            expect(text in why and "0 to 1000 ms" in why and "1 by index" in why, f"dmon {zone}: {why}")
            telemetry, why = report("query.csv", query(zone))
            expect(telemetry.get("nvml_samples") == 200, f"query {zone}: {telemetry.get('nvml_samples')} readings, 200 planted")
            expect((telemetry.get("power_w") or {}).get("mean") == 399.5, f"query {zone}: power {telemetry.get('power_w')}")
            expect(text in why and "0 to 1 ms" in why, f"query {zone}: {why}")
        for name, text, reason in (("hour.txt", dmon(2, -1000, 1000), "zone is not known"), ("other.txt", dmon(2, 100, 200), "in no time zone"),
                                   ("gpu.txt", dmon(2, -5, 30, gpu=3), "none of its GPUs"), ("name.csv", query(2, "NVIDIA L4"), "none of its GPUs")):
            telemetry, why = report(name, text)
            expect(not telemetry and reason in why, f"{name}: {telemetry.get('nvml_samples')}: {why}")
    print("\n".join(problems) or "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
