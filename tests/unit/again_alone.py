#!/usr/bin/env python3
"""Runs a test binary whose cases go by real time: windows of recording open and close by the clock, and a machine that
stands still for a second moves them.

    again_alone.py BINARY [OPTION...]

Cases that fail are run again, nothing beside them, and count as passed only if they pass three times in a row. What
failed stays in the log, so that a case which fails now and then is seen. A binary that crashes or does not end is
a failure at once.
"""
import json
import subprocess
import sys
import tempfile

TIMES = 3


def failed_cases(result):
    return [
        f"{suite['name']}.{case['name']}"
        for suite in result["testsuites"]
        for case in suite["testsuite"]
        if case.get("failures")
    ]


def main():
    binary, options = sys.argv[1], sys.argv[2:]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        first = subprocess.run([binary, *options, f"--gtest_output=json:{file.name}"], check=False).returncode
        if first == 0:
            return 0
        try:
            failed = failed_cases(json.load(open(file.name, encoding="utf-8")))
        except ValueError:
            print(f"{binary} ended with {first} before its results were written")
            return 1
    if not failed:
        return 1
    names = ":".join(failed)
    print(f"\n== again, alone, {TIMES} times: {names}", flush=True)
    again = subprocess.run([binary, f"--gtest_filter={names}", f"--gtest_repeat={TIMES}"], check=False).returncode
    if again == 0:
        print(f"== failed once and passed {TIMES} times alone: {names}")
    return 1 if again else 0


sys.exit(main())
