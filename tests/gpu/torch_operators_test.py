#!/usr/bin/env python3
"""`llmprof run --torch`: the report names the operators, their shapes and the modules of an unmodified program.

    python3 tests/gpu/torch_operators_test.py [--state torch_operators.json]

Eager TinyLlama-1.1B, recorded once with --torch and once without:
  operators   at least 95 % of the kernel time of the decode steps belongs to an operator, and none of it to two; with
              kernels that have none, the operators add up to the GPU time of the whole recording
  counts      one aten::linear for each linear layer of the model in every step
  shapes      at least 95 % of the operators' GPU time is that of operators with input shapes, and the linear layers have
              the model's width
  modules     the model's classes are named
  unchanged   the same kernels, by name, as without --torch; there the report has no operators and says how to get them
What --torch costs is measured by benchmarks/distortion.py, configurations default-all, torch-operators, torch and torch-full.
"""
import re
import sys

import harness
from truth_test import kernels_of_report

LAYERS, LINEAR_PER_LAYER, HIDDEN = 22, 7, 2048
LINEARS = LAYERS * LINEAR_PER_LAYER + 1  # and the lm_head
WORDS = ["--model", "tinyllama-1.1b", "--prompt", "128", "--new", "32", "--iters", "2"]
# What both runs need for the same kernels to be in their reports: every step recorded, all rows.
OPTIONS = ["--unrecorded-windows", "off", "--no-adapt", "--top", "0"]
MODULES = ("LlamaDecoderLayer", "LlamaAttention", "LlamaMLP", "LlamaRMSNorm")
STAGES = ("prefill", "decode_step")
COVERAGE_MIN, SHAPED_MIN = 0.95, 0.95
ROUNDING = 1e-6  # sums of times that are printed in ms
SECONDS_PER_RUN = 45


def stage_times(report, stage):
    """GPU ms of a stage: of its kernels and copies, of the operators themselves, of operators with shapes, and bounds of
    what the outermost operators add up to (a name may be both outermost and inside another)."""
    rows = [row for row in report["operators"] if row["stage"] == stage]
    return {"gpu_ms": sum(row["total_ms"] for row in report["kernels_topk"] if row["stage"] == stage),
            "operators_ms": sum(row["gpu_self_ms"] for row in rows),
            "shaped_ms": sum(row["gpu_self_ms"] for row in rows if row["shapes"]),
            "outermost_least_ms": sum(row["gpu_total_ms"] for row in rows if row["top_level_calls"] == row["calls"]),
            "outermost_most_ms": sum(row["gpu_total_ms"] for row in rows if row["top_level_calls"]),
            "operators": len(rows), "calls": sum(row["calls"] for row in rows)}


def check_times(stage, times):
    problems = []
    if times["gpu_ms"] <= 0:
        return [f"{stage}: no GPU time in the report"]
    share = times["operators_ms"] / times["gpu_ms"]
    if not COVERAGE_MIN <= share <= 1 + ROUNDING:
        problems.append(f"{stage}: expected operators for {COVERAGE_MIN:.0%} to 100 % of the GPU time, found {share:.2%}")
    least, most = times["outermost_least_ms"], times["outermost_most_ms"]
    if not least * (1 - ROUNDING) <= times["operators_ms"] <= most * (1 + ROUNDING):
        problems.append(f"{stage}: expected the operators' own {times['operators_ms']:.3f} ms between {least:.3f} and "
                        f"{most:.3f} ms, the totals of the outermost ones")
    if times["operators_ms"] and times["shaped_ms"] < SHAPED_MIN * times["operators_ms"]:
        problems.append(f"{stage}: expected shapes for {SHAPED_MIN:.0%} of the operators' GPU time, found "
                        f"{times['shaped_ms'] / times['operators_ms']:.2%}")
    return problems


def check_linear(report, steps):
    """`steps` by stage, as the program did them."""
    problems = []
    for stage, count in steps.items():
        row = next((row for row in report["operators"] if row["stage"] == stage and row["name"] == "aten::linear"), None)
        if row is None:
            problems.append(f"{stage}: no operator aten::linear")
            continue
        if row["calls"] != count * LINEARS:
            problems.append(f"{stage}: expected {LINEARS} aten::linear in each of {count} steps, found {row['calls']}")
        if str(HIDDEN) not in re.findall(r"\d+", row["shapes"] or ""):
            problems.append(f"{stage}: expected {HIDDEN} in the shapes of aten::linear, found {row['shapes']!r}")
    return problems


