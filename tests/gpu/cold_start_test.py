#!/usr/bin/env python3
"""First lines of reports on programs that nobody warmed up (tests/clients/workloads/cold_start.py).

    python3 tests/gpu/cold_start_test.py [--state cold_start.json]

  requests    TTFT and TPOT are within 5 % of the medians of the program's own times after its first request, in the same
              run; the first prompt stands apart as warm-up with a cause, or not at all where the recorder's coming falls
              into it
  preprocess  the same, and host-preprocessing is found
  batching    no TTFT, TPOT or tokens per second is printed, and the report says why
  copies      no tokens; copy-bound is the first finding. Its rate is that of the copies alone, the program's own that of
              copies with modules loaded between them: shown, not compared
"""
import statistics
import sys

import harness

TOLERANCE = 0.05  # half of the steps are recorded and half are not, and steps of an eager program vary by 10 to 50 %
COLD_FROM = 2  # times the others' median: then the first prompt is warm-up beyond doubt
SECONDS_PER_RUN = 30


def off(found, own):
    return None if found is None else found / own - 1


def check_times(result, report, problems):
    headline = (report.get("latency") or {}).get("headline") or {}
    own = {"ttft_ms": statistics.median(result["ttft_ms"][1:]),
           "itl_ms": statistics.median(ms for steps in result["steps_ms"][1:] for ms in steps)}
    rows = {"first_ttft_ms": [result["ttft_ms"][0], headline.get("first_ttft_ms")]}
    for name, value in own.items():
        rows[name] = [value, headline.get(name)]
        apart = off(headline.get(name), value)
        if apart is None or abs(apart) > TOLERANCE:
            problems.append(f"{name} is {value:.4g} by the program, {headline.get(name)} in the report")
    first = headline.get("first_ttft_ms")
    if first is not None and abs(off(first, result["ttft_ms"][0])) > TOLERANCE:
        problems.append(f"the first prompt took {result['ttft_ms'][0]:.4g} ms, {first} in the report")
    if result["ttft_ms"][0] > COLD_FROM * own["ttft_ms"] and first is not None:
        rows["warm_up"] = [{key: row[key] for key in ("stage", "cause", "steps", "excess_ms")} for row in report.get("warm_up", [])]
        if not headline.get("first_ttft_cold") or not any(row["stage"].startswith("prefill") for row in rows["warm_up"]):
            problems.append(f"the first prompt took {result['ttft_ms'][0]:.4g} ms and is no warm-up: {rows['warm_up']}")
    return rows


def evidence_of(finding, unit):
    return next((row["value"] for row in finding["evidence"] if row["unit"] == unit), None)


def check(what, outcome):
    if outcome.failure() is not None or outcome.report is None or outcome.result is None:
        return {"problems": [outcome.failure() or "no report, or no RESULT line"]}
    report, result, problems = outcome.report, outcome.result, []
    found = {"findings": [row["id"] for row in report["findings"]]}
    latency = report.get("latency") or {}
    headline = latency.get("headline") or {}
    if what in ("requests", "preprocess"):
        found["own_and_report"] = check_times(result, report, problems)
    if what == "preprocess" and "host-preprocessing" not in found["findings"]:
        problems.append(f"host-preprocessing is not among {found['findings']}")
    if what in ("batching", "copies"):
        printed = {name: headline.get(name) for name in ("ttft_ms", "tpot_ms", "itl_ms", "output_tokens_per_s")}
        if any(value is not None for value in printed.values()):
            problems.append(f"figures that the recording does not carry: {printed}")
        found["why"] = [row["why"] for row in report["cannot_tell"] if row["question"].startswith("What are TTFT")]
        if not found["why"]:
            problems.append("the report does not say why there is no TTFT")
    if what == "copies":
        rate = next((evidence_of(row, "GB/s") for row in report["findings"] if row["id"] == "copy-bound"), None)
        found["own_and_report_gbs"] = [result["gbs"], rate]
        if found["findings"][:1] != ["copy-bound"]:
            problems.append(f"first finding: {found['findings'][:1]}")
    return {**found, "problems": problems}


def main():
    args = harness.arguments(__doc__, "cold_start.json").parse_args()
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    rows = {f"{what} {run}": what for run in (1, 2, 3) for what in ("requests", "preprocess", "batching", "copies")}
    for name, what in rows.items():
        done = state.get(name)
        if (done is not None and not done["problems"]) or budget.spent(SECONDS_PER_RUN):
            continue
        state.put(name, check(what, harness.profile(args, [], [args.python, str(harness.WORKLOADS / "cold_start.py"), what])))
        print(f"{'FAIL' if state.get(name)['problems'] else 'ok  '} {name}: {state.get(name)}", flush=True)
    missing = [name for name in rows if name not in state]
    failures = [f"{name}: {problem}" for name in rows for problem in (state.get(name) or {}).get("problems", [])]
    state.save(summary={name: state.get(name) for name in rows}, missing=missing, failures=failures,
               passed=not missing and not failures)
    harness.write_summary(args, state)
    print(f"{len(rows) - len(missing)} of {len(rows)} ran, {len(failures)} failures")
    return 0 if not missing and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
