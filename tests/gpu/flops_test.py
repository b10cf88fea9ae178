#!/usr/bin/env python3
"""FLOPs that deep mode measures against programs whose arithmetic is known to the instruction.

    python3 tests/gpu/flops_test.py [--state flops.json]

What llmprof gives is an upper bound, so it must never be below the truth; for kernels that do nothing else it must also
be close. Multiply-adds in single precision and on packed halves come from a CUDA program (compiled here with nvcc), as do
tensor instructions that cannot fill the pipe; matrix products in BF16 and in single precision come from PyTorch.
"""
import pathlib
import sys
import tempfile

import harness

SOURCE = pathlib.Path(__file__).resolve().with_name("known_flops.cu")
SLACK = 0.02     # of a lower edge: clocks and edges of samples
CLOSE = 1.08     # kernels that do nothing else: loop counters and the first and last samples of a step
LIBRARY = 1.35   # kernels of cuBLAS: pipelines that fill and drain, and scaling
SECONDS = 6

PRODUCTS = """
import json, sys, time, torch
size, dtype = int(sys.argv[1]), getattr(torch, sys.argv[2])
torch.backends.cuda.matmul.allow_tf32 = False
a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
for _ in range(3): a @ b
torch.cuda.synchronize()
print("RESULT " + json.dumps({"flops_per_step": 4 * 2.0 * size ** 3}), flush=True)
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    torch.cuda.nvtx.range_push("decode_step")
    for _ in range(4): a @ b
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()
"""
FIELDS = ("tensor_cycles", "fma_instructions", "tensor_flops_measured", "fma_flops_measured", "flops_measured", "flops",
          "flops_measured_over_flops", "tensor_active_frac", "sm_clock_mhz", "counter_coverage_frac")


def products(args, size, dtype):
    return [args.python, "-c", PRODUCTS, str(size), dtype, str(SECONDS)]


def measure(args, name, command):
    """Per step: what the program did and what the report says."""
    outcome = harness.profile(args, ["--mode", "deep", "--unrecorded-windows", "off", "--no-adapt"], command, "flops-" + name)
    if outcome.failure() or outcome.report is None or outcome.result is None:
        return {"error": outcome.failure() or "no report: " + outcome.stderr.strip()[-300:]}
    row = harness.stage_of(outcome.report, "decode_step")
    if row is None:
        return {"error": "no stage decode_step in the report"}
    telemetry = outcome.report["telemetry"] or {}
    found = {"truth": outcome.result["flops_per_step"], "steps": row["count"],
             "interval_us": telemetry.get("counter_interval_us")}
    for field in FIELDS:
        part = field.endswith(("_frac", "_mhz", "_over_flops")) or row[field] is None
        found[field] = row[field] if part else row[field] / row["count"]
    found["cannot_tell"] = [entry["question"] + " " + entry["why"] for entry in outcome.report["cannot_tell"]
                            if "FLOP" in entry["question"]]
    return found


def within(value, truth, most):
    return value is not None and (1 - SLACK) * truth <= value <= most * truth


def judge(results):
    """(program, what is compared, measured, truth, passed)."""
    rows = []
    for name in ("single", "halves"):
        if name in results:
            found = results[name]
            measured = found["fma_flops_measured"]
            rows.append((name, "FMA pipes", measured, found["truth"], within(measured, found["truth"], CLOSE)))
    if "product-fp32" in results:
        found = results["product-fp32"]
        measured = found["fma_flops_measured"]
        rows.append(("product-fp32", "FMA pipes", measured, found["truth"], within(measured, found["truth"], LIBRARY)))
        idle = found["tensor_active_frac"] is not None and found["tensor_active_frac"] < 0.01
        rows.append(("product-fp32", "tensor pipe active", found["tensor_active_frac"], 0.0, idle))
    if "product-bf16" in results:
        found = results["product-bf16"]
        measured = found["tensor_flops_measured"]
        rows.append(("product-bf16", "tensor pipe", measured, found["truth"], within(measured, found["truth"], LIBRARY)))
        if "tensor" in results and found["tensor_cycles"] and results["tensor"]["tensor_cycles"]:
            # Instructions of this program have no shapes, so no type: the rate is that of the products above.
            measured = results["tensor"]["tensor_cycles"] * found["tensor_flops_measured"] / found["tensor_cycles"]
            truth = results["tensor"]["truth"]
            rows.append(("tensor", "tensor pipe", measured, truth, measured >= (1 - SLACK) * truth))
    return rows


def main():
    parser = harness.arguments(__doc__, "flops_results.json")
    args = parser.parse_args()
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    commands = {name: lambda name=name: [harness.cuda_program(args, SOURCE), name] for name in ("single", "halves", "tensor")}
    commands["product-fp32"] = lambda: products(args, 4096, "float32")
    commands["product-bf16"] = lambda: products(args, 8192, "bfloat16")
    # On a machine that has just started, CUPTI takes longer to load than the recorder waits for the counters.
    with tempfile.TemporaryDirectory(prefix="llmprof-gpu-test-") as folder:
        harness.execute([args.llmprof, "run", "-q", "--mode", "deep", "-o", str(pathlib.Path(folder) / "cold"), "--",
                         *products(args, 1024, "float32")[:-1], "1"], args.timeout)
    for name, command in commands.items():
        if (name not in state or "error" in state.get(name)) and not budget.spent(60):
            try:
                state.put(name, measure(args, name, command()))
            except (OSError, RuntimeError, ValueError, KeyError) as error:
                state.put(name, {"error": repr(error)})
    results = {name: state.get(name) for name in commands if name in state and "error" not in state.get(name)}
    for name in commands:
        if name not in results:
            print(f"{name}: {(state.get(name) or {'error': 'not run'})['error']}")
    rows = judge(results)
    passed = len(results) == len(commands) and len(rows) == 6 and all(row[-1] for row in rows)
    harness.print_table(["program", "by", "measured a step", "truth", "ratio", ""],
                        [[name, by, measured, truth, measured / truth if measured is not None and truth else None,
                          "ok" if right else "FAIL"] for name, by, measured, truth, right in rows])
    state.save(summary={"passed": passed, "slack": SLACK, "close": CLOSE, "library": LIBRARY, "rows": [
        {"program": name, "by": by, "measured": measured, "truth": truth, "passed": right}
        for name, by, measured, truth, right in rows]})
    harness.write_summary(args, state)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
