#!/usr/bin/env python3
"""The answers to the ten questions of docs/howto/read-the-page.md, by SQL and the standard library alone, from what `llmprof export
--to sqlite` wrote of a recording. Nothing of a report is read, so that a page and this agree only where both are right.

    ten_questions.py TRACE.sqlite      prints them as JSON
"""

import json
import re
import sqlite3
import statistics
import sys

MS = 1e-6


def union(intervals):
    """Intervals that cover the same time, none of them overlapping another."""
    out = []
    for start, end in sorted(intervals):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return out


def covered(busy, start, end):
    return sum(max(0, min(end, last) - max(start, first)) for first, last in busy if last > start and first < end)


def stages_of(database, device):
    """Steady steps by stage, with the time in which the device was busy: from its activities, not from the table of gaps."""
    busy = union((start, start + length) for start, length in database.execute(
        "SELECT g.start_ns, g.dur_ns FROM gpu_ops g JOIN streams s ON g.stream = s.row WHERE s.device = ?", (device,)))
    stages = {}
    for row, stage, kind, start, end, tokens, sequences in database.execute(
            "SELECT row, stage, kind, start_ns, end_ns, output_tokens, sequences FROM steps WHERE device = ? AND state = 'usual' AND "
            "phase = 'serving' ORDER BY start_ns", (device,)):
        entry = stages.setdefault(stage, {"kind": kind, "rows": [], "walls_ms": [], "busy_ms": [], "tokens": 0, "sequences": sequences})
        entry["rows"].append(row)
        entry["walls_ms"].append((end - start) * MS)
        entry["busy_ms"].append(covered(busy, start, end) * MS)
        entry["tokens"] += tokens
    window = database.execute("SELECT start_ns, end_ns FROM windows WHERE device = ?", (device,)).fetchone()
    for entry in stages.values():
        wall = sum(entry["walls_ms"])
        entry["wall_ms"] = wall
        entry["median_ms"] = statistics.median(entry["walls_ms"])
        entry["idle_frac"] = 1 - sum(entry["busy_ms"]) / wall
        entry["window_frac"] = wall / ((window[1] - window[0]) * MS)
    return stages


def heaviest(database, sql, stage=None):
    rows = database.execute(sql, () if stage is None else (stage,)).fetchall()
    return [list(row) for row in rows[:3]]


def product_flops(database, stage):
    """2 m n k of each matrix product that an operator of the framework launched, by the dimensions it was called with."""
    total, known = 0, False
    products = database.execute(
        "SELECT DISTINCT o.row, o.name, s.dims FROM gpu_links l JOIN steps t ON l.step = t.row JOIN ops o ON l.op = o.row "
        "JOIN signatures s ON o.signature = s.row WHERE t.stage = ? AND t.state = 'usual' AND t.phase = 'serving' "
        "AND o.name IN ('aten::mm', 'aten::addmm', 'aten::bmm')", (stage,))
    for _, name, dims in products:
        shapes = [list(map(int, re.findall(r"\d+", one))) for one in re.findall(r"\[([\d, ]*)\]", dims)]
        if name == "aten::addmm":
            shapes = shapes[1:]
        (*batch, m, k), (*_, n) = shapes[0], shapes[1]
        total += 2 * m * n * k * (batch[0] if batch else 1)
        known = True
    return total if known else None


def has(database, table):
    return database.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()[0] > 0


def main():
    database = sqlite3.connect(sys.argv[1])
    device = 0
    gpu = database.execute("SELECT name FROM devices WHERE device = ?", (device,)).fetchone()
    stages = stages_of(database, device)
    for stage, entry in stages.items():
        entry["categories"] = heaviest(
            database, "SELECT l.category, SUM(g.dur_ns) / 1e6 AS ms FROM gpu_links l JOIN gpu_ops g ON g.row = l.row JOIN steps t ON l.step "
            "= t.row WHERE t.stage = ? GROUP BY 1 ORDER BY 2 DESC", stage)
        entry["causes"] = heaviest(
            database, "SELECT p.cause, SUM(p.dur_ns) / 1e6 AS ms FROM gaps p JOIN steps t ON p.step = t.row WHERE t.stage = ? GROUP BY 1 "
            "ORDER BY 2 DESC", stage)
        entry["python"] = heaviest(
            database, "SELECT c.name, SUM(p.dur_ns) / 1e6 AS ms FROM gaps p JOIN steps t ON p.step = t.row JOIN python_calls c ON p.python = "
            "c.row WHERE t.stage = ? GROUP BY 1 ORDER BY 2 DESC", stage)
        entry["product_flops"] = product_flops(database, stage)
        del entry["rows"]
    kernels = heaviest(
        database, "SELECT g.name, t.stage, COUNT(*), SUM(g.dur_ns) / 1e6 AS ms, SUM(g.dur_ns) * 1.0 / (SELECT SUM(dur_ns) FROM gpu_ops) "
        "FROM gpu_links l JOIN gpu_ops g ON g.row = l.row LEFT JOIN steps t ON l.step = t.row LEFT JOIN works w ON l.work = w.row "
        "GROUP BY g.name, g.config, w.shape, t.stage ORDER BY 4 DESC")
    memory = database.execute("SELECT MAX(allocated_bytes), MAX(reserved_bytes) FROM memory_events WHERE device = ?", (device,)).fetchone()
    print(json.dumps({
        "gpu": gpu[0] if gpu else None, "stages": stages, "kernels": kernels, "peak_allocated_bytes": memory[0], "peak_reserved_bytes": memory[1],
        "host_work_frac": database.execute("SELECT TOTAL((cause = 'host-work') * dur_ns) / MAX(TOTAL(dur_ns), 1) FROM gaps").fetchone()[0],
        # What a recording does not hold, nobody can tell from it.
        "holds": {"memory": has(database, "memory_events"), "Python": has(database, "python_calls") or has(database, "host_places"),
                  "counters": has(database, "counters") or has(database, "gpu_samples"), "power": has(database, "nvml_samples")},
    }, indent=1))


if __name__ == "__main__":
    main()
