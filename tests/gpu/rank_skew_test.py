#!/usr/bin/env python3
"""A rank that is late, in a tensor-parallel program of one process a GPU.

    python3 tests/gpu/rank_skew_test.py [--gpus 2] [--state rank_skew.json]

One rank is late by a known time a step, once in the work of its GPU and once in its host code. In the default mode
rank-skew must name that GPU, the wait that it gives must be the planted one, and what it says the step would take must be
what the program takes when no rank is late: both run alone, by turns. It comes first, or behind the finding of the late
rank's host code. A run in which no rank is late must not have the finding. The model is wide enough that its GPUs, not its hosts, set
the pace: else each host's own delays are waits as well.
"""
import statistics
import sys

import harness

WAIT_TOLERANCE = 0.05
GAIN_TOLERANCE = 0.15  # of the saving
HOST_WAIT_TOLERANCE = 0.15  # host code of one rank is hidden in part where its GPU still works
LATE_US = 600
CASES = {"even": [], "gpu": ["--late-rank", "1", "--late-by", "gpu"], "host": ["--late-rank", "1", "--late-by", "host"]}


def command(args, name):
    return [args.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(args.gpus),
            str(harness.WORKLOADS / "tensor_parallel.py"), "--hidden", "8192", "--steps", str(args.steps), "--late-us", str(LATE_US), *CASES[name]]


def run(args, name):
    outcome = harness.profile(args, [], command(args, name), name)
    if outcome.failure() or outcome.report is None or outcome.result is None:
        return {"error": outcome.failure() or "no report or no RESULT line: " + outcome.stderr.strip()[-300:]}
    return {"result": outcome.result,
            "stages": [{key: row[key] for key in ("name", "device", "count", "wall_ms")} for row in outcome.report["stages"]],
            "findings": [{key: row[key] for key in ("id", "severity", "stage", "title", "gain", "evidence")}
                         for row in outcome.report["findings"]],
            "path": outcome.report["critical_path"],
            "latency": (outcome.report["latency"] or {}).get("headline"),
            "diagnostics": [[row["key"], row["text"][:160]] for row in outcome.report["diagnostics"]]}


def alone(args, name):
    done = harness.execute(command(args, name), args.timeout)
    result = harness.result_of(done.stdout)
    return result["tpot_ms"] if result else None


def problems_of(name, found, alone_ms):
    if "error" in found:
        return [f"{name}: {found['error']}"]
    skew = [row for row in found["findings"] if row["id"] == "rank-skew" and "GPU 0" in row["title"]]
    if name == "even":
        return [f"{name}: {row['title']}, though no rank is late" for row in found["findings"] if row["id"] == "rank-skew"]
    if not skew:
        return [f"{name}: no finding of GPU 0's waits"]
    evidence = {row["metric"]: row["value"] for row in skew[0]["evidence"]}
    problems, gain = [], skew[0]["gain"]
    # What a host does before it is late is a finding of its own, and comes first.
    first = found["findings"][0]["id"]
    if first != {"gpu": "rank-skew", "host": "host-preprocessing"}[name]:
        problems.append(f"{name}: the first finding is {first}")
    if evidence.get("of its waiting, for GPU 1", 0) < 0.9:
        problems.append(f"{name}: the late GPU is not named: {list(evidence)}")
    wait_ms = evidence["waiting in collectives per step"]
    tolerance = WAIT_TOLERANCE if name == "gpu" else HOST_WAIT_TOLERANCE
    if abs(wait_ms / (LATE_US / 1e3) - 1) > tolerance:
        problems.append(f"{name}: waits of {wait_ms} ms a step, planted {LATE_US / 1e3}")
    real = 1 - statistics.median(alone_ms["even"]) / statistics.median(alone_ms[name])
    given = 1 - gain["to"] / gain["from"] if gain else 0
    if abs(given / real - 1) > GAIN_TOLERANCE:
        problems.append(f"{name}: a gain of {given:.3f}, really {real:.3f}")
    return problems


def main():
    parser = harness.arguments(__doc__, "rank_skew_results.json")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    for name in CASES:
        if (name not in state or "error" in state.get(name)) and not budget.spent(40):
            state.put(name, run(args, name))
    for turn in range(args.rounds):
        for name in CASES:
            key = f"alone {name} {turn}"
            if key not in state and not budget.spent(30):
                state.put(key, alone(args, name))
    alone_ms = {name: [ms for key, ms in state.results().items() if key.startswith(f"alone {name} ") and ms]
                for name in CASES}
    missing = [name for name in CASES if name not in state or not alone_ms[name]]
    problems = [f"{name}: not run" for name in missing]
    if not missing:
        problems += [problem for name in CASES for problem in problems_of(name, state.get(name), alone_ms)]
    waits = {name: [row for row in state.get(name).get("findings", []) if row["id"] == "rank-skew"]
             for name in CASES if name in state}
    state.save(summary={"passed": not problems, "problems": problems, "alone_ms": alone_ms, "rank_skew": waits})
    harness.write_summary(args, state)
    print(alone_ms, "\n".join(problems) or "all right", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