def strings_of(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings_of(each)


def modules_of(report):
    """{class: sections of the report that name it}"""
    return {name: found for name in MODULES
            if (found := sorted(key for key, value in report.items()
                                if key not in ("source", "kernels_topk") and any(name in text for text in strings_of(value))))}


def digest(outcome, steps):
    """What is kept of the run with --torch, and what is wrong with it."""
    report = outcome.report
    out = {"stages": {stage: stage_times(report, stage) for stage in STAGES}, "modules": modules_of(report)}
    problems = [problem for stage, times in out["stages"].items() for problem in check_times(stage, times)]
    problems += check_linear(report, steps)
    sums = [row for row in report["conservation"] if row["name"].startswith("operators")]
    problems += [f"{row['name']}: expected {row['expected']} {row['unit']}, found {row['actual']}"
                 for row in sums if not row["ok"]]
    if not sums:
        problems.append("the report does not say whether the operators add up to the GPU time")
    if not out["modules"]:
        problems.append(f"none of {', '.join(MODULES)} in the report")
    out["coverage"] = {row["name"]: row["frac"] for row in report["coverage"]}
    out["examples"] = [{key: row[key] for key in ("name", "calls", "gpu_self_ms", "gpu_total_ms", "shapes", "shape_count")}
                       for row in report["operators"] if row["stage"] == "decode_step"][:12]
    out["problems"] = problems
    return out


def run_one(args, torch):
    command = [args.python, str(harness.WORKLOADS / "llm_eager.py"), *WORDS]
    options = [*OPTIONS, "--torch"] if torch else OPTIONS
    outcome = harness.profile(args, options, command, "operators" if torch else "plain", stamped=True)
    if outcome.failure() or outcome.report is None or outcome.result is None:
        return {"error": outcome.failure() or "no report or no RESULT line: " + outcome.stderr.strip()[-300:]}
    kernels = kernels_of_report(outcome.report)
    out = {"seconds": outcome.seconds, "session_bytes": outcome.session_bytes, "report_s": outcome.report_s,
           "result": outcome.result, "calls": {name: calls for name, (calls, _) in kernels.items()},
           "diagnostics": {entry["key"]: entry["count"] for entry in outcome.report["diagnostics"]}}
    if torch:
        steps = {"prefill": outcome.result["steps"] // outcome.result["new"], "decode_step": outcome.result["steps"]}
        out.update(digest(outcome, steps))
    else:
        advice = [entry["how_to_find_out"] for entry in outcome.report["cannot_tell"]]
        out["problems"] = ["operators in a report without --torch"] if outcome.report["operators"] else []
        if not any("--torch" in (text or "") for text in advice):
            out["problems"].append(f"expected --torch in what the report advises, found {advice}")
    return out


def judge(plain, named):
    both = {"without --torch": plain, "with --torch": named}
    errors = [f"{name}: {run['error']}" for name, run in both.items() if run and "error" in run]
    if plain is None or named is None or errors:
        return {"passed": False, "problems": errors or ["not run"]}
    other = {name[:120]: [plain["calls"].get(name, 0), named["calls"].get(name, 0)]
             for name in {**plain["calls"], **named["calls"]} if plain["calls"].get(name, 0) != named["calls"].get(name, 0)}
    problems = [*plain["problems"], *named["problems"]]
    if other or not plain["calls"]:
        problems.append(f"other kernels with --torch than without: {other or 'none at all'}")
    kernels = sum(named["calls"].values())
    return {"passed": not problems, "problems": problems, "kernels": kernels, "names_with_other_count": other,
            "stages": named["stages"], "modules": named["modules"], "examples": named["examples"],
            "coverage": named["coverage"], "diagnostics": named["diagnostics"],
            "tpot_ms": {"plain": plain["result"]["tpot_ms"], "torch": named["result"]["tpot_ms"]},
            "session_bytes": {"plain": plain["session_bytes"], "torch": named["session_bytes"]},
            "report_s": {"plain": plain["report_s"], "torch": named["report_s"]}}


def show(summary):
    if "stages" in summary:
        rows = [[stage, times["operators"], times["calls"], times["gpu_ms"], times["operators_ms"],
                 times["operators_ms"] / times["gpu_ms"] if times["gpu_ms"] else None,
                 times["shaped_ms"] / times["operators_ms"] if times["operators_ms"] else None]
                for stage, times in summary["stages"].items()]
        harness.print_table(["stage", "operators", "calls", "GPU ms", "of operators ms", "share", "shaped"], rows)
        print("modules:", summary["modules"])
        for key in ("tpot_ms", "session_bytes", "report_s"):
            print(f"{key}: {summary[key]['plain']} without, {summary[key]['torch']} with --torch (single runs)")
    for problem in summary["problems"]:
        print("FAIL", problem)


def main():
    args = harness.arguments(__doc__, "torch_operators_results.json").parse_args()
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    for name, torch in (("plain", False), ("torch", True)):
        if (name not in state or "error" in state.get(name)) and not budget.spent(SECONDS_PER_RUN):
            try:
                state.put(name, run_one(args, torch))
            except (OSError, KeyError) as error:
                state.put(name, {"error": f"{type(error).__name__}: {error}"})
            print(name, state.get(name).get("error", "done"), flush=True)
    summary = judge(state.get("plain"), state.get("torch"))
    show(summary)
    state.save(summary=summary)
    harness.write_summary(args, state)
    return 0 if summary["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
