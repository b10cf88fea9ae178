#!/usr/bin/env python3
"""Planted bottlenecks: the first finding names the cause that was put into a program, and its healthy twin is free of it.

    python3 tests/gpu/planted_test.py [--only ID,ID] [--state planted.json] [--budget SECONDS]

Rows are those of tests/clients/planted/planted.json. Exit code 0 if all rows that ran are right and none is missing.
--smoke runs the programs alone and briefly, several at a time: do they work on this machine?
"""
import concurrent.futures
import json
import subprocess
import sys

import harness

SECONDS_PER_RUN = 25  # what one program is expected to take at most, PyTorch's start included
SMOKE_JOBS = 4  # the largest need 30 GB of GPU memory


def command_of(args, row, words):
    source = harness.PROGRAMS / row["program"]
    if source.suffix == ".cu":
        return [harness.cuda_program(args, source), *words]
    return [args.python, str(source), *words]


def expect_first(row, findings):
    """(passed, the finding that stood first among those of the stage and of the whole recording)."""
    candidates = [finding for finding in findings if finding["stage"] in (row["stage"], "all")]
    named = [finding["id"] for finding in candidates]
    same = row.get("same_cause", [])
    for name in named:
        if name == row["finding"]:
            return True, named[0]
        if name not in same:
            break
    return False, named[0] if named else None


def describe(finding):
    return {"id": finding["id"], "stage": finding["stage"], "severity": finding["severity"], "title": finding["title"]}


def run_one(args, row, healthy):
    words = row["healthy_args"] if healthy else row["args"]
    if args.seconds:
        words = [*words, "--seconds", str(args.seconds)]
    name = row["id"] + ("-healthy" if healthy else "")
    outcome = harness.profile(args, [*args.options.split(), *row["options"]], command_of(args, row, words), name)
    out = {"seconds": round(outcome.seconds, 1), "result": outcome.result}
    if outcome.failure() or outcome.report is None:
        out.update(passed=False, error=outcome.failure() or "no report: " + outcome.stderr.strip()[-300:])
        return out
    findings = outcome.report["findings"]
    out["findings"] = [describe(finding) for finding in findings]
    out["first_overall"] = findings[0]["id"] if findings else None
    if healthy:
        out["passed"] = all(finding["id"] != row["finding"] for finding in findings)
    else:
        out["passed"], out["first"] = expect_first(row, findings)
        out["evidence"] = next((f["evidence"] for f in findings if f["id"] == row["finding"]), None)
    return out


def smoke(args, rows):
    def one(row_and_words):
        row, words = row_and_words
        try:
            outcome = harness.execute([*command_of(args, row, words), "--seconds", "0.2"], args.timeout)
            problem = outcome.failure() or (None if outcome.result else "no RESULT line")
        except (OSError, RuntimeError) as error:
            problem = str(error)
        print(f"{'FAIL' if problem else 'ok  '} {row['id']} {' '.join(words)} {problem or outcome.result}", flush=True)
        return problem is None

    runs = [(row, words) for row in rows for words in (row["args"], row["healthy_args"])]
    with concurrent.futures.ThreadPoolExecutor(SMOKE_JOBS) as pool:
        return 0 if all(list(pool.map(one, runs))) else 1


def main():
    parser = harness.arguments(__doc__, "planted_results.json")
    parser.add_argument("--only", default="", help="ids of rows, comma between them")
    parser.add_argument("--seconds", type=float, default=0, help="how long each program repeats its requests")
    parser.add_argument("--options", default="", help="further options of llmprof run, in one word")
    parser.add_argument("--smoke", action="store_true", help="only see whether the programs run, without llmprof")
    parser.add_argument("--jobs", type=int, default=1, choices=[1], help="one: programs must not share the GPU")
    args = parser.parse_args()
    rows = json.loads((harness.PROGRAMS / "planted.json").read_text())["programs"]
    only = [word for word in args.only.split(",") if word]
    unknown = set(only) - {row["id"] for row in rows}
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}; rows: {', '.join(row['id'] for row in rows)}")
    rows = [row for row in rows if not only or row["id"] in only]
    if args.smoke:
        return smoke(args, rows)
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    for row in rows:
        for healthy in (False, True):
            name = row["id"] + ("/healthy" if healthy else "/planted")
            if name in state and not only:
                continue
            if budget.spent(SECONDS_PER_RUN):
                continue
            try:
                state.put(name, run_one(args, row, healthy))
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                state.put(name, {"passed": False, "error": str(error)})
            done = state.get(name)
            print(f"{'ok  ' if done['passed'] else 'FAIL'} {name}: {done.get('error') or [f['id'] for f in done['findings']]}",
                  flush=True)
    table, right, missing = [], 0, 0
    for row in rows:
        planted, healthy = state.get(row["id"] + "/planted"), state.get(row["id"] + "/healthy")
        missing += (planted is None) + (healthy is None)
        passed = bool(planted and healthy and planted["passed"] and healthy["passed"])
        right += passed
        table.append([row["id"], row["finding"], (planted or {}).get("first") or (planted or {}).get("error", "not run"),
                      (planted or {}).get("first_overall"), "not run" if healthy is None else "clean" if healthy["passed"]
                      else healthy.get("error", "named too"), "ok" if passed else "FAIL"])
    harness.print_table(["program", "expected", "first of stage", "first of all", "healthy twin", ""], table)
    print(f"{right} of {len(rows)} right, {missing} runs missing")
    names = ("program", "expected", "first_of_stage", "first_of_all", "healthy_twin", "verdict")
    state.save(summary={"programs": len(rows), "right": right, "runs_missing": missing,
                        "rows": [dict(zip(names, row)) for row in table]})
    harness.write_summary(args, state)
    return 0 if right == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
