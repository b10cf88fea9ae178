#!/usr/bin/env python3
"""Runs a test binary whose cases go by real time: windows of recording open and close by the clock, and a machine that
stands still for a second moves them.

    again_alone.py BINARY

Its cases mostly wait, so they run in two halves at once. Cases that fail are run again, nothing beside them, and count as passed only if they pass three times in a row. What
failed stays in the log, so that a case which fails now and then is seen. A binary that crashes or does not end is
a failure at once.
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

HALVES = 2
TIMES = 3


def failed_cases(result):
    return [
        f"{suite['name']}.{case['name']}"
        for suite in result["testsuites"]
        for case in suite["testsuite"]
        if case.get("failures")
    ]


def run_half(binary, half):
    """(exit code, cases that failed or None where it ended before it said so, what it printed)"""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = subprocess.run([binary, f"--gtest_output=json:{file.name}"], check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, errors="replace",
                              env={**os.environ, "GTEST_TOTAL_SHARDS": str(HALVES), "GTEST_SHARD_INDEX": str(half)})
        try:
            return done.returncode, failed_cases(json.load(open(file.name, encoding="utf-8"))), done.stdout
        except ValueError:
            return done.returncode, None, done.stdout


def main():
    binary = sys.argv[1]
    with concurrent.futures.ThreadPoolExecutor(HALVES) as pool:
        halves = list(pool.map(lambda half: run_half(binary, half), range(HALVES)))
    for _, _, said in halves:
        print(said, flush=True)
    for code, failed, _ in halves:
        if failed is None or (code != 0 and not failed):
            print(f"{binary} ended with {code} and does not say which case failed")
            return 1
    names = ":".join(name for _, failed, _ in halves for name in failed)
    if not names:
        return 0
    print(f"\n== again, alone, {TIMES} times: {names}", flush=True)
    again = subprocess.run([binary, f"--gtest_filter={names}", f"--gtest_repeat={TIMES}"], check=False).returncode
    if again == 0:
        print(f"== failed once and passed {TIMES} times alone: {names}")
    return 1 if again else 0


sys.exit(main())
