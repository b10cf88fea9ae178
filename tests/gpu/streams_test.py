#!/usr/bin/env python3
"""Streams, events and the edges of CUDA graphs, as recorded and replayed.

    python3 tests/gpu/streams_test.py [--state streams.json]

A program whose steps are ordered by an event between two streams, by a wait for one stream of two, and by a graph that forks
and joins. Nothing of that may be missing in the recording; replay gives back the steps that it has not learned from
within 2 %; and the GPU work on the critical path is that of the kernels that a step cannot hide, by the program's own
timers. Once more with unrecorded windows, in which CUPTI leaves and comes back.
"""
import sys

import harness

ERROR_MOST = 0.02        # of a judged step's window
KERNELS_TOLERANCE = 0.03  # of the kernels on the path: the clock moves a little
UNEXPLAINED_MOST = 0.03
CASES = {
    "whole": (["--unrecorded-windows", "off"], ["--steps", "60"], ["events", "one_stream", "graph"]),
    # Some seconds, so that there is a second recorded window.
    "windows": ([], ["--steps", "2500", "--stages", "events,one_stream"], ["events", "one_stream"]),
}


def run(args, name):
    options, words, stages = CASES[name]
    command = [args.python, str(harness.WORKLOADS / "streams.py"), *words]
    stages = [word for stage in stages for word in ("--stage", f"{stage}=^{stage}$")]
    outcome = harness.profile(args, [*options, *stages], command, name)
    if outcome.failure() or outcome.report is None or outcome.result is None:
        return {"error": outcome.failure() or "no report or no RESULT line: " + outcome.stderr.strip()[-300:]}
    return {"result": outcome.result, "path": outcome.report.get("critical_path", []),
            "diagnostics": [entry["key"] for entry in outcome.report["diagnostics"]]}


def problems_of(name, found):
    if "error" in found:
        return [f"{name}: {found['error']}"]
    problems, rows = [], {row["stage"]: row for row in found["path"]}
    for stage, truth in found["result"]["stages"].items():
        row, where = rows.get(stage), f"{name}, {stage}"
        if row is None:
            problems.append(f"{where}: no critical path; there are {sorted(rows)}")
            continue
        if row["not_recorded"]:
            problems.append(f"{where}: not recorded: {row['not_recorded']}")
        if not row["judged"] or row["error_worst_frac"] > ERROR_MOST:
            problems.append(f"{where}: replay misses a step by {row['error_worst_frac']}, of {row['judged']} judged")
        if abs(row["gpu_work_ms"] / truth["kernels_ms"] - 1) > KERNELS_TOLERANCE:
            problems.append(f"{where}: {row['gpu_work_ms']} ms of GPU work on the path, expected {truth['kernels_ms']}")
        if abs(row["unexplained_ms"]) > UNEXPLAINED_MOST * row["step_ms"]:
            problems.append(f"{where}: {row['unexplained_ms']} ms of {row['step_ms']} unexplained")
    return problems


def main():
    args = harness.arguments(__doc__, "streams_results.json").parse_args()
    return harness.run_cases(args, CASES, lambda name: run(args, name), problems_of, 60)


if __name__ == "__main__":
    sys.exit(main())
