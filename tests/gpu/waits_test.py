#!/usr/bin/env python3
"""Waits and copies to the host are recorded once each, whichever call of the runtime the program makes.

    python3 tests/gpu/waits_test.py [--state waits.json]

The recorder takes them at the driver alone, which holds only if every one of them comes by there: a program that waits a known
number of times, in every way of PyTorch, recorded whole. A few more at its end are its framework's.
"""
import sys

import harness

MORE_AT_END = 3


def run(args):
    options = ["--unrecorded-windows", "off", "--counters", "off"]
    outcome = harness.profile(args, options, [args.python, str(harness.WORKLOADS / "waits.py")], "waits")
    if outcome.failure() or outcome.report is None or outcome.result is None:
        return {"error": outcome.failure() or "no report or no RESULT line: " + outcome.stderr.strip()[-300:]}
    return {"expected": outcome.result["waits"], "recorded": sum(row["syncs"] or 0 for row in outcome.report["host"])}


def main():
    args = harness.arguments(__doc__, "waits_results.json").parse_args()
    state = harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    found = state.get("waits")
    if found is None or "error" in found:
        found = run(args)
        state.put("waits", found)
    passed = "error" not in found and 0 <= found["recorded"] - found["expected"] <= MORE_AT_END
    state.save(summary={"passed": passed, "waits": found})
    harness.write_summary(args, state)
    print(found, "all right" if passed else "WRONG")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
