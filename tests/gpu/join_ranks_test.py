#!/usr/bin/env python3
"""Recordings of the ranks of a job with NCCL, joined: bus bandwidth against CUDA events, and waits for a rank that is late.

    python3 tests/gpu/join_ranks_test.py [--gpus 2] [--state join_ranks.json] [--keep FOLDER]

traces: every rank is recorded by torch.profiler (tests/clients/workloads/collectives.py). The bus bandwidth that `llmprof
analyze rank0.json rank1.json` gives for each kind and size of 64 MiB and more must be within 3 % of what CUDA events around
many calls say in the same run. Between events there are the gaps between kernels too, some two microseconds each: with
those of the trace taken out of the events' time, that holds from 4 MiB on, and both are shown. Where no rank is
late there is no rank-skew; where the last rank is late by a known time in each step, in its GPU's work or in its host code, the others
must wait so long, within 5 %, that rank must be the one that enters last, and rank-skew must name it.
sessions: the same with a late GPU, every rank under `llmprof run` of its own, started by torchrun.
"""
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import harness

RATE_TOLERANCE, WAIT_TOLERANCE = 0.03, 0.05
LEAST_BYTES, LEAST_BYTES_WITHOUT_GAPS = 64 << 20, 4 << 20
LATE_US = 600
CASES = ("traces", "sessions")


def factor(name, ranks):
    """What a link carries of a collective's bytes, as nccl-tests counts it."""
    return {"all_reduce": 2 * (ranks - 1) / ranks, "all_gather": (ranks - 1) / ranks, "reduce_scatter": (ranks - 1) / ranks,
            "broadcast": 1}[name]


def launch(args, words, env=None):
    """Starts the program on every GPU; what it printed of itself."""
    command = [args.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(args.gpus), *words]
    outcome = harness.execute(command, args.timeout, env)
    if outcome.result is None:
        raise RuntimeError(f"no RESULT line: {outcome.failure()} {outcome.stderr.strip()[-600:]}")
    return outcome.result


def analyze(args, recordings):
    done = subprocess.run([args.llmprof, "analyze", *map(str, recordings), "--json", "-q"], capture_output=True, text=True, timeout=300)
    if done.returncode not in (0, 3):
        raise RuntimeError(f"analyze: {done.stderr.strip()[-600:]}")
    report = json.loads(done.stdout)
    return {"ranks": report["ranks"], "collectives": report["joined_collectives"],
            "findings": [{key: row[key] for key in ("id", "severity", "title")} for row in report["findings"]]}


def word_of(name):
    return name.replace("_", "").removesuffix("base")


def gaps_of(trace):
    """{kind and number of elements: median us between the kernels of that collective} of a trace, by its text alone."""
    kernels = [event for event in json.loads(trace.read_text())["traceEvents"]
               if event.get("cat") == "kernel" and "Collective name" in event["args"]]
    of_kind = lambda event: f"{word_of(event['args']['Collective name'])} {max(event['args']['In msg nelems'], event['args']['Out msg nelems'])}"
    gaps = {}
    kernels.sort(key=lambda event: event["ts"])
    for before, after in zip(kernels, kernels[1:]):
        if of_kind(before) == of_kind(after):
            gaps.setdefault(of_kind(after), []).append(after["ts"] - before["ts"] - before["dur"])
    return {kind: statistics.median(us) for kind, us in gaps.items()}


def run_traces(args, folder):
    program = [str(harness.WORKLOADS / "collectives.py"), "--traces", str(folder), "--late-us", str(LATE_US)]
    truth = launch(args, program)
    parts = {part: analyze(args, sorted((folder / part).glob("rank*.json"))) for part in ("sizes", "even", "gpu", "host")}
    return {"truth": truth, "parts": parts, "gaps_us": gaps_of(folder / "sizes/rank0.json")}


def run_sessions(args, folder):
    watched = ('exec "$1" run -q --no-report --counters off -o "$2/rank$RANK" -- "$3" "$4" --parts gpu --calls 200 --late-us "$5"')
    words = ["--no-python", "bash", "-c", watched, "bash", str(pathlib.Path(args.llmprof).resolve()), str(folder), args.python,
             str(harness.WORKLOADS / "collectives.py"), str(LATE_US)]
    truth = launch(args, words)
    return {"truth": truth, "parts": {"gpu": analyze(args, sorted(folder.glob("rank*")))}}


