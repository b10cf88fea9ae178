#!/usr/bin/env python3
"""The default suite of `llmprof bench`, twice: do two runs agree, and how long does one take?

    python3 tests/gpu/bench_repeat_test.py [--state bench_repeat.json]
    python3 tests/gpu/bench_repeat_test.py --kernel "gemm --m 1 --n 28672 --k 4096 --dtype bf16" --times 16

Medians of kernels that take more than 50 us must agree within 1 %, of those over 5 us within 3 %; a run may take 300
seconds; `llmprof bench --compare` of the two must call no kernel faster or slower. The regimes are judged by themselves.
Rows whose time is the host's (launches, synchronisation, copies between host and device) are no kernels: how far they
moved is printed, and nothing is asked of them.

With --kernel one case is measured in many processes instead: the largest and the smallest median of each regime must be
within the same limits. That shows what differs between processes, which two runs may miss.
"""
import contextlib
import json
import pathlib
import shlex
import sys
import tempfile

import harness

PHASES = ["prepare_s", "check_s", "choose_s", "settle_s", "timing_s"]
CLASSES = [(50.0, 0.01), (5.0, 0.03)]  # over so many us: within


def of_host(row):
    return row["name"] == "launch" and row["variant"] != "graph_node" or row["name"] == "memcpy"


def tolerance(us):
    return next((limit for above, limit in CLASSES if us > above), None)


def key_of(row):
    return " ".join(str(row[field]) for field in ("name", "variant", "shape", "dtype", "regime")).replace("  ", " ")


def folder_for(args):
    """Where the results of `llmprof bench` lie meanwhile: what a run that was cut off had is left with --keep."""
    if not args.keep:
        return tempfile.TemporaryDirectory(prefix="llmprof-gpu-test-")
    pathlib.Path(args.keep).mkdir(parents=True, exist_ok=True)
    return contextlib.nullcontext(args.keep)


def bench(args, path, what=()):
    outcome = harness.execute([args.llmprof, "bench", *what, "--device", "cuda:0", "-q", "-o", str(path)], args.timeout)
    if not path.exists():
        return None, outcome.failure() or "no result"
    report = json.loads(path.read_text())
    for row in report["cases"]:
        row.pop("samples_us", None)
    return {"seconds": outcome.seconds, "code": outcome.returncode, "cases": report["cases"]}, None


def phases(cases):
    """Seconds of a run by phase, and its slowest cases: both regimes of a case carry the same."""
    each = {}
    for row in cases:
        each[key_of({**row, "regime": ""})] = {name: row.get(name) or 0 for name in PHASES}
    slowest = sorted(each, key=lambda key: -sum(each[key].values()))[:10]
    return {"cases": len(each), **{name: round(sum(case[name] for case in each.values()), 1) for name in PHASES},
            "slowest": {key: round(sum(each[key].values()), 1) for key in slowest}}


def judge(first, second):
    rows = {key_of(row): row for row in first["cases"] if row.get("median_us")}
    compared, outside, host, free = [], [], [], 0
    for row in second["cases"]:
        old = rows.get(key_of(row))
        if old is None or not row.get("median_us"):
            continue
        ratio = row["median_us"] / old["median_us"]
        limit = tolerance(old["median_us"])
        if of_host(row):
            host.append({"case": key_of(row), "us": old["median_us"], "ratio": ratio})
            continue
        if limit is None:
            free += 1
            continue
        entry = {"case": key_of(row), "us": old["median_us"], "ratio": ratio, "limit": limit,
                 "clock_ratio": (row.get("sm_clock_mhz") or 0) / (old.get("sm_clock_mhz") or 1),
                 "backends": [old["backend"], row["backend"]], "settled": [old["settled"], row["settled"]]}
        compared.append(entry)
        if abs(ratio - 1) > limit:
            outside.append(entry)
    return compared, outside, host, free


def verdicts(args, folder):
    """How many kernels `llmprof bench --compare` calls what, and which it calls faster or slower."""
    outcome = harness.execute([args.llmprof, "bench", "--json", "--compare", str(folder / "first.json"),
                               str(folder / "second.json")], 60)
    rows = [row for row in json.loads(outcome.stdout)["rows"] if not of_host(row)]
    counts = {}
    for row in rows:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    return {"counts": counts, "called": [key_of(row) + ": " + row["verdict"] for row in rows
                                         if row["verdict"] in ("FAST", "SLOW")]}


