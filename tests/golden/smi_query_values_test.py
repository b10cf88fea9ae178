#!/usr/bin/env python3
"""Logs of nvidia-smi --query-gpu, against the same text read with Python's csv, datetime and fractions.

Every row of nvml_samples and devices that `llmprof export` has must be what the text holds, and the report's means, extremes and
shares of throttling must follow from it. Then the log is written in the other ways in which nvidia-smi or a script writes it
(without units, in another order of columns, without an index, with CRLF, behind a line of noise): the rows must stay the same.
"""

import argparse
import csv
import datetime
import fractions
import gzip
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

INPUTS = pathlib.Path(__file__).resolve().parent / "inputs"
EPOCH = datetime.datetime(1970, 1, 1)
MIB = 1 << 20
# Column of the table: (columns of the log, best first; factor).
VALUES = {"gpu_util_frac": (["utilization.gpu"], fractions.Fraction(1, 100)), "memory_util_frac": (["utilization.memory"], fractions.Fraction(1, 100)),
          "sm_clock_mhz": (["clocks.current.sm", "clocks.current.graphics"], 1), "memory_clock_mhz": (["clocks.current.memory"], 1),
          "power_w": (["power.draw", "power.draw.average", "power.draw.instant"], 1), "temperature_c": (["temperature.gpu"], 1),
          "memory_temperature_c": (["temperature.memory"], 1), "memory_used_bytes": (["memory.used"], MIB),
          "throttle_power_ns": (["clocks_event_reasons_counters.sw_power_cap"], 1000)}
BITS = {"gpu_idle": 1, "sw_power_cap": 4, "hw_slowdown": 8, "sw_thermal_slowdown": 32, "hw_thermal_slowdown": 64}
UNKNOWN = (1 << 64) - 1

problems = []


def expect(condition, text):
    if not condition and len(problems) < 20:
        problems.append(text)
    return condition


