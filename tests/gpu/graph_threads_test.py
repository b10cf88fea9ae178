#!/usr/bin/env python3
"""Threads that launch CUDA graphs, while the recorder's CUPTI is asked to leave the process and comes back.

    python3 tests/gpu/graph_threads_test.py [--state graph_threads.json]

Every graph's result is checked by the program. CUPTI must have left it at least once, and, once it was gone, have come
back for another recorded window. One case has one thread, whose stream is never idle for long.
"""
import sys

import harness

CASES = {"three threads": ["--threads", "3"], "two threads": ["--threads", "2"], "one thread": ["--threads", "1"]}


def run(args, words):
    command = [args.python, str(harness.WORKLOADS / "graph_threads.py"), "--seconds", "5", *words]
    outcome = harness.profile(args, ["--counters", "off"], command, "graph_threads")
    if outcome.failure() or outcome.report is None or outcome.result is None:
        return {"error": outcome.failure() or "no report or no RESULT line: " + outcome.stderr.strip()[-300:]}
    spans = [(row["level"], row["reason"], round(row["duration_ns"] / 1e9, 3)) for row in outcome.report["recorded"]]
    return {"result": outcome.result, "spans": spans,
            "diagnostics": [[entry["key"], entry["text"][:200]] for entry in outcome.report["diagnostics"]]}


def problems_of(name, found):
    if "error" in found:
        return [f"{name}: {found['error']}"]
    problems = []
    if found["result"]["wrong"] or not found["result"]["launched"]:
        problems.append(f"{name}: {found['result']['wrong']} checks of {found['result']['launched']} launches failed")
    left = [i for i, span in enumerate(found["spans"]) if span[1] == "detached"]
    if not left:
        problems.append(f"{name}: CUPTI never left")
    elif not any(level in ("default", "deep") for level, _, _ in found["spans"][left[0]:]):
        problems.append(f"{name}: CUPTI never came back")
    return problems


def main():
    args = harness.arguments(__doc__, "graph_threads_results.json").parse_args()
    return harness.run_cases(args, CASES, lambda name: run(args, CASES[name]), problems_of, 25)


if __name__ == "__main__":
    sys.exit(main())
