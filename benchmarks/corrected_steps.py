#!/usr/bin/env python3
"""Recorded steps without what recording costs, beside the unrecorded steps of the same run, as a user's run has both.

    python3 benchmarks/corrected_steps.py [--programs a,b] [--seconds 20] [--state corrected_steps.json]

The programs of benchmarks/recorded_steps.py, each once under `llmprof run` in its default mode, which leaves most of the time
unrecorded. Given are the medians of unrecorded steps and of recorded ones as they were; how far the latter without what
recording costs, by costs fitted to this program (overhead.calls_factor), are off the former: all of them, and those that ran
at the full pace of the host, for hosts that are virtual machines have slow spells of seconds, in which one kind may lie by
chance; of these those that ran within a second of one of the other kind, for program and host change their pace for good as
well; and how far they are off next to changes of recording by what `llmprof peaks` measured on the machine alone (agree_frac),
which is what a run too short for a factor has. A program passes with 2 % at full pace; "few" where fewer than ten steps of
either kind ran so.

--again runs nothing: this llmprof analyses the recordings in --keep once more, by the costs that are in them.
"""
import bisect
import json
import os
import pathlib
import statistics
import subprocess
import sys

os.environ.setdefault("LLMPROF_STORE", "off")  # nothing of this among the runs of whoever calls it

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/gpu"), str(ROOT / "benchmarks")]
import harness
from recorded_steps_target import PROGRAMS

LIMIT = 0.02
STEPS_LEAST = 10
NEAR_S = 1
FULL_PACE = 0.92

PROGRAM = """
import sys, time
sys.path[:0] = [sys.argv[1]]
import recorded_steps_target, torch
with torch.inference_mode():
    program = recorded_steps_target.PROGRAMS[sys.argv[2]]()
    until = time.monotonic() + float(sys.argv[3])
    while time.monotonic() < until:
        program.step()
        program.wait()
"""


def at_full_pace(report, stage):
    """Corrected steps and unrecorded ones, (when, ms), of those that ran at the full pace of the host (base/pace_work.h)."""
    found = {"recorded": [], "unrecorded": []}
    for step in report["steps"]:
        kind = step["recording"]
        if step["stage"] != stage or step["warm_up"] or kind not in found or (step["host_pace_frac"] or 0) < FULL_PACE:
            continue
        ms = step["undisturbed_ms"] if kind == "recorded" else step["duration_ns"] / 1e6
        if ms is not None:
            found[kind].append((step["start_unix_ns"], ms))
    return found["recorded"], found["unrecorded"]


def near(steps, others):
    """Those of `steps` that began within NEAR_S of one of `others`."""
    at = sorted(when for when, _ in others)
    def is_near(when):
        place = bisect.bisect_left(at, when)
        return any(abs(at[i] - when) <= NEAR_S * 1e9 for i in (place - 1, place) if 0 <= i < len(at))
    return [(when, ms) for when, ms in steps if is_near(when)]


def off_frac(corrected, alone):
    """By how much medians differ; None where there are few."""
    if min(len(corrected), len(alone)) < STEPS_LEAST:
        return None
    return statistics.median(ms for _, ms in corrected) / statistics.median(ms for _, ms in alone) - 1


def figures_of(report):
    """None where the report has no stage with both kinds of steps."""
    rows = [row for row in report.get("undisturbed") or [] if row["unrecorded_ms"] is not None and row["replayed_ms"] is not None]
    if not rows:
        return None
    row, overhead = max(rows, key=lambda one: one["recorded_steps"]), report["overhead"]
    corrected, alone = at_full_pace(report, row["stage"])
    neighbours = near(corrected, alone), near(alone, corrected)
    return {"unrecorded_ms": row["unrecorded_ms"], "unrecorded_steps": row["unrecorded_steps"],
            "recorded_ms": row["recorded_ms"], "recorded_steps": row["recorded_steps"], "replayed_ms": row["replayed_ms"],
            "recorded_frac": row["recorded_ms"] / row["unrecorded_ms"] - 1,
            "all_steps_frac": row["replayed_ms"] / row["unrecorded_ms"] - 1,
            "full_pace_frac": off_frac(corrected, alone), "full_pace_steps": [len(corrected), len(alone)],
            "near_frac": off_frac(*neighbours), "near_steps": [len(steps) for steps in neighbours], "by_machine_frac": row["agree_frac"],
            "calls_factor": overhead["calls_factor"], "calls_factor_error": overhead["calls_factor_error"],
            "changes": overhead["calls_factor_changes"]}


