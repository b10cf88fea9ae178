#!/usr/bin/env python3
"""A rank that is late, in a tensor-parallel program of one process a GPU.

    python3 tests/gpu/rank_skew_test.py [--gpus 2] [--state rank_skew.json] [--keep FOLDER] [--again]

One rank is late by a known time a step, once in the work of its GPU and once in its host code. In the default mode
rank-skew must name that GPU, the wait that it gives must be the planted one, and what it says the step would take must be
what the program takes when no rank is late: both run alone, by turns. It comes first, or behind the finding of the late
rank's host code. A run in which no rank is late must not have the finding. The model is wide enough that its GPUs, not its
hosts, set the pace: else each host's own delays are waits as well.

--again runs nothing: this llmprof analyses the recordings in --keep once more.
"""
import json
import pathlib
import statistics
import subprocess
import sys

import harness

WAIT_TOLERANCE = 0.05
HOST_WAIT_TOLERANCE = 0.15  # host code of one rank is hidden in part where its GPU still works
GAIN_TOLERANCE = 0.15       # of the saving
LATE_US = 600
CASES = {"even": [], "gpu": ["--late-rank", "1", "--late-by", "gpu"], "host": ["--late-rank", "1", "--late-by", "host"]}
FIRST = {"gpu": "rank-skew", "host": "host-preprocessing"}


def command(args, name):
    return [args.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(args.gpus),
            str(harness.WORKLOADS / "tensor_parallel.py"), "--hidden", "8192", "--steps", str(args.steps),
            "--late-us", str(LATE_US), *CASES[name]]


def findings_of(report):
    return [{key: row[key] for key in ("id", "severity", "stage", "title", "gain", "evidence")}
            for row in report["findings"] if row["severity"] != "info"]


def run(args, name):
    outcome = harness.profile(args, [], command(args, name), name)
    if outcome.failure() or outcome.report is None or outcome.result is None:
        return {"error": outcome.failure() or "no report or no RESULT line: " + outcome.stderr.strip()[-300:]}
    alone_ms = {side: [] for side in {"even", name}}
    for _ in range(args.rounds):
        for side, times in alone_ms.items():
            result = harness.result_of(harness.execute(command(args, side), args.timeout).stdout)
            if result is None:
                return {"error": f"{side} alone has no RESULT line"}
            times.append(result["tpot_ms"])
    return {"findings": findings_of(outcome.report), "alone_ms": alone_ms}


def analyse_again(args):
    state = harness.State(args.state)
    for name in CASES:
        done = subprocess.run([args.llmprof, "analyze", str(pathlib.Path(args.keep) / name / "session"), "--json"],
                              capture_output=True, text=True, check=True)
        state.put(name, {**state.get(name), "findings": findings_of(json.loads(done.stdout))})


def problems_of(name, found):
    if "error" in found:
        return [f"{name}: {found['error']}"]
    skews = [row for row in found["findings"] if row["id"] == "rank-skew"]
    if name == "even":
        return [f"{name}: {row['title']}, though no rank is late" for row in skews]
    skew = next((row for row in skews if "GPU 0 waits" in row["title"]), None)
    if skew is None:
        return [f"{name}: no finding of GPU 0's waits"]
    problems, gain = [], skew["gain"]
    evidence = {row["metric"]: row["value"] for row in skew["evidence"]}
    first = found["findings"][0]["id"]
    if first != FIRST[name]:
        problems.append(f"{name}: the first finding is {first}")
    if evidence.get("of its waiting, for GPU 1", 0) < 0.9:
        problems.append(f"{name}: the late GPU is not named: {list(evidence)}")
    wait_ms = evidence["waiting in collectives per step"]
    tolerance = WAIT_TOLERANCE if name == "gpu" else HOST_WAIT_TOLERANCE
    if abs(wait_ms / (LATE_US / 1e3) - 1) > tolerance:
        problems.append(f"{name}: waits of {wait_ms} ms a step, planted {LATE_US / 1e3}")
    real = 1 - statistics.median(found["alone_ms"]["even"]) / statistics.median(found["alone_ms"][name])
    given = 1 - gain["to"] / gain["from"] if gain else 0
    if abs(given / real - 1) > GAIN_TOLERANCE:
        problems.append(f"{name}: a gain of {given:.3f}, really {real:.3f}")
    return problems


def main():
    parser = harness.arguments(__doc__, "rank_skew_results.json")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="analyse the recordings in --keep once more, and run nothing")
    args = parser.parse_args()
    if args.again:
        if not args.keep:
            parser.error("--again needs --keep, the folder with the recordings")
        analyse_again(args)
    return harness.run_cases(args, CASES, lambda name: run(args, name), problems_of, 90)


if __name__ == "__main__":
    sys.exit(main())