def many_processes(args, budget, state):
    """One case again and again: the medians of each regime, and what the rows say of other speeds."""
    problems, medians, notes = [], {}, {}
    with folder_for(args) as folder:
        for i in range(args.times):
            name = f"{args.kernel} {i}"
            if name not in state and not budget.spent(10):
                result, error = bench(args, pathlib.Path(folder) / f"{i}.json", shlex.split(args.kernel))
                if result is None:
                    problems.append(f"{name}: {error}")
                    continue
                state.put(name, result)
            for row in (state.get(name) or {"cases": []})["cases"]:
                if row.get("median_us"):
                    medians.setdefault(key_of(row), []).append(row["median_us"])
                    if row.get("note"):
                        notes.setdefault(key_of(row), []).append(row["note"])
    for key, values in medians.items():
        low, high = min(values), max(values)
        print(f"{key}: {low:.2f} to {high:.2f} us in {len(values)} processes ({high / low - 1:.2%}), "
              f"{len(notes.get(key, []))} with a note")
        for note in sorted(set(notes.get(key, []))):
            print(f"  {note}")
        if len(values) < args.times:
            problems.append(f"{key}: {len(values)} of {args.times} processes")
        if (limit := tolerance(low)) and high / low - 1 > limit:
            problems.append(f"{key}: medians differ by {high / low - 1:.2%}, within {limit:.0%} expected")
    if not medians:
        problems.append("nothing was measured")
    summary = {"kernel": args.kernel, "medians_us": {key: sorted(values) for key, values in medians.items()},
               "notes": notes}
    state.save(summary=summary, problems=problems, passed=not problems)
    harness.write_summary(args, state)
    print(json.dumps({"passed": not problems, "problems": problems[:20]}))
    return 0 if not problems else 1


def main():
    parser = harness.arguments(__doc__, "bench_repeat.json")
    parser.add_argument("--kernel", metavar="ARGUMENTS", help="only this case of `llmprof bench`, --times times")
    parser.add_argument("--times", type=int, default=16)
    parser.set_defaults(timeout=330)
    args = parser.parse_args()
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    if args.kernel:
        return many_processes(args, budget, state)
    problems = []
    with folder_for(args) as folder:
        for name in ("first", "second"):
            if name not in state and not budget.spent(60):
                result, error = bench(args, pathlib.Path(folder) / f"{name}.json")
                if result is None:
                    problems.append(f"{name}: {error}")
                else:
                    state.put(name, result)
                    if name == "second" and (pathlib.Path(folder) / "first.json").exists():
                        state.put("compare", verdicts(args, pathlib.Path(folder)))
    first, second = state.get("first"), state.get("second")
    summary = {}
    if first and second:
        compared, outside, host, free = judge(first, second)
        called = (state.get("compare") or {}).get("called", [])
        problems += [f"--compare of the two: {text}" for text in called]
        for run in (first, second):
            if run["seconds"] > 300:
                problems.append(f"the suite took {run['seconds']:.0f} s")
            bad = [key_of(row) + ": " + row["status"] for row in run["cases"] if row["status"] in ("failed", "error")]
            problems += bad
        problems += [f"{entry['case']}: {entry['ratio']:.4f} of the first run, within {entry['limit']} expected"
                     for entry in outside]
        worst = max(compared, key=lambda entry: abs(entry["ratio"] - 1) / entry["limit"], default=None)
        summary = {"seconds": [first["seconds"], second["seconds"]], "phases": phases(second["cases"]), "rows": len(second["cases"]),
                   "compared": len(compared), "under_5_us": free, "outside": outside, "worst": worst, "host": host,
                   "verdicts": (state.get("compare") or {}).get("counts")}
        print(f"{len(compared)} rows compared, {len(outside)} outside, {free} under 5 us; "
              f"{first['seconds']:.0f} and {second['seconds']:.0f} s; verdicts {summary['verdicts']}")
        for entry in sorted(compared, key=lambda e: -abs(e["ratio"] - 1) / e["limit"])[:15]:
            print(f"  {entry['ratio'] - 1:+.2%} of {entry['limit']:.0%}  clock {entry['clock_ratio'] - 1:+.2%}  "
                  f"{entry['us']:.1f} us  {entry['case']}  {entry['backends']} {entry['settled']}")
    else:
        problems.append("not both runs are there")
    state.save(summary=summary, problems=problems, passed=not problems)
    harness.write_summary(args, state)
    print(json.dumps({"passed": not problems, "problems": problems[:20]}))
    return 0 if not problems else 1


if __name__ == "__main__":
    sys.exit(main())
