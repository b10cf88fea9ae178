#!/usr/bin/env python3
"""Shapes that are hard to get: of cuDNN's attention and convolution, and of GEMMs where the recorder is not preloaded.

    python3 tests/gpu/shapes_test.py [--state shapes.json]

cuDNN: a program of known shapes, eager and replayed by a CUDA graph; the FLOPs of its stages are the formula's. Loggers:
the same PyTorch program recorded with and without LD_PRELOAD; without, shapes come from the libraries' loggers, must give
the same FLOPs, must not print anything, and the report must say where they came from.
"""
import sys

import harness

# 2 B H (d + dv) pairs; causal: pairs = S (S + 1) / 2. Convolution: 2 M N K.
CAUSAL = 2 * 2 * 32 * (128 + 128) * 512 * 513 // 2
ONE_QUERY = 2 * 2 * 32 * (128 + 128) * 512
CONVOLUTION = 2 * 128 * (8 * 28 * 28) * (64 * 3 * 3)
CUDNN = {"causal": CAUSAL, "one_query": ONE_QUERY, "convolution": CONVOLUTION,
         "replayed": CAUSAL + ONE_QUERY + CONVOLUTION}
CLOSE = 0.001
EAGER = ["llm_eager.py", "--model", "tinyllama-1.1b", "--prompt", "64", "--new", "64", "--iters", "3"]
GRAPH = ["llm_cuda_graph.py", "--model", "tinyllama-1.1b", "--ctx", "256", "--steps", "64", "--rounds", "3"]


def cudnn(args):
    command = [args.python, str(harness.ROOT / "tests/gpu/cudnn_client.py")]
    stages = [word for name in CUDNN for word in ("--stage", f"{name}=^{name}$")]
    outcome = harness.profile(args, ["--unrecorded-windows", "off", *stages], command, "cudnn")
    if outcome.failure() or outcome.report is None:
        return {"error": outcome.failure() or "no report: " + outcome.stderr[-300:]}
    rows = {}
    for name, truth in CUDNN.items():
        stage = harness.stage_of(outcome.report, name)
        flops = stage and stage.get("flops")
        rows[name] = {"truth": truth, "flops_per_step": flops and flops / stage["count"]}
    return {"rows": rows}


def gemms(args, program, without):
    words = [args.python, str(harness.WORKLOADS / program[0]), *program[1:]]
    outcome = harness.profile(args, ["--unrecorded-windows", "off"], (["env", "-u", "LD_PRELOAD"] if without else []) + words,
                              f"{program[0]}-{'logs' if without else 'hooks'}")
    if outcome.failure() or outcome.report is None:
        return {"error": outcome.failure() or "no report: " + outcome.stderr[-300:]}
    stage = harness.stage_of(outcome.report, "decode_step")
    notes = [entry.get("first") or entry.get("text") or "" for entry in outcome.report["diagnostics"]]
    return {"gemm_flops_per_step": stage and stage["gemm_flops"] and stage["gemm_flops"] / stage["count"],
            "gemm_coverage_frac": stage and stage["gemm_coverage_frac"], "tpot_ms": (outcome.result or {}).get("tpot_ms"),
            "printed": outcome.stdout.count("cublas"), "says": any("not preloaded" in note for note in notes)}


def problems_of(results):
    found = []
    rows = results.get("cudnn", {}).get("rows")
    if not rows:
        found.append(f"cudnn: {results.get('cudnn', {}).get('error', 'not run')}")
    for name, row in (rows or {}).items():
        if not row["flops_per_step"] or abs(row["flops_per_step"] / row["truth"] - 1) > CLOSE:
            found.append(f"cudnn {name}: {row['flops_per_step']} FLOPs a step, expected {row['truth']}")
    for kind in ("eager", "graph"):
        hooks, logs = results.get(f"{kind}-hooks", {}), results.get(f"{kind}-logs", {})
        if not hooks.get("gemm_flops_per_step") or not logs.get("gemm_flops_per_step"):
            found.append(f"{kind}: no GEMM FLOPs: {hooks.get('error') or logs.get('error') or (hooks, logs)}")
            continue
        if abs(logs["gemm_flops_per_step"] / hooks["gemm_flops_per_step"] - 1) > CLOSE:
            found.append(f"{kind}: {logs['gemm_flops_per_step']} by logs, {hooks['gemm_flops_per_step']} by hooks")
        if (logs["gemm_coverage_frac"] or 0) < 0.99:
            found.append(f"{kind}: {logs['gemm_coverage_frac']} of the GEMM time with a shape by logs")
        if logs["printed"]:
            found.append(f"{kind}: the libraries printed {logs['printed']} lines")
        if not logs["says"]:
            found.append(f"{kind}: the report does not say that shapes came from logs")
    return found


def main():
    parser = harness.arguments(__doc__, "shapes_results.json")
    args = parser.parse_args()
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    runs = {"cudnn": lambda: cudnn(args)}
    for kind, program in (("eager", EAGER), ("graph", GRAPH)):
        for how in ("hooks", "logs"):
            runs[f"{kind}-{how}"] = lambda program=program, how=how: gemms(args, program, how == "logs")
    for name, run in runs.items():
        known = state.get(name)
        if known and "error" not in known or budget.spent(40):
            continue
        state.put(name, run())
        print(name, state.get(name), flush=True)
    problems = problems_of(state.results())
    state.save(summary={"passed": not problems, "problems": problems, "close": CLOSE, "results": state.results()})
    harness.write_summary(args, state)
    print("\n".join(problems) or "all right")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
