#!/usr/bin/env python3
"""compute-sanitizer over every own kernel of `llmprof bench`: bad accesses to memory, and races in shared memory.

    python3 tests/gpu/bench_sanitizer_test.py [--only memcheck,racecheck,synccheck,initcheck] [--state bench_sanitizer.json]

Shapes are small and odd, so that blocks, tiles and pages are partly empty: what a kernel reads or writes beyond its arrays
shows there. Each case runs all its candidates against the reference, and must pass as well as be clean. cuDNN is hidden, so
that own kernels are what runs; own kernels are compiled as they always are. Operations that have no own kernel are named
below, and one that is in neither list fails, so that no new kernel is forgotten.

Where compute-sanitizer is not installed (it comes with the CUDA toolkit), or does not run on this machine, the test says
so and ends with 0.
"""
import json
import shutil
import sys

import harness

TOOLS = ["memcheck", "racecheck"]
# initcheck is not among the usual ones: the library's kernels read padding that nobody wrote.
MORE_TOOLS = ["synccheck", "initcheck"]
# Operation, its variants, data types, axes.
ROWS = ["--tokens", "37", "--hidden", "1608"]
CASES = [
    ("memory", ["copy", "read", "write", "triad"], ["fp32"], ["--bytes", "1048592"]),
    ("rmsnorm", ["plain", "residual"], ["bf16", "fp32"], ROWS),
    ("layernorm_gelu", [""], ["bf16", "fp16", "fp32"], ROWS),
    # Rows that threads cover exactly have kernels of their own; the last block of two rows has only one.
    ("layernorm_gelu", [""], ["bf16", "fp16"], ["--tokens", "37", "--hidden", "6144"]),
    ("layernorm_gelu", [""], ["bf16"], ["--tokens", "37", "--hidden", "2048"]),
    ("layernorm_gelu", [""], ["bf16"], ["--tokens", "37", "--hidden", "1536"]),
    ("softmax", [""], ["bf16", "fp32"], ["--rows", "37", "--columns", "1608"]),
    ("softmax", [""], ["bf16"], ["--rows", "3", "--columns", "131080"]),
    ("quantise", [""], ["bf16", "fp32"], ROWS),
    ("dequantise", [""], ["bf16", "fp32"], ROWS),
    ("swiglu", [""], ["bf16"], ["--tokens", "37", "--ffn", "1608"]),
    ("rope", [""], ["bf16"], ["--tokens", "37", "--heads", "6", "--kv-heads", "2", "--head-dim", "48"]),
    ("embedding", [""], ["bf16"], ["--tokens", "37", "--vocab", "101", "--hidden", "72"]),
    ("kv_append", [""], ["bf16"], ["--tokens", "37", "--kv-heads", "3", "--head-dim", "24"]),
    ("moe_routing", [""], ["bf16", "fp32"], ["--tokens", "203", "--experts", "60", "--k", "4"]),
    ("gemm", [""], ["bf16", "fp16"], ["--m", "5", "--n", "72", "--k", "1056"]),
    ("gemm", [""], ["bf16"], ["--m", "16", "--n", "40", "--k", "96"]),
    ("gemm_w8a8", [""], ["int8"], ["--m", "48", "--n", "80", "--k", "112"]),
    ("sampling", ["top_k_top_p", "greedy"], ["bf16", "fp32"], ["--batch", "5", "--vocab", "5008", "--k", "50"]),
] + [
    ("attention", ["causal", "full"], ["bf16", "fp16"],
     ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--head-dim", str(head), "--prompt", "203", "--context", "301"])
    for head in (64, 128, 256)
] + [
    ("attention_decode", ["contiguous", "paged"], ["bf16"],
     ["--batch", "3", "--heads", str(2 * group), "--kv-heads", "2", "--head-dim", str(head), "--context", "333"])
    for head in (64, 128, 256) for group in (4, 12)
]
# Libraries', or nothing but arithmetic in registers.
NO_OWN_KERNEL = {"gemm_batched", "gemm_grouped", "conv2d", "lstm", "memcpy", "launch", "registers"}
HIDDEN = {"LLMPROF_CUDNN": "/nowhere/libcudnn.so.9"}
ERROR_CODE = 86  # of the sanitizer, where it found something


def runs():
    for operation, variants, dtypes, axes in CASES:
        for variant in variants:
            for dtype in dtypes:
                name = " ".join([operation, *([variant] if variant else []), dtype, *axes])
                yield name, [operation, *axes, "--dtype", dtype, *(["--variant", variant] if variant else [])]


def operations(args):
    """Names of all operations, from `llmprof list benchmarks`."""
    text = harness.execute([args.llmprof, "list", "benchmarks"], 30).stdout
    return {line.split()[0] for line in text.splitlines() if line and not line[0].isspace()}


def sanitize(args, tool, options):
    command = [args.sanitizer, "--tool", tool, "--error-exitcode", str(ERROR_CODE), args.llmprof, "bench", *options,
               "--device", "cuda:0", "--quick", "--regime", "cold", "--busy-ok", "--json"]
    outcome = harness.execute(command, args.timeout, HIDDEN)
    words = [line for line in (outcome.stdout + outcome.stderr).splitlines() if line.startswith("=========")]
    begin, end = outcome.stdout.find("{"), outcome.stdout.rfind("}")
    result = {"seconds": round(outcome.seconds, 1), "said": words[:12]}
    try:
        rows = json.loads(outcome.stdout[begin:end + 1])["cases"]
    except (ValueError, KeyError):
        return {**result, "problem": outcome.failure() or "no JSON"}
    if not rows or any(row["check_status"] != "passed" for row in rows):
        result["problem"] = "check: " + ", ".join(f"{row['check_status']} {row.get('note', '')}" for row in rows)
    elif outcome.returncode == ERROR_CODE or not any("ERROR SUMMARY: 0 errors" in line or "0 hazards" in line
                                                     for line in words):
        result["problem"] = "; ".join(words[:4]) or outcome.failure() or "the sanitizer gave no summary"
    return result


def main():
    parser = harness.arguments(__doc__, "bench_sanitizer.json")
    parser.add_argument("--only", default="", help="of " + ",".join(TOOLS + MORE_TOOLS))
    parser.add_argument("--sanitizer", default=shutil.which("compute-sanitizer") or
                        shutil.which("compute-sanitizer", path="/usr/local/cuda/bin"))
    args = parser.parse_args()
    tools = [tool for tool in args.only.split(",") if tool] or TOOLS
    if set(tools) - set(TOOLS + MORE_TOOLS):
        parser.error("no such tool")
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    skipped = None
    if args.sanitizer is None or shutil.which(args.sanitizer) is None:
        skipped = "compute-sanitizer is not installed: it comes with the CUDA toolkit"
    else:
        probe = harness.execute([args.sanitizer, "--tool", "memcheck", args.llmprof, "--version"], 120)
        if probe.returncode != 0:
            skipped = f"compute-sanitizer does not run here: {probe.failure()}"
    if skipped:
        print("skipped:", skipped)
        state.save(skipped=skipped, passed=True, missing=[], failures=[])
        harness.write_summary(args, state)
        return 0
    forgotten = sorted(operations(args) - {operation for operation, *_ in CASES} - NO_OWN_KERNEL)
    names = []
    for tool in tools:
        for name, options in runs():
            key = f"{tool}: {name}"
            names.append(key)
            done = state.get(key)
            if (done is None or "problem" in done) and not budget.spent(20):
                state.put(key, sanitize(args, tool, options))
                problem = state.get(key).get("problem")
                print(f"{'FAIL' if problem else 'ok  '} {key}" + (f"  {problem[:300]}" if problem else ""), flush=True)
    results = state.results()
    missing = [name for name in names if name not in results]
    failures = [name for name in names if "problem" in results.get(name, {})]
    failures += [f"{operation} has no case here" for operation in forgotten]
    state.save(machine=harness.machine(args.python), summary={"cases": len(names), "tools": tools}, missing=missing,
               failures=failures, passed=not missing and not failures)
    harness.write_summary(args, state)
    print(json.dumps({"cases": len(names), "failures": failures, "missing": missing}))
    return 0 if not missing and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
