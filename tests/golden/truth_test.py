#!/usr/bin/env python3
"""TTFT, TPOT and FLOPs against what is known of the recordings from elsewhere: the programs' own timers while they were
recorded (inputs/truth.json and inputs/README.md) and closed forms (model/golden_flops.csv)."""

import argparse
import csv
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent
INPUTS = ROOT / "inputs"
# A timer starts and stops outside the first and the last recorded event: up to 0.1 ms of Python each way, and torch.compile
# checks its guards before anything is recorded.
TOLERANCE, SLACK_MS = 0.03, 0.15

FAILURES = []


def check(name, what, found, expected, tolerance, slack=0.0):
    off = None if found is None else abs(found - expected)
    good = off is not None and off <= tolerance * expected + slack
    print(f"{'ok  ' if good else 'FAIL'} {name:34} {what:28} found {found!s:>22} expected {expected}")
    if not good:
        FAILURES.append((name, what))


def report(binary, name, *more):
    run = subprocess.run([binary, "analyze", str(INPUTS / f"{name}.json.gz"), "--json", *more], capture_output=True, check=True)
    return json.loads(run.stdout)


def steps(result, kind):
    rows = [row for row in result["stages"] if row["kind"] == kind and row["name"] != "[unattributed]"]
    return sum(row["count"] for row in rows), sum(row["wall_ms"] for row in rows), rows


def timers(binary):
    truth = json.loads((INPUTS / "truth.json").read_text())["programs"]
    for name, kinds in truth.items():
        if not set(kinds) & {"prefill", "decode", "mixed"} or name == "no_gpu_events":
            continue
        result = report(binary, name)
        # The timer of a prefill of a vision-language model covers the vision tower.
        vision_ms = steps(result, "vision")[1]
        for kind, values in kinds.items():
            count, wall, _ = steps(result, kind)
            check(name, f"{kind} steps", count, len(values), 0)
            wall += vision_ms if kind == "prefill" else 0
            check(name, f"{kind} ms a step", round(wall / max(count, 1), 4), round(statistics.fmean(values), 4), TOLERANCE, SLACK_MS)


def known(binary):
    name = "kineto_llama-3.1-8b_unlabelled"
    result = report(binary, name)
    check(name, "prefill steps", steps(result, "prefill")[0], 1, 0)
    check(name, "prefill tokens", steps(result, "prefill")[2][0]["tokens"], 512, 0)
    check(name, "decode steps", steps(result, "decode")[0], 3, 0)
    check(name, "TTFT ms", result["latency"]["ttft_ms"]["mean"], 27.1, 0.03)
    check(name, "TPOT ms", result["latency"]["tpot_ms"]["mean"], 25.9, 0.03)
    with open(ROOT / "model/golden_flops.csv") as file:
        golden = {(row["model"], int(row["S_or_C"])): row for row in csv.DictReader(file)}
    row = golden["meta-llama/Llama-3.1-8B", 512]
    check(name, "prefill FLOPs", steps(result, "prefill")[2][0]["flops"], float(row["prefill_total"]), 0.001)
    found = [finding for finding in result["findings"] if finding["stage"] == "decode"][0]
    check(name, "decode is launch-bound", int(found["id"] == "launch-bound"), 1, 0)
    check(name, "busy share in its evidence", int("24.4 %" in found["title"]), 1, 0)

    # A file to process holds every row, unless fewer are asked for.
    everything = report(binary, name, "--top", "0")
    for table in ("kernels_topk", "roofline"):
        check(name, f"{table} rows without --top", len(result[table]), len(everything[table]), 0)
    check(name, "more kernels than 30", int(len(result["kernels_topk"]) > 30), 1, 0)

    name = "kineto_qwen2.5-0.5b_annotated"
    for more in ((), ("--stage", "nothing=^$")):  # the second run must not change what annotations say
        result = report(binary, name, *more)
        check(name, "prefill steps", steps(result, "prefill")[0], 1, 0)
        check(name, "decode steps", steps(result, "decode")[0], 4, 0)
        # durations of the annotations in the recording itself
        check(name, "TTFT ms", result["latency"]["ttft_ms"]["mean"], 27.017, 0.03)
        check(name, "TPOT ms", result["latency"]["tpot_ms"]["mean"], statistics.fmean([22.950, 24.154, 23.198, 23.120]), 0.03)
    # This program asked for the logits of all 512 prompt tokens, the closed form counts those of the last one.
    row = golden["Qwen/Qwen2.5-0.5B", 512]
    whole = float(row["prefill_total"]) + 511 * float(row["lm_head_flops_last_token"])
    check(name, "prefill FLOPs", steps(result, "prefill")[2][0]["flops"], whole, 0.001)

    name = "kineto_qwen2.5-0.5b_cuda_graph"
    result = report(binary, name)
    check(name, "decode steps", steps(result, "decode")[0], 4, 0)
    check(name, "TPOT ms", result["latency"]["tpot_ms"]["mean"], 3.11, 0.03)
    check(name, "not launch-bound", sum(f["id"] == "launch-bound" for f in result["findings"]), 0, 0)

    name = "kineto_qwen2.5-0.5b_memory_stack"
    result = report(binary, name)
    check(name, "prefill tokens", steps(result, "prefill")[2][0]["tokens"], 128, 0)
    check(name, "decode steps", steps(result, "decode")[0], 2, 0)
    check(name, "TTFT ms", result["latency"]["ttft_ms"]["mean"], 33.624, 0.03)
    check(name, "TPOT ms", result["latency"]["tpot_ms"]["mean"], statistics.fmean([28.697, 32.135]), 0.03)