def run(binary, *arguments):
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    expect(done.returncode in (0, 3), f"{arguments}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def readings_of(text):
    """One dictionary for each line: base name of the column -> text, without what is absent. A cut line loses its last cell."""
    found, header = [], None
    lines = text.split("\n")
    for number, cells in enumerate(csv.reader(lines, skipinitialspace=True)):
        cells = [cell.strip() for cell in cells]
        if not cells:
            continue
        names = [re.sub(r" \[.*\]$", "", cell) for cell in cells]
        if "timestamp" in names:
            header = names
            continue
        if number == len(lines) - 1:
            cells.pop()
        found.append({name: cell for name, cell in zip(header, cells) if not re.fullmatch(r"\[.*\]|N/A|", cell)})
    return found


def number_of(reading, names):
    for name in names:
        if name in reading:
            return fractions.Fraction(reading[name].split()[0])
    return None


def reasons_of(reading):
    for key, text in reading.items():
        if key.endswith("_reasons.active"):
            return int(text, 16)
    known = [(bit, reading[key]) for name, bit in BITS.items() for key in [f"clocks_event_reasons.{name}"] if key in reading]
    return sum(bit for bit, text in known if text == "Active") if known else UNKNOWN


def time_of(reading):
    when = datetime.datetime.strptime(reading["timestamp"], "%Y/%m/%d %H:%M:%S.%f") - EPOCH
    return (when.days * 86400 + when.seconds) * 10**9 + when.microseconds * 1000


def table(folder, name):
    with open(folder / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def same(text, exact):
    if exact is None:
        return text in ("", "nan", "-1")
    return text not in ("", "nan") and abs(float(text) - float(exact)) <= 1e-6 * max(1, abs(float(exact)))


def check_rows(binary, folder, file, readings):
    run(binary, "export", file, "--to", "csv", "-o", folder)
    rows = table(folder, "nvml_samples")
    start = time_of(readings[0])
    wanted = sorted(readings, key=time_of)
    if not expect(len(rows) == len(wanted), f"{file}: {len(rows)} rows, {len(wanted)} lines"):
        return
    for row, reading in zip(rows, wanted):
        where = f"{file.name} {reading['timestamp']}"
        expect(int(row["time_ns"]) == time_of(reading) - start, f"{where} at {row['time_ns']}")
        expect(row["device"] == reading.get("index", "0"), f"{where}: GPU {row['device']}")
        expect(int(row["throttle_reasons"]) == reasons_of(reading), f"{where}: reasons {row['throttle_reasons']}, {reasons_of(reading)}")
        for column, (names, factor) in VALUES.items():
            value = number_of(reading, names)
            expect(same(row[column], None if value is None else value * factor), f"{where}: {column} is {row[column]}, the log has {value}")
    devices = {row["device"]: row for row in table(folder, "devices")}
    for reading in readings:
        device = devices[reading.get("index", "0")]
        expect(device["name"] == reading["name"] and device["uuid"] == reading.get("uuid", ""), f"{file.name}: {device}")
        if "memory.total" in reading:
            expect(int(device["memory_bytes"]) == number_of(reading, ["memory.total"]) * MIB, f"{file.name}: {device}")
    print(f"{file.name}: {len(rows)} rows, {len(devices)} GPUs")


def check_report(binary, file, readings):
    """Over the first GPU; the last line ends the window and is not in it."""
    telemetry = json.loads(run(binary, "analyze", file, "--json"))["telemetry"]
    own = [reading for reading in readings if reading.get("index", "0") == "0"]
    start, end = min(map(time_of, readings)), max(map(time_of, readings))
    inside = [reading for reading in own if start <= time_of(reading) < end]
    expect(telemetry["nvml_samples"] == len(inside), f"{file.name}: {telemetry['nvml_samples']} samples, {len(inside)}")
    for key, column in (("power_w", "power_w"), ("sm_clock_mhz", "sm_clock_mhz"), ("temperature_c", "temperature_c")):
        values = [float(value) for reading in inside if (value := number_of(reading, VALUES[column][0])) is not None]
        for name, wanted in (("n", len(values)), ("mean", statistics.fmean(values)), ("min", min(values)), ("max", max(values))):
            expect(abs(telemetry[key][name] - wanted) <= 1e-6 * abs(wanted), f"{file.name}: {key} {name} {telemetry[key][name]}, {wanted}")
    peak = max(number_of(reading, ["memory.used"]) for reading in inside) * MIB
    expect(telemetry["memory_used_peak_bytes"] == peak, f"{file.name}: peak {telemetry['memory_used_peak_bytes']}, {peak}")
    return telemetry, inside


def trapezoids(points):
    pairs = zip(points, points[1:])
    return sum((after - before) * (low + high) / 2 / 10**9 for (before, low), (after, high) in pairs)


def rewritten(text, change):
    """The log with each line's cells changed: change(names, cells, is_header)."""
    lines, names = [], None
    for line in text.splitlines():
        cells = line.split(", ")
        header = cells[0] == "timestamp"
        names = cells if header else names
        lines.append(", ".join(change(names, list(cells), header)))
    return "\n".join(lines) + "\n"


def check_variants(binary, folder, text):
    text = text[:text.rindex("\n") + 1]  # whole lines
    plain = folder / "plain.csv"

    def rows_of(name, content, newline="\n"):
        file = folder / f"{name}.csv"
        file.write_text(content, newline=newline)
        run(binary, "export", file, "--to", "csv", "-o", folder / name)
        return table(folder / name, "nvml_samples"), table(folder / name, "devices")

    wanted = rows_of("plain", text)
    expect(plain.exists() and len(wanted[0]) == len(readings_of(text)), "the log itself")

    def without(*columns):
        def change(names, cells, _):
            return [cell for name, cell in zip(names, cells) if name not in columns]
        return change

    variants = {
        "nounits": rewritten(text, lambda names, cells, header: cells if header else [re.sub(r" (W|MHz|MiB|%|us)$", "", cell) for cell in cells]),
        "no_units_in_names": rewritten(text, lambda names, cells, header: [re.sub(r" \[.*\]$", "", cell) for cell in cells] if header else cells),
        "reversed": rewritten(text, lambda names, cells, _: cells[::-1] if cells[0] else cells),
        "no_index": rewritten(text, without("index")),
        "old_names": text.replace("clocks_event_reasons.", "clocks_throttle_reasons."),
        "short_names": text.replace("clocks.current.graphics", "clocks.gr").replace("clocks.current.memory", "clocks.mem"),
        "noise": "nohup: ignoring input\n" + text,
        "bom": "\ufeff" + text,
    }
    for name, content in variants.items():
        expect(rows_of(name, content) == wanted, f"{name}: other rows")
    expect(rows_of("crlf", text, newline="\r\n") == wanted, "CRLF: other rows")
    # Back by an hour at the restart: all rows are kept, and it is said.
    head, tail = text.rsplit("timestamp,", 1)
    back = folder / "back.csv"
    back.write_text(head + "timestamp," + tail.replace(" 10:00:", " 09:00:").replace(" 10:01:", " 09:01:"))
    report = json.loads(run(binary, "analyze", back, "--json"))
    run(binary, "export", back, "--to", "csv", "-o", folder / "back")
    expect(len(table(folder / "back", "nvml_samples")) == len(wanted[0]), "a clock that was set back: all rows")
    expect(any(row["key"] == "unsorted-events" and row["count"] == 2 for row in report["diagnostics"]), "a clock that was set back is said so")
    print(f"{len(variants) + 2} variants")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        real, made = INPUTS / "smi_query.csv.gz", INPUTS / "smi_query_gpus.csv"
        texts = gzip.decompress(real.read_bytes()).decode(), made.read_text()
        for number, (file, text) in enumerate(zip((real, made), texts)):
            check_rows(binary, folder / f"export{number}", file, readings_of(text))
        telemetry, inside = check_report(binary, real, readings_of(texts[0]))
        energy = trapezoids([(time_of(reading), number_of(reading, ["power.draw"])) for reading in readings_of(texts[0])])
        expect(abs(telemetry["energy_j"] - energy) <= 1e-6 * energy, f"energy {telemetry['energy_j']}, {float(energy)}")
        telemetry, inside = check_report(binary, made, readings_of(texts[1]))
        # One counter; of the others only the two reasons that every line has.
        rows = {row["reason"]: row for row in telemetry["throttle"]}
        expect(sorted(rows) == ["hardware", "power-cap"] and rows["power-cap"]["source"] == "counter", f"{rows}")
        counts = [number_of(reading, ["clocks_event_reasons_counters.sw_power_cap"]) for reading in inside]
        expect(telemetry["energy_j"] is None, "no energy over the time between two logs")
        share = float((counts[-1] - counts[0]) * 1000) / (telemetry["window_ms"] * 1e6)
        expect(abs(rows["power-cap"]["frac"] - share) < 1e-3, f"{rows['power-cap']}, {share}")
        check_variants(binary, folder, texts[1])
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
