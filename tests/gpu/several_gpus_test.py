#!/usr/bin/env python3
"""Several GPUs of one host: a tensor-parallel program, one process a GPU, started by torch.distributed.run.

    python3 tests/gpu/several_gpus_test.py [--gpus 2] [--state several_gpus.json]

Twice: every process sees all GPUs, and every process sees only its own, as inference servers do it; GPUs are then told
apart by what they are, not by their number in the process. Each GPU has its own decode steps in the report, all of them, with
the products and all-reduces that the program does, the GEMM FLOPs of the formula and counters of its own.
"""
import sys

import harness

CLOSE = 1e-6
STEP_TOLERANCE = 0.02  # of the mean against the program's own: a range ends a little before its timer
CASES = {"all-visible": [], "one-visible": ["--one-visible"]}


def run(args, name):
    command = [args.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(args.gpus),
               str(harness.WORKLOADS / "tensor_parallel.py"), *CASES[name]]
    outcome = harness.profile(args, ["--unrecorded-windows", "off", "--no-adapt", "--no-detect", "--top", "0"], command, name)
    if outcome.failure() or outcome.report is None or outcome.result is None:
        return {"error": outcome.failure() or "no report or no RESULT line: " + outcome.stderr.strip()[-300:]}
    stages = [row for row in outcome.report["stages"] if row["name"] == "decode_step"]
    kernels = {row["device"]: [0, 0] for row in stages}
    for row in outcome.report["kernels_topk"]:
        if row["stage"] == "decode_step" and row["device"] in kernels:
            kernels[row["device"]][0] += row["calls"] if row["category"] == "communication" else 0
            kernels[row["device"]][1] += row["calls"] if row["category"] == "gemm" else 0
    return {"result": outcome.result,
            "devices": [{"device": row["device"], "steps": row["count"], "gemm_flops_per_step": row["gemm_flops"] and
                         row["gemm_flops"] / row["count"], "reduces": kernels[row["device"]][0],
                         "gemm_kernels": kernels[row["device"]][1], "step_ms": row["wall_ms"] / row["count"],
                         "dram_bytes_measured": row["dram_bytes_measured"]} for row in stages],
            "counters": [path for path in outcome.session or [] if "counters-" in path and path.endswith(".spool")],
            "diagnostics": [entry["key"] for entry in outcome.report["diagnostics"]]}


def problems_of(name, found, gpus):
    if "error" in found:
        return [f"{name}: {found['error']}"]
    truth, problems = found["result"], []
    if len(found["devices"]) != gpus:
        problems.append(f"{name}: {len(found['devices'])} GPUs have decode steps, expected {gpus}")
    if len(found["counters"]) < gpus:
        problems.append(f"{name}: counters of {len(found['counters'])} GPUs, expected {gpus}")
    for row in found["devices"]:
        where = f"{name}, GPU {row['device']}"
        if row["steps"] != truth["steps"]:
            problems.append(f"{where}: {row['steps']} steps, expected {truth['steps']}")
        if row["reduces"] != truth["reduces_per_step"] * row["steps"]:
            problems.append(f"{where}: {row['reduces']} all-reduces, expected {truth['reduces_per_step']} a step")
        flops = row["gemm_flops_per_step"]
        if not flops or abs(flops / truth["gemm_flops_per_step"] - 1) > CLOSE:
            problems.append(f"{where}: {flops} GEMM FLOPs a step, expected {truth['gemm_flops_per_step']}")
        # Rank 0 prints its own time; the others wait for it in every all-reduce.
        if abs(row["step_ms"] / truth["tpot_mean_ms"] - 1) > STEP_TOLERANCE:
            problems.append(f"{where}: a step of {row['step_ms']} ms, expected about {truth['tpot_mean_ms']}")
    return problems


def main():
    parser = harness.arguments(__doc__, "several_gpus_results.json")
    parser.add_argument("--gpus", type=int, default=2)
    args = parser.parse_args()
    return harness.run_cases(args, CASES, lambda name: run(args, name),
                             lambda name, found: problems_of(name, found, args.gpus), 40)


if __name__ == "__main__":
    sys.exit(main())