def verdict(row):
    if row.get("full_pace_frac") is None:
        return "few"
    return "yes" if abs(row["full_pace_frac"]) <= LIMIT else "NO"


def main():
    parser = harness.arguments(__doc__, "corrected_steps.json")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help=f"of {','.join(PROGRAMS)}")
    parser.add_argument("--seconds", type=float, default=20, help="of steps")
    parser.add_argument("--again", action="store_true", help="analyse the recordings in --keep once more")
    args = parser.parse_args()
    names = [name for name in args.programs.split(",") if name]
    if unknown := [name for name in names if name not in PROGRAMS]:
        parser.error(f"no program {', '.join(unknown)}: expected of {', '.join(PROGRAMS)}")
    if args.again and not args.keep:
        parser.error("--again needs --keep FOLDER, where the recordings are")
    state = harness.State(args.state, args.fresh or args.again)
    if args.again:
        for name in names:
            state.put(name, analysed(args, name))
    elif not measure(args, names, state):
        return 1
    return show(args, names, state)


def analysed(args, name):
    session = pathlib.Path(args.keep) / name / "session"
    done = subprocess.run([args.llmprof, "analyze", str(session), "--quiet", "--json"], capture_output=True, text=True)
    report = json.loads(done.stdout) if done.returncode == 0 else None
    found = figures_of(report) if report else None
    return found or {"error": "no stage with recorded and unrecorded steps" if report else done.stderr.strip()[-300:]}


def measure(args, names, state):
    """False where what recording costs cannot be measured."""
    budget = harness.Budget(args.budget)
    state.save(machine=harness.machine(args.python))
    done = subprocess.run([args.llmprof, "peaks", "--recorder-only", "--quiet", "--json", "--device", "cuda:0"],
                          capture_output=True, text=True, timeout=args.timeout)
    costs = json.loads(done.stdout).get("recorder") if done.returncode == 0 else None
    if not costs:
        print(f"what recording costs here cannot be measured: {done.stderr.strip()[-300:]}")
        return False
    state.save(costs=costs)
    for name in names:
        if name in state and "error" not in state.get(name):
            print(f"{name}: measured before")
            continue
        if budget.spent(args.seconds + 30):
            print(f"{name}: not started, {args.seconds + 30:.0f} s are more than is left of --budget")
            continue
        command = [args.python, "-B", "-c", PROGRAM, str(ROOT / "benchmarks"), name, f"{args.seconds:g}"]
        outcome = harness.profile(args, [], command, name)
        failed = outcome.failure() or (None if outcome.report else "no report")
        found = None if failed else figures_of(outcome.report)
        state.put(name, found or {"error": failed or "no stage with recorded and unrecorded steps"})
    return True


def show(args, names, state):
    summary = {name: row for name, row in state.results().items()}
    state.save(summary=summary)
    harness.write_summary(args, state)
    percent = lambda frac: None if frac is None else f"{100 * frac:+.2f} %"
    harness.print_table(
        ["program", "unrecorded, ms", "steps", "recorded, ms", "steps", "recorded", "corrected, all steps", "at full pace",
         "steps", "within 1 s of each other", "steps", "beside changes, by the machine alone",
         "factor", "changes", "within 2 %"],
        [[name, row["unrecorded_ms"], row["unrecorded_steps"], row["recorded_ms"], row["recorded_steps"],
          percent(row["recorded_frac"]), percent(row["all_steps_frac"]), percent(row["full_pace_frac"]),
          "{} to {}".format(*row["full_pace_steps"]), percent(row["near_frac"]), "{} to {}".format(*row["near_steps"]),
          percent(row["by_machine_frac"]),
          None if row["calls_factor"] is None else f"{row['calls_factor']:.2f} +- {row['calls_factor_error']:.2f}",
          row["changes"], verdict(row)]
         for name, row in summary.items() if "error" not in row])
    for name, row in summary.items():
        if "error" in row:
            print(f"{name}: {row['error']}")
    return 0 if all(name in summary and verdict(summary[name]) == "yes" for name in names) else 1


if __name__ == "__main__":
    sys.exit(main())
