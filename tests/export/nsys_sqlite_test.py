#!/usr/bin/env python3
"""`llmprof export --to nsys-sqlite`: read back by llmprof it gives the same report, and plain SQL on it gives the numbers
of the recording.

A recording of Nsight Systems gives the same report but for the diagnostics of tables that a trace has no room for. Of
others an export has no shapes' types, no Python stacks and no library calls: what follows from times is the same.
"""

import argparse
import json
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
INPUTS = ROOT / "tests/golden/inputs"
OF_NSYS = ("nsys_2023.sqlite", "nsys_2026.sqlite")
# With the stages that a program's ranges name.
WITH_RANGES = ("kineto_qwen2.5-0.5b_annotated.json.gz", "pipeline_two_gpus.json.gz", "two_streams.json.gz",
               "copies_pinned.json.gz", "copies_pageable.json.gz", "item_per_step.json.gz")
OTHERS = ("kineto_qwen2.5-0.5b_cuda_graph.json.gz", "tensor_parallel_rank0.json.gz", "hostile_names.json.gz",
          "no_gpu_events.json.gz", "streams.spool", HERE / "live.llmprof")
OF_TIME = ("name", "device", "count", "wall_ms", "gpu_busy_ms", "gpu_idle_ms", "kernels", "launches")
problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)
    return condition


def run(binary, *words):
    return subprocess.run([binary, *map(str, words)], capture_output=True, text=True, timeout=250, check=False)


def report_of(binary, path):
    done = run(binary, "analyze", path, "--json")
    expect(done.returncode in (0, 3), f"{path}: exit {done.returncode}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


def differences(a, b, path=""):
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(set(a) | set(b)):
            yield from differences(a.get(key), b.get(key), f"{path}/{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for number, (one, other) in enumerate(zip(a, b)):
            yield from differences(one, other, f"{path}[{number}]")
    elif a != b:
        yield path, a, b


def check_report_of_nsys(binary, name, exported):
    before, after = report_of(binary, INPUTS / name), report_of(binary, exported)
    expect(not any(row["key"] == "damaged-table" for row in after["diagnostics"]), f"{name}: {after['diagnostics']}")
    for report in (before, after):
        report.pop("diagnostics")
        report["source"].pop("files")
        report["source"].pop("recording")
        report["source"].pop("bytes", None)
    for path, a, b in list(differences(before, after))[:5]:
        expect(False, f"{name}: {path}: {str(a)[:200]}, read back {str(b)[:200]}")


def check_times(binary, name, recording, exported):
    before, after = report_of(binary, recording), report_of(binary, exported)
    rows = [[{key: stage[key] for key in OF_TIME} for stage in report["stages"]] for report in (before, after)]
    for path, a, b in list(differences(*rows))[:5]:
        expect(False, f"{name}: stages{path}: {a}, read back {b}")
    for path, a, b in list(differences(before["latency"], after["latency"]))[:5]:
        expect(False, f"{name}: latency{path}: {a}, read back {b}")


def check_rows(binary, name, recording, exported, folder):
    """Sums by SQL over both databases, which have nothing in common but the recording."""
    own = folder / "own.sqlite"
    own.unlink(missing_ok=True)
    done = run(binary, "export", recording, "--to", "sqlite", "-o", own, "-q")
    expect(done.returncode in (0, 3), f"{name} to sqlite: {done.stderr}")
    a, b = sqlite3.connect(own), sqlite3.connect(exported)
    a.text_factory = b.text_factory = lambda raw: raw.decode("utf-8")
    expect(b.execute("PRAGMA integrity_check").fetchone()[0] == "ok", f"{name}: integrity")
    tables = {row[0] for row in b.execute("SELECT name FROM sqlite_master")}
    whole = "g.name = '[CUDA graph, nodes not recorded]'"
    questions = [
        ("kernels by name", f"SELECT g.name, COUNT(*), SUM(g.dur_ns), MIN(g.start_ns) FROM gpu_ops g WHERE kind = 'kernel' AND NOT {whole} "
         "GROUP BY 1 ORDER BY 1",
         "SELECT value, COUNT(*), SUM(end - start), MIN(start) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = demangledName "
         "GROUP BY 1 ORDER BY 1"),
        ("graphs as a whole", f"SELECT COUNT(*), SUM(dur_ns) FROM gpu_ops g WHERE {whole}",
         "SELECT COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"),
        ("copies", "SELECT COUNT(*), SUM(dur_ns), SUM(bytes) FROM gpu_ops WHERE kind = 'memcpy'",
         "SELECT COUNT(*), SUM(end - start), SUM(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY"),
        ("copies to the GPU", "SELECT COUNT(*) FROM gpu_ops WHERE path = 'host-to-device'",
         "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 1"),
        ("memsets", "SELECT COUNT(*), SUM(dur_ns) FROM gpu_ops WHERE kind = 'memset'",
         "SELECT COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_MEMSET"),
        ("calls by name", "SELECT name, COUNT(*), SUM(dur_ns) FROM api_calls GROUP BY 1 ORDER BY 1",
         "SELECT value, COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId GROUP BY 1 ORDER BY 1"),
        ("calls and what they launched",
         "SELECT COUNT(*), SUM(g.start_ns - c.start_ns) FROM gpu_ops g JOIN api_calls c ON c.correlation = g.correlation "
         f"WHERE g.correlation <> 0 AND g.kind = 'kernel' AND NOT {whole}",
         "SELECT COUNT(*), SUM(k.start - r.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r "
         "ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24 WHERE k.correlationId <> 0"),
        ("grids", "SELECT SUM(grid_x), SUM(block_x), SUM(NULLIF(registers_per_thread, -1)) FROM gpu_ops g JOIN launch_configs c ON c.row = g.config "
         "WHERE c.grid_x >= 0", "SELECT SUM(gridX), SUM(blockX), SUM(registersPerThread) FROM CUPTI_ACTIVITY_KIND_KERNEL"),
        ("ranges", "SELECT (SELECT COUNT(*) FROM annotations WHERE thread IS NOT NULL) + (SELECT COUNT(*) FROM ops) + "
         "(SELECT COUNT(*) FROM python_calls)", "SELECT COUNT(*) FROM NVTX_EVENTS WHERE eventType = 59"),
    ]
    for what, ours, theirs in questions:
        if "GRAPH_TRACE" in theirs and "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" not in tables:
            theirs = "SELECT 0, NULL"
        found, wanted = b.execute(theirs).fetchall(), a.execute(ours).fetchall()
        expect(found == wanted, f"{name}: {what}: {found[:3]}, of the recording {wanted[:3]}")
    a.close()
    b.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    binary = str(pathlib.Path(parser.parse_args().binary).resolve())
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for recording in (*OF_NSYS, *WITH_RANGES, *OTHERS):
            path = INPUTS / recording  # an absolute path stays
            exported = folder / f"{path.name}.sqlite"
            done = run(binary, "export", path, "--to", "nsys-sqlite", "-o", exported, "-q")
            if not expect(done.returncode in (0, 3) and not done.stderr, f"{path.name}: exit {done.returncode}: {done.stderr}"):
                continue
            check_rows(binary, path.name, path, exported, folder)
            if recording in OF_NSYS:
                check_report_of_nsys(binary, recording, exported)
            elif recording in WITH_RANGES:
                check_times(binary, path.name, path, exported)
    for problem in problems[:20]:
        print(problem)
    print(f"{len(problems)} problems" if problems else "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