def run(args, name):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="llmprof-gpu-test-"))
    try:
        return (run_traces if name == "traces" else run_sessions)(args, folder)
    except (OSError, ValueError, KeyError, RuntimeError, subprocess.TimeoutExpired) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        if args.keep:
            shutil.copytree(folder, pathlib.Path(args.keep) / name, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def rates_of(result):
    """[{name, bytes, bus GB/s by the report and by events}] of each kind and size."""
    truth, rows = result["truth"], []
    for case in truth["sizes"]:
        word = word_of(case["name"])
        found = [row for row in result["parts"]["sizes"]["collectives"]
                 if word_of(row["name"]) == word and row["bytes"] == case["bytes"] and row["count"] >= truth["calls"]]
        rate = lambda us: case["bytes"] * factor(case["name"], truth["world"]) / us / 1e3
        gap = result["gaps_us"].get(f"{word} {case['bytes'] // 2}")  # of bf16
        rows.append({"name": case["name"], "bytes": case["bytes"], "rows": len(found), "report_gbs": found[0]["bus_gbs"] if found else None,
                     "events_gbs": rate(case["us_recorded"]), "events_alone_gbs": rate(case["us_alone"]), "gap_us": gap,
                     "without_gaps_gbs": None if gap is None else rate(case["us_recorded"] - gap)})
    return rows


def rate_problems(result):
    problems = []
    for row in rates_of(result):
        what = f"{row['name']} of {row['bytes'] >> 20} MiB"
        if row["rows"] != 1:
            problems.append(f"{what}: {row['rows']} rows in the report")
        if row["report_gbs"] is None:  # the root of a broadcast may be done before the others begin
            if row["name"] != "broadcast" or row["bytes"] >= LEAST_BYTES:
                problems.append(f"{what}: no rate")
            continue
        if row["bytes"] >= LEAST_BYTES and abs(row["report_gbs"] / row["events_gbs"] - 1) > RATE_TOLERANCE:
            problems.append(f"{what}: {row['report_gbs']:.1f} GB/s, by events {row['events_gbs']:.1f}")
        if row["bytes"] >= LEAST_BYTES_WITHOUT_GAPS and abs(row["report_gbs"] / row["without_gaps_gbs"] - 1) > RATE_TOLERANCE:
            problems.append(f"{what}: {row['report_gbs']:.1f} GB/s, by events without gaps {row['without_gaps_gbs']:.1f}")
    return problems


def wait_problems(what, late, planted_us, part):
    """`part` is what the report says of steps in which the rank `late` was late by `planted_us`."""
    steps = [row for row in part["collectives"] if row["wait_us"] is not None and row["count"] >= 30]
    if not steps:
        return [f"{what}: no joined collectives"]
    row = max(steps, key=lambda row: row["wait_us"] * row["count"])
    problems = []
    if abs(row["wait_us"] / planted_us - 1) > WAIT_TOLERANCE:
        problems.append(f"{what}: waits of {row['wait_us']:.1f} us, planted {planted_us:.1f}")
    if row["last_rank"] != late:
        problems.append(f"{what}: rank {row['last_rank']} is the last one, planted {late}")
    if not any(f["id"] == "rank-skew" and f"rank {late}" in f["title"] for f in part["findings"]):
        problems.append(f"{what}: no rank-skew that names rank {late}: {[f['title'] for f in part['findings'][:4]]}")
    return problems


def problems_of(name, result):
    if "error" in result:
        return [f"{name}: {result['error']}"]
    truth, parts = result["truth"], result["parts"]
    problems = rate_problems(result) if "sizes" in parts else []
    for part in ("gpu", "host"):
        if part in parts:
            problems += wait_problems(f"{name}, {part}", truth["late_rank"], truth[part], parts[part])
    if "even" in parts:
        problems += [f"{name}, even: {f['title']}" for f in parts["even"]["findings"] if f["id"] == "rank-skew"]
    return problems


def main():
    parser = harness.arguments(__doc__, "join_ranks_results.json")
    parser.add_argument("--gpus", type=int, default=2)
    args = parser.parse_args()
    code = harness.run_cases(args, CASES, lambda name: run(args, name), problems_of, 60)
    traces = harness.State(args.state).get("traces") or {}
    if "truth" in traces:
        harness.print_table(["collective", "MiB", "report GB/s", "events GB/s", "without gaps", "gap us", "events, not recorded"],
                            [[row["name"], row["bytes"] >> 20, row["report_gbs"], row["events_gbs"], row["without_gaps_gbs"], row["gap_us"], row["events_alone_gbs"]]
                             for row in rates_of(traces)])
    return code


if __name__ == "__main__":
    sys.exit(main())
