#!/usr/bin/env python3
"""Output of dcgmi dmon: logs written here as dcgmi/DeviceMonitor.cpp of DCGM prints them, from planted values.

Every row that `llmprof export` has must be what was planted, and the report's figures must follow from it by this file's own
arithmetic. Then the log is written in other ways (older header, other order of columns, text cells, MIG, damage).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from smi_query_values_test import table

# Short name: (unit line, width, places) of dcgmlib/src/dcgm_fields.cpp; a column is 6 wider, and 2 apart from the next.
FIELDS = {"GRACT": ("", 5, 3), "SMACT": ("", 5, 3), "SMOCC": ("", 5, 3), "TENSO": ("", 5, 3), "DRAMA": ("", 5, 3), "FP32A": ("", 5, 3),
          "POWER": (" W", 10, 3), "TMPTR": (" C", 5, 0), "MMTMP": ("C", 10, 0), "SMCLK": ("", 5, 0), "MMCLK": ("", 5, 0), "GPUTL": ("", 10, 0),
          "MCUTL": ("", 10, 0), "FBUSD": ("", 10, 0), "TOTEC": (" mJ", 16, 0), "PCITX": ("", 20, 0), "PCIRX": ("", 20, 0), "NVLTX": ("", 20, 0),
          "NVLRX": ("", 20, 0), "DVCCTR": ("", 20, 0), "DVNAM": ("", 20, None)}
SECOND = 10**9
# Column of a table: (short name, factor).
NVML = {"gpu_util_frac": ("GPUTL", 0.01), "memory_util_frac": ("MCUTL", 0.01), "sm_clock_mhz": ("SMCLK", 1), "memory_clock_mhz": ("MMCLK", 1),
        "power_w": ("POWER", 1), "energy_j": ("TOTEC", 0.001), "temperature_c": ("TMPTR", 1), "memory_temperature_c": ("MMTMP", 1),
        "memory_used_bytes": ("FBUSD", 2**20), "throttle_reasons": ("DVCCTR", 1)}
COUNTERS = {"gr_active_frac": "GRACT", "sm_active_frac": "SMACT", "warps_active_frac": "SMOCC", "tensor_active_frac": "TENSO",
            "dram_active_frac": "DRAMA", "pcie_write_bytes_per_s": "PCITX", "pcie_read_bytes_per_s": "PCIRX", "nvlink_tx_bytes_per_s": "NVLTX",
            "nvlink_rx_bytes_per_s": "NVLRX"}
problems = []


def expect(condition, text):
    if not condition and len(problems) < 20:
        problems.append(text)


def planted(line, gpu):
    """What GPU `gpu` shows on a line; the first line of a watch has no counters yet."""
    busy = (line * 7 + gpu * 3) % 10 / 10
    values = {"GRACT": busy, "SMACT": round(busy * 0.9, 3), "SMOCC": round(busy / 4, 3), "TENSO": round(busy / 3, 3), "DRAMA": round(busy / 2, 3),
              "FP32A": 0.125, "POWER": 100 + 50 * busy + gpu / 8, "TMPTR": 40 + line % 5, "MMTMP": 50 + line % 3, "SMCLK": 1980 - 15 * (line % 2),
              "MMCLK": 2619, "GPUTL": int(100 * busy), "MCUTL": int(40 * busy), "FBUSD": 1000 + 10 * line + gpu, "TOTEC": 10**12 + 125000 * line,
              "PCITX": 10**9 + line, "PCIRX": 2 * 10**9 + line, "NVLTX": 3 * 10**11 + line, "NVLRX": 4 * 10**11 + line,
              "DVCCTR": 4 if line % 4 == 1 else 0, "DVNAM": "NVIDIA H100 80GB HBM3"}
    if line == 0:
        for name in COUNTERS.values():
            values[name] = None
    return values


def cell(name, value):
    _, width, places = FIELDS[name]
    text = "N/A" if value is None else value if places is None else f"{value:.{places}f}"
    width += 6
    return (text if len(text) <= width else text[:width - 3] + "...").ljust(width + 2)


def header(names, old=False):
    first = ("# Entity" if old else "#Entity").ljust(10)
    units = ("      Id" if old else "ID").ljust(10)
    return [first + "".join(cell_of(name, name) for name in names), units + "".join(cell_of(name, FIELDS[name][0]) for name in names)]


def cell_of(name, text):
    return text.ljust(FIELDS[name][1] + 8)


def log(names, lines, gpus, old=False, extra=lambda line: []):
    out = header(names, old)
    for line in range(lines):
        for gpu in range(gpus):
            out.append(f"GPU {gpu}".ljust(10) + "".join(cell(name, planted(line, gpu)[name]) for name in names))
        out += extra(line)
        if line % 14 == 13:  # MAX_PRINT_HEADER_COUNT
            out += header(names, old)
    return "\n".join(out) + "\n"


def same(text, wanted):
    if wanted is None:
        return text in ("", "nan", "-1")
    return text not in ("", "nan") and abs(float(text) - wanted) <= 2e-7 * max(1, abs(wanted))


class Check:
    def __init__(self, binary, root):
        self.binary, self.root = binary, root

    def run(self, *arguments, codes=(0,)):
        done = subprocess.run([self.binary, *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=self.root)
        expect(done.returncode in codes, f"{arguments}: exit {done.returncode}: {done.stderr}")
        return done

    def rows(self, name, text, lines, gpus, fields, codes=(0,)):
        """Every row of both tables, by planted(); counters lie in the second before their line."""
        (self.root / name).write_text(text)
        out = self.root / f"{name}.csv"
        self.run("export", name, "--to", "csv", "-o", out, codes=codes)
        rows = {(int(row["time_ns"]), int(row["device"])): row for row in table(out, "nvml_samples")}
        expect(set(rows) == {(line * SECOND, gpu) for line in lines for gpu in gpus}, f"{name}: rows at {sorted(rows)[:5]}")
        counters = {(int(row["start_ns"]), int(row["device"])): row for row in table(out, "gpu_samples")} if (out / "gpu_samples.csv").exists() else {}
        counted = [line for line in lines if line > 0] if any(field in COUNTERS.values() for field in fields) else []
        expect(set(counters) == {((line - 1) * SECOND, gpu) for line in counted for gpu in gpus}, f"{name}: counters at {sorted(counters)[:5]}")
        for (time, gpu), row in rows.items():
            values = planted(time // SECOND, gpu)
            for column, (field, factor) in NVML.items():
                wanted = None if field not in fields else values[field] * factor
                if column == "throttle_reasons" and wanted is None:
                    wanted = 2**64 - 1
                expect(same(row[column], wanted), f"{name} line {time // SECOND} GPU {gpu}: {column} is {row[column]}, planted {wanted}")
        for (start, gpu), row in counters.items():
            expect(row["source"] == "dcgm" and row["dur_ns"] == str(SECOND), f"{name}: {row['source']} {row['dur_ns']}")
            for column, field in COUNTERS.items():
                wanted = planted(start // SECOND + 1, gpu)[field] if field in fields else None
                expect(same(row[column], wanted), f"{name} at {start} GPU {gpu}: {column} is {row[column]}, planted {wanted}")
        return rows

    def report(self, *names, codes=(0,)):
        done = self.run("analyze", *names, "--json", codes=codes)
        return json.loads(done.stdout or "{}")

    def diagnostic(self, report, name):
        return {row["key"]: row["count"] for row in report.get("diagnostics") or []}.get(name, 0)


def check_figures(check, name, lines):
    """The last line ends the window; counters of lines 1 on fill it."""
    report = check.report(name)
    got = report["telemetry"]
    inside = [planted(line, 0) for line in range(lines - 1)]
    counted = [planted(line, 0) for line in range(1, lines)]
    expect(got["nvml_samples"] == lines - 1 and got["counter_samples"] == lines - 1, f"{name}: {got['nvml_samples']}, {got['counter_samples']}")
    expect(got["counter_source"] == "dcgm" and got["counter_coverage_frac"] == 1, f"{name}: {got['counter_source']}")
    wanted = {"gpu_util_frac": statistics.fmean(v["GPUTL"] for v in inside) / 100, "energy_j": 125 * (lines - 1),
              "memory_used_peak_bytes": max(v["FBUSD"] for v in inside) * 2**20}
    for key, field in (("gr_active_frac", "GRACT"), ("sm_active_frac", "SMACT"), ("tensor_active_frac", "TENSO"), ("dram_frac", "DRAMA"),
                       ("pcie_rx_bytes_per_s", "PCIRX"), ("pcie_tx_bytes_per_s", "PCITX"), ("nvlink_rx_bytes_per_s", "NVLRX"),
                       ("nvlink_tx_bytes_per_s", "NVLTX")):
        wanted[key] = statistics.fmean(v[field] for v in counted)
    for key, value in wanted.items():
        expect(abs(got[key] - value) <= 1e-6 * max(1, value), f"{name}: {key} is {got[key]}, planted {value}")
    for key, field in (("power_w", "POWER"), ("temperature_c", "TMPTR"), ("sm_clock_mhz", "SMCLK")):
        mean = statistics.fmean(v[field] for v in inside)
        expect(abs(got[key]["mean"] - mean) <= 1e-6 * mean, f"{name}: {key} {got[key]['mean']}, planted {mean}")
    held = {row["reason"]: row["frac"] for row in got["throttle"]}
    share = sum(v["DVCCTR"] == 4 for v in inside) / len(inside)
    expect(abs(held.get("power-cap", -1) - share) < 1e-9, f"{name}: throttling {held}, planted {share}")
    expect(check.diagnostic(report, "assumed-times") == 2 * lines, f"{name}: {report['diagnostics']}")


def check_damage(check, good):
    lines = good.splitlines(True)
    broken = lines[:2] + ["GPU 0     0.5\n", "nonsense\n", "GPU x     1  2  3\n", "GPU 4000  0.5 100\n", "GPU 1     1.75  -\n", "GPU 0     0.500  75.000\n"]
    (check.root / "broken.txt").write_text("".join(broken))
    report = check.report("broken.txt")
    expect(check.diagnostic(report, "malformed-event") == 3, f"broken: {report['diagnostics']}")
    expect(check.diagnostic(report, "missing-field") == 1, f"broken: {report['diagnostics']}")
    expect(check.diagnostic(report, "bad-number") == 2, f"broken: {report['diagnostics']}")
    (check.root / "cut.txt").write_text(good.rstrip()[:-2])
    report = check.report("cut.txt", codes=(3,))
    expect(check.diagnostic(report, "truncated-file") == 1, f"cut: {report['diagnostics']}")
    blank = "".join(lines[:2]) + "GPU 0     140737488355328.000  140737488355330.000\n"
    (check.root / "blank.txt").write_text(blank)
    report = check.report("blank.txt")
    expect(report["telemetry"]["power_w"] is None and not report["telemetry"]["counter_samples"], f"blank: {report['telemetry']}")
    for name, text, reason in (("switch.txt", "".join(lines[:2]) + "GPU-I 21  0.5  75.0\n", 'only those of "GPU-I"'),
                               ("error.txt", "".join(lines[:2]) + "Error setting watches. Result: -33: not loaded\n", "found none"),
                               ("empty.txt", "".join(lines[:2]), "found none")):
        (check.root / name).write_text(text)
        done = check.run("analyze", name, codes=(1,))
        expect(reason in done.stderr and "try:" in done.stderr, f"{name}: {done.stderr}")


def check_joined(check, good):
    events = [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": i * 1000, "dur": 900,
               "args": {"device": 0, "context": 1, "stream": 7, "correlation": i + 1}} for i in range(5000)]
    (check.root / "trace.json").write_text(json.dumps({"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
                                                       "baseTimeNanoseconds": 1795600000 * SECOND, "traceEvents": events}))
    (check.root / "beside.txt").write_text(good)
    report = check.report("trace.json", "beside.txt")
    [row] = report["joined_files"]
    expect(row["format"] == "dcgm-dmon" and row["matched"] == 0 and row["joined_by"] is None and "prints no times" in row["why"], f"joined: {row}")
    expect(row["records"] == row["not_matched"] == 10, f"joined: {row}")
    expect(not report["telemetry"], f"joined: {report['telemetry']}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--write", metavar="FILE", help="only writes the log of the case analyze/dcgm_dmon")
    arguments = parser.parse_args()
    most = [name for name in FIELDS if name != "DVNAM"]
    if arguments.write:
        pathlib.Path(arguments.write).write_text(log(most, 20, 2))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        check = Check(pathlib.Path(arguments.binary).resolve(), pathlib.Path(folder))
        check.rows("all.txt", log(most, 40, 2), range(40), range(2), most)
        check_figures(check, "all.txt", 40)
        few = ["TENSO", "POWER"]
        check.rows("old.txt", log(few, 20, 1, old=True), range(20), range(1), few)
        check.rows("order.txt", log(most[::-1], 20, 3), range(20), range(3), most)
        check.rows("text.txt", log(["POWER", "DVNAM", "SMACT"], 5, 2), range(5), range(2), ["POWER", "SMACT"])
        check.rows("slow.txt", log(["POWER"], 5, 8), range(5), range(8), ["POWER"])
        check.rows("crlf.txt", log(few, 20, 2).replace("\n", "\r\n"), range(20), range(2), few)
        parts = log(few, 6, 2, extra=lambda line: ["GPU-I 21".ljust(10) + cell("TENSO", 0.5) + cell("POWER", None),
                                                   "GPU-CI 3".ljust(10) + cell("TENSO", 0.5) + cell("POWER", None)])
        check.rows("mig.txt", "some message of the host engine\n" + parts + "\n\ndmon was stopped do to receiving a signal\n",
                   range(6), range(2), few)
        expect(check.diagnostic(check.report("mig.txt"), "unknown-category") == 2, "mig: entities that are not kept count once each")
        two = log(few, 2, 1).splitlines(True)
        (check.root / "one.txt").write_text("".join(two[:2] + two[3:]))
        single = check.report("one.txt")
        expect(abs((single["telemetry"]["tensor_active_frac"] or 0) - planted(1, 0)["TENSO"]) < 1e-6, f"one line: {single['telemetry']}")
        check_damage(check, log(few, 5, 1))
        check_joined(check, log(few, 5, 2))
    for problem in problems:
        print("FAILED:", problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
