#!/usr/bin/env python3
"""Memory traffic per stage: llmprof's counter samples against Nsight Compute, on two layers of Llama-3.1-8B.

    python3 tests/gpu/ncu_bytes_test.py [--state ncu_bytes.json]

Both see the same prefill and decode steps. ncu reads two counters of every kernel in one pass, without replay, without
flushing caches and without locking clocks, so that a kernel finds the L2 as it does in the plain run. llmprof integrates
what it sampled over the windows of the stages. Bytes per step must agree within 5 %.
"""
import csv
import os
import pathlib
import shutil
import sys
import tempfile

import harness

TOLERANCE = 0.05
STAGES = ("prefill", "decode_step")
READ, WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
WORDS = ["--model", "llama-3.1-8b", "--layers", "2", "--prompt", "512"]
NCU_WORDS = ["--new", "4", "--iters", "1"]
# Many short requests: counters are sampled every 100 us, a prefill of two layers lasts a few milliseconds.
LLMPROF_WORDS = ["--new", "32", "--iters", "40"]


def find_ncu(given):
    for path in (given, shutil.which("ncu"), "/usr/local/cuda/bin/ncu"):
        if path and os.access(path, os.X_OK):
            return path
    return None


def read_ncu(path):
    """{stage: [kernels, bytes read, bytes written]} from the raw page as CSV with base units."""
    with open(path, newline="") as file:
        lines = [line for line in file if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    if not rows or READ not in rows[0]:
        raise RuntimeError(f"expected a column {READ} in ncu's output, found {list(rows[0])[:12] if rows else 'no rows'}")
    if rows[0][READ] not in ("byte", "bytes"):
        raise RuntimeError(f"expected bytes as unit of {READ}, found {rows[0][READ]!r}")
    sums = {stage: [0, 0.0, 0.0] for stage in STAGES}
    for row in rows[1:]:
        ranges = " ".join(value or "" for key, value in row.items() if key and "Push/Pop_Range" in key)
        for stage in STAGES:
            if f":{stage}:" in ranges:
                sums[stage][0] += 1
                sums[stage][1] += float(row[READ].replace(",", ""))
                sums[stage][2] += float(row[WRITE].replace(",", ""))
    return sums


def run_ncu(args, ncu):
    with tempfile.TemporaryDirectory(prefix="llmprof-gpu-test-") as folder:
        log = pathlib.Path(folder) / "ncu.csv"
        words = [ncu, "--metrics", f"{READ},{WRITE}", "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log),
                 "--clock-control", "none", "--cache-control", "none", "--target-processes", "all", "--nvtx"]
        for stage in STAGES:
            words += ["--nvtx-include", stage + "/"]
        command = [*words, args.python, str(harness.WORKLOADS / "llm_eager.py"), *WORDS, *NCU_WORDS]
        outcome = harness.execute(command, args.timeout)
        if outcome.failure() or not log.exists():
            return {"error": (outcome.failure() or "ncu wrote nothing") + " " + (log.read_text()[-300:] if log.exists() else "")}
        sums = read_ncu(log)
        counts = {"prefill": 1, "decode_step": 4}
        return {"seconds": outcome.seconds, "tpot_ms": outcome.result["tpot_ms"],
                "stages": {stage: {"kernels_per_step": kernels / counts[stage], "read_bytes": read / counts[stage],
                                   "write_bytes": write / counts[stage], "bytes": (read + write) / counts[stage]}
                           for stage, (kernels, read, write) in sums.items()}}


def run_llmprof(args):
    command = [args.python, str(harness.WORKLOADS / "llm_eager.py"), *WORDS, *LLMPROF_WORDS]
    outcome = harness.profile(args, [], command, "ncu-bytes")
    if outcome.failure() or outcome.report is None:
        return {"error": outcome.failure() or "no report: " + outcome.stderr.strip()[-300:]}
    stages = {}
    for name in STAGES:
        row = harness.stage_of(outcome.report, name)
        measured = None if row is None else row["dram_bytes_measured"]
        stages[name] = {"bytes": None if measured is None else measured / row["count"], "steps": row and row["count"],
                        "model_bytes": row and row["dram_bytes_model"] and row["dram_bytes_model"] / row["count"]}
    return {"seconds": outcome.seconds, "tpot_ms": outcome.result["tpot_ms"], "stages": stages,
            "cannot_tell": [entry["question"] for entry in outcome.report["cannot_tell"]],
            "diagnostics": [entry["key"] for entry in outcome.report["diagnostics"]]}


def main():
    parser = harness.arguments(__doc__, "ncu_bytes_results.json")
    parser.add_argument("--ncu", default="", help="path of ncu")
    args = parser.parse_args()
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    ncu = find_ncu(args.ncu)
    works = {"llmprof": lambda: run_llmprof(args),
             "ncu": lambda: run_ncu(args, ncu) if ncu else {"error": "no ncu found; name it with --ncu"}}
    for name, work in works.items():
        if (name not in state or "error" in state.get(name)) and not budget.spent(60):
            try:
                state.put(name, work())
            except (OSError, RuntimeError, ValueError) as error:
                state.put(name, {"error": str(error)})
    ours, theirs = state.get("llmprof") or {"error": "not run"}, state.get("ncu") or {"error": "not run"}
    if "error" in ours or "error" in theirs:
        print("llmprof:", ours.get("error", "done"), "\nncu:", theirs.get("error", "done"))
        state.save(summary={"passed": False, "errors": {"llmprof": ours.get("error"), "ncu": theirs.get("error")}})
        harness.write_summary(args, state)
        return 1
    table, passed = [], True
    for stage in STAGES:
        a, b = ours["stages"][stage]["bytes"], theirs["stages"][stage]["bytes"]
        known = a is not None and b > 0
        difference = a / b - 1 if known else None
        right = known and abs(difference) <= TOLERANCE
        passed &= right
        table.append([stage, None if a is None else a / 1e6, b / 1e6, difference, theirs["stages"][stage]["kernels_per_step"],
                      "ok" if right else "FAIL"])
    harness.print_table(["stage", "llmprof MB/step", "ncu MB/step", "difference", "kernels", ""], table)
    slower = theirs["tpot_ms"] / ours["tpot_ms"]
    print(f"a decode step took {ours['tpot_ms']:.2f} ms under llmprof and {theirs['tpot_ms']:.0f} ms under ncu")
    state.save(summary={"passed": passed, "tolerance": TOLERANCE, "ncu_over_llmprof_tpot": slower,
                        "stages": [dict(zip(("stage", "llmprof_mb", "ncu_mb", "difference", "kernels"), row)) for row in table]})
    harness.write_summary(args, state)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
