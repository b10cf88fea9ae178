#!/usr/bin/env python3
"""Logs of nvidia-smi that no driver writes, beside a recording: nothing crashes, and only what is surely known is placed."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from smi_joined_test import START_S, dmon, expect, local, problems, trace

ROWS_MANY = 1_000_000


class Reports:
    def __init__(self, binary, root):
        self.binary, self.root = binary, root

    def of(self, *texts, codes=(0,)):
        """The recording beside logs of these texts: report, and the rows of joined_files in that order."""
        names = []
        for i, text in enumerate(texts):
            names.append(self.root / f"log{i}.txt")
            names[-1].write_text(text)
        done = subprocess.run([self.binary, "analyze", str(self.root / "trace.json"), *map(str, names), "--json", "--gpu", "h200-sxm"],
                              capture_output=True, text=True, timeout=240)
        expect(done.returncode in codes, f"exit {done.returncode}: {done.stderr[-1000:]}")
        if not done.stdout:
            return {"stderr": done.stderr}, []
        report = json.loads(done.stdout)
        return report, report["joined_files"]


def query(rows, uuid="", columns="timestamp, index, uuid, power.draw [W]"):
    return columns + "\n" + "".join(f"{local(START_S + s, 2):%Y/%m/%d %H:%M:%S.%f}"[:23] + f", 0, {uuid}, {watt} W\n" for s, watt in rows)


def check_dates(reports):
    good = dmon(2, -5, 30)
    head, lines = good.splitlines(True)[:2], good.splitlines(True)[2:]
    bad = [f" {date}   {time}      0    9999   1\n" for date, time in (("00010101", "00:00:00"), ("99991231", "23:59:59"), ("-0010101", "00:00:00"),
                                                                       ("20261301", "10:00:00"), ("20261120", "-1:00:00"), ("20261120", "99:99:99"))]
    report, [row] = reports.of("".join(head + bad[:3] + lines[:20] + bad[3:] + lines[20:]))
    expect((row["records"], row["matched"]) == (35, 19), f"dates: {row}")
    expect(report["telemetry"]["power_w"]["max"] < 400, f"dates: {report['telemetry']['power_w']}")
    # Years that are read, but in which nothing was recorded.
    for date in ("19700102", "20301231"):
        report, rows = reports.of("".join(head) + f" {date}   00:00:00      0    9999   1\n")
        expect(rows and rows[0]["matched"] == 0 and "in no time zone" in rows[0]["why"] and not report["telemetry"], f"{date}: {rows}")
    # One such line stretches the log over all zones: nothing is placed.
    report, [row] = reports.of("".join(head) + " 19700102   00:00:00      0    9999   1\n" + "".join(lines))
    expect(row["matched"] == 0 and "zone is not known" in row["why"], f"stretched: {row}")
    report, rows = reports.of("".join(head + bad), codes=(1,))
    expect("expected a line of samples" in report.get("stderr", ""), f"no line: {report}")


def check_order(reports):
    lines = dmon(2, -5, 30).splitlines(True)
    _, [row] = reports.of("".join(lines))
    _, [back] = reports.of("".join(lines[:2] + lines[:1:-1]))
    _, [mixed] = reports.of("".join(lines[:2] + lines[2::2] + lines[3::2]))
    for other in (back, mixed):
        expect(other == row, f"order: {other}, sorted {row}")


def check_zones(reports):
    """Two logs of one GPU by clocks of different zones: each is read by its own, and one of them is used."""
    _, rows = reports.of(dmon(2, -5, 30), dmon(-8, -5, 30))
    expect([row["offset_s"] for row in rows] == [0.5 - 2 * 3600, None] and [row["matched"] for row in rows] == [19, 0], f"zones: {rows}")
    _, rows = reports.of(dmon(-8, -5, 30), dmon(2, -5, 30))
    expect([row["offset_s"] for row in rows] == [0.5 + 8 * 3600, None] and [row["matched"] for row in rows] == [19, 0], f"zones: {rows}")


def check_uuids(reports):
    """Recordings of torch.profiler name no uuid: the index is all there is, whatever the log's uuid looks like."""
    for uuid in ("GPU-00000000-1111-2222-3333-444444444444", "GPU-", "GPU-" + "9" * 3000, "\x01\x7f"):
        _, [row] = reports.of(query([(s / 4 + 0.001, 300) for s in range(-8, 100)], uuid))
        # At 1 ms past each quarter of a second from 0 to 19.75 s.
        expect((row["joined_by"], row["records"], row["matched"]) == ("time and GPU index", 108, 80), f"uuid {uuid[:20]}: {row}")


def check_many(reports):
    """A million readings over 400 s, of which those within the recording's 20 s are used."""
    start_ms, step_us = -190_000, 400
    report, [row] = reports.of("timestamp, index, power.draw [W]\n" + "".join(many_lines(start_ms, step_us)))
    expect(row["records"] == ROWS_MANY, f"many: {row['records']}")
    # A reading of ms m was taken in [m, m + 1): surely inside are 0 to 19998 (the last kernel ends at 19999.9 ms); 2.5 of each.
    inside = sum(1 for i in range(ROWS_MANY) if 0 <= (start_ms * 1000 + i * step_us) // 1000 <= 19_998)
    expect(row["matched"] == inside, f"many: {row['matched']} matched, {inside} planted")
    expect(report["telemetry"]["power_w"]["mean"] == 250, f"many: {report['telemetry']['power_w']}")


def many_lines(start_ms, step_us):
    base = local(START_S, 2)
    midnight = base.replace(hour=0, minute=0, second=0)
    day = f"{base:%Y/%m/%d}"
    first_us = round((base - midnight).total_seconds()) * 1_000_000 + start_ms * 1000
    for i in range(ROWS_MANY):
        ms = (first_us + i * step_us) // 1000
        yield f"{day} {ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}.{ms % 1000:03}, 0, 250 W\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    with tempfile.TemporaryDirectory() as folder:
        reports = Reports(binary, pathlib.Path(folder))
        (reports.root / "trace.json").write_text(json.dumps(trace()))
        for check in (check_dates, check_order, check_zones, check_uuids, check_many):
            check(reports)
    print("\n".join(problems) or "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