# What is planted: cold_recordings.py.
def cold(binary):
    name = "cold_start"
    result = report(binary, name)
    rows = {(row["stage"], row["cause"]): row for row in result["warm_up"]}
    planted = {("prefill", "module-loading"): (1, 270), ("decode", "module-loading"): (2, 45), ("decode", "compilation"): (1, 120),
               ("decode", "unknown"): (1, 8)}
    check(name, "kinds of warm-up", len(rows), len(planted), 0)
    for key, (count, excess_ms) in planted.items():
        row = rows.get(key, {"steps": 0, "excess_ms": None})
        check(name, f"{key[0]}, {key[1]}: steps", row["steps"], count, 0)
        check(name, f"{key[0]}, {key[1]}: excess ms", row["excess_ms"], excess_ms, 1e-3)
    latency = result["latency"]
    check(name, "TTFT ms", latency["headline"]["ttft_ms"], 30, 1e-3)
    check(name, "TTFT of the first, ms", latency["headline"]["first_ttft_ms"], 300, 1e-3)
    check(name, "the first is cold", latency["headline"].get("first_ttft_cold"), True, 0)
    check(name, "TPOT ms", latency["headline"]["tpot_ms"], 10, 5e-3)
    check(name, "slowest steady step, ms", latency["itl_ms"]["max"], 100, 1e-3)
    check(name, "warm-up ms", latency["warmup_ms"], 443, 1e-3)
    name = "cold_only"
    result = report(binary, name)
    headline = result["latency"]["headline"]
    for figure in ("ttft_ms", "tpot_ms", "itl_ms", "output_tokens_per_s"):
        check(name, f"{figure} is not told", int(headline[figure] is None), 1, 0)
    check(name, "TTFT of the first, ms", headline["first_ttft_ms"], 380, 1e-3)
    check(name, "the first is cold", headline.get("first_ttft_cold"), True, 0)
    told = {row["question"] for row in result["cannot_tell"]}
    check(name, "warm figures are asked for", int({"What is TTFT of a warm request?", "What are TPOT and ITL of a warm program?"} <= told), 1, 0)
    check(name, "findings but first-call-cost", len([row for row in result["findings"] if row["id"] != "first-call-cost"]), 0, 0)


def two_gpus(binary):
    name = "pipeline_two_gpus"  # its own timers: tests/golden/inputs/README.md
    result = report(binary, name)
    check(name, "TTFT ms", result["latency"]["ttft_ms"]["mean"], 5.297, TOLERANCE, SLACK_MS)
    check(name, "TPOT ms", result["latency"]["tpot_ms"]["mean"], statistics.fmean([4.867, 7.276, 4.882]), TOLERANCE, SLACK_MS)
    check(name, "devices with stages", len({row["device"] for row in result["stages"]}), 2, 0)
    # GPU 1 needs what GPU 0 computed: no step is shorter than both together, less the copies that may run beside other work.
    # Above it by the idle time that has other causes than launching.
    decode = [row for row in result["stages"] if row["name"] == "decode"]
    busy = sum(row["gpu_busy_ms"] / row["count"] for row in decode)
    bound = [f["bound"] for f in result["findings"] if f["id"] == "launch-bound" and f["stage"] == "decode"][0]
    check(name, "TPOT at best over both GPUs' time", round(bound["to"] / busy, 4), 1.075, 0.125)
    name = "tensor_parallel_rank0"  # layers recur inside its annotated steps and must not be taken for steps
    result = report(binary, name)
    check(name, "prefill steps", steps(result, "prefill")[0], 1, 0)
    check(name, "prefill tokens", steps(result, "prefill")[2][0]["tokens"], 512, 0)
    check(name, "decode steps", steps(result, "decode")[0], 3, 0)
    check(name, "all-reduces", sum(row["kernels"] for row in result["categories"] if row["category"] == "communication"), 4 * 4 * 2, 0)
    check(name, "comm-bound", sum(f["id"] == "comm-bound" and f["stage"] == "decode" for f in result["findings"]), 1, 0)


# The models that tests/clients/record_kineto.py builds. FLOPs counted from recorded shapes and FLOPs by the model's formula
# have nothing in common but the truth.
LLAMA = dict(architectures=["LlamaForCausalLM"], hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8,
             num_hidden_layers=2, vocab_size=128256, tie_word_embeddings=False)
BUILT = {
    "batched": dict(LLAMA, num_hidden_layers=4),
    "item_per_step": LLAMA,
    "serving_annotations": LLAMA,
    "mixture_of_experts": dict(LLAMA, architectures=["MixtralForCausalLM"], vocab_size=32000, num_local_experts=8, num_experts_per_tok=2),
}


def formulas(binary):
    for name, config in BUILT.items():
        with tempfile.TemporaryDirectory(prefix="llmprof-truth-") as folder:
            path = pathlib.Path(folder) / "config.json"
            path.write_text(json.dumps(config))
            result = report(binary, name, "--model", str(path))
        ratios = {row["name"]: row["frac"] for row in result["coverage"] if row["name"].startswith("counted-over-formula")}
        for kind in ("prefill", "decode"):
            check(name, f"{kind} counted/formula", ratios.get(f"counted-over-formula: {kind}"), 1.0, 1e-6)


# What each program does wrong, and what the others must not be accused of.
PLANTED = {
    "unfused_attention": "attention-unfused",
    "fp32_weights": "dtype-wide",
    "kineto_qwen2.5-0.5b_annotated": "logits-all-tokens",
    "kineto_qwen2.5-0.5b_memory_stack": "logits-all-tokens",
}
RECORDINGS = ["batched", "compiled", "fp32_weights", "item_per_step", "mixture_of_experts", "serving_annotations", "unfused_attention",
              "vision_language", "kineto_llama-3.1-8b_unlabelled", "kineto_qwen2.5-0.5b_annotated", "kineto_qwen2.5-0.5b_cuda_graph",
              "kineto_qwen2.5-0.5b_memory_stack"]


def planted(binary):
    for name in RECORDINGS:
        found = {finding["id"] for finding in report(binary, name)["findings"]}
        for identifier in sorted(set(PLANTED.values())):
            check(name, identifier, int(identifier in found), int(PLANTED.get(name) == identifier), 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    known(binary)
    timers(binary)
    planted(binary)
    formulas(binary)
    two_gpus(binary)
    cold(binary)
    print(f"{len(FAILURES)} failed")
    return 1 if FAILURES else 0


sys.exit(main())
