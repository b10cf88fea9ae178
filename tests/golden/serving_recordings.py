#!/usr/bin/env python3
"""Writes results of server benchmarks as their programs write them, from the fields of their public sources: made up requests
with a fixed seed, figures by the programs' own formulas. `serving_recordings.py FOLDER`.

vLLM: vllm/benchmarks/serve.py; SGLang: python/sglang/bench_serving.py; AIPerf: docs/tutorials/working-with-profile-exports.md
and docs/reference/json-export-schema.md; GenAI-Perf: its exported statistics; GuideLLM: schemas/request_stats.py and
benchmark/schemas/generative/metrics.py.
"""

import json
import math
import pathlib
import random
import sys

START_NS = 1764180000123456789


def quantile(values, part):
    """numpy.percentile: linear between ranks."""
    ordered = sorted(values)
    rank = part * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def deviation(values):
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


def requests(seed, number, prompt, ttft, itl, rate, failing=()):
    """Requests as a client sees them: seconds."""
    made = random.Random(seed)
    at, out = 1234.5, []
    for i in range(number):
        tokens = made.randint(1, 24)
        first = ttft * made.uniform(0.7, 1.9)
        pieces = [itl * made.uniform(0.8, 1.6) for _ in range(tokens - 1)]
        out.append({"start": at, "input": prompt + made.randint(-9, 9), "output": tokens, "ttft": first, "itl": pieces,
                    "latency": first + sum(pieces), "error": ""})
        if i in failing:
            out[-1].update(output=0, ttft=0.0, itl=[], latency=0.0, error="Traceback (most recent call last):\n  ...\nTimeoutError")
        at += made.expovariate(rate)
    return out


def distributions(made, e2e, percentiles):
    done = [one for one in made if not one["error"]]
    values = {"ttft": [one["ttft"] for one in done],
              "tpot": [(one["latency"] - one["ttft"]) / (one["output"] - 1) for one in done if one["output"] > 1],
              "itl": [piece for one in done for piece in one["itl"]], e2e: [one["latency"] for one in done]}
    out = {}
    for name, of in values.items():
        out[f"mean_{name}_ms"] = sum(of) / len(of) * 1e3
        out[f"median_{name}_ms"] = quantile(of, 0.5) * 1e3
        out[f"std_{name}_ms"] = deviation(of) * 1e3
        for part in percentiles:
            out[f"p{part}_{name}_ms"] = quantile(of, part / 100) * 1e3
    return out


def totals(made):
    done = [one for one in made if not one["error"]]
    duration = max(one["start"] + one["latency"] for one in made) - made[0]["start"] + 0.004
    inputs, outputs = sum(one["input"] for one in done), sum(one["output"] for one in done)
    return done, duration, inputs, outputs


def vllm(made, detailed):
    done, duration, inputs, outputs = totals(made)
    out = {"date": "20261126-180000", "endpoint_type": "openai", "backend": "openai", "label": None,
           "model_id": "meta-llama/Llama-3.1-8B-Instruct", "tokenizer_id": "meta-llama/Llama-3.1-8B-Instruct",
           "num_prompts": len(made), "request_rate": 8.0, "burstiness": 1.0, "max_concurrency": 16, "duration": duration,
           "completed": len(done), "failed": len(made) - len(done), "total_input_tokens": inputs,
           "total_output_tokens": outputs, "request_throughput": len(done) / duration, "request_goodput": None,
           "output_throughput": outputs / duration, "total_token_throughput": (inputs + outputs) / duration}
    if detailed:
        out |= {"input_lens": [one["input"] for one in made], "output_lens": [one["output"] for one in made],
                "ttfts": [one["ttft"] for one in made], "itls": [one["itl"] for one in made],
                "latencies": [one["latency"] for one in made], "start_times": [one["start"] for one in made],
                "generated_texts": ["a \"text\" with ]} \\ and \u00e9\n" * (one["output"] > 0) for one in made],
                "errors": [one["error"] for one in made]}
    out |= {"max_output_tokens_per_s": 61.0, "max_concurrent_requests": 9, "rtfx": 0.0}
    return json.dumps(out | distributions(made, "e2el", (90, 99))) + "\n"


def sglang(made, rate, concurrency, detailed):
    done, duration, inputs, outputs = totals(made)
    out = {"tag": None, "backend": "sglang", "dataset_name": "random", "request_rate": rate, "max_concurrency": concurrency,
           "sharegpt_output_len": None, "random_input_len": 512, "random_output_len": 24, "random_range_ratio": 0.0,
           "server_info": {"model_path": "Qwen/Qwen2.5-7B-Instruct", "tp_size": 1, "internal_states": [{"accept_length": None}]},
           "duration": duration, "completed": len(done), "total_input_tokens": inputs, "total_output_tokens": outputs,
           "total_output_tokens_retokenized": outputs - 1, "request_throughput": len(done) / duration,
           "input_throughput": inputs / duration, "output_throughput": outputs / duration,
           "total_throughput": (inputs + outputs) / duration}
    out |= distributions(made, "e2e_latency", (99,))
    out |= {"concurrency": sum(one["latency"] for one in done) / duration, "accept_length": None}
    if detailed:
        out |= {"input_lens": [one["input"] for one in made], "output_lens": [one["output"] for one in made],
                "ttfts": [one["ttft"] for one in made], "itls": [one["itl"] for one in made],
                "generated_texts": ["text"] * len(made), "errors": [one["error"] for one in made]}
    return json.dumps(out) + "\n"


def ns(seconds):
    return round(seconds * 1e9)


def aiperf_records(made):
    out = []
    for i, one in enumerate(made):
        start = START_NS + ns(one["start"] - made[0]["start"])
        record = {"metadata": {"session_num": i, "x_request_id": f"request-{i}", "turn_index": 0, "request_start_ns": start,
                               "request_ack_ns": start + 1000, "request_end_ns": start + ns(one["latency"]),
                               "worker_id": "worker_1", "benchmark_phase": "warmup" if i == 0 else "profiling",
                               "was_cancelled": bool(one["error"]), "cancellation_time_ns": None}}
        if one["error"]:
            record["metrics"] = {"error_isl": {"value": one["input"], "unit": "tokens"}}
            record["error"] = {"code": 499, "type": "RequestCancellationError", "message": "Request was cancelled after 0.000 seconds"}
        else:
            record["metrics"] = {
                "input_sequence_length": {"value": one["input"], "unit": "tokens"},
                "time_to_first_token": {"value": one["ttft"] * 1e3, "unit": "ms"},
                "request_latency": {"value": one["latency"] * 1e3, "unit": "ms"},
                "output_token_count": {"value": one["output"], "unit": "tokens"},
                "inter_chunk_latency": {"value": [piece * 1e3 for piece in one["itl"]], "unit": "ms"},
                "output_sequence_length": {"value": one["output"], "unit": "tokens"},
                "output_token_throughput_per_user": {"value": 1.0, "unit": "tokens/sec/user"}}
            record["error"] = None
        out.append(json.dumps(record) + "\n")
    return "".join(out)


def block(values, unit, scale):
    names = {"avg": sum(values) / len(values), "min": min(values), "max": max(values), "std": deviation(values)}
    names |= {f"p{part}": quantile(values, part / 100) for part in (1, 25, 50, 75, 90, 95, 99)}
    return {"unit": unit} | {name: value * scale for name, value in names.items()}


def aiperf_summary(made, genai):
    done, duration, inputs, outputs = totals(made)
    tpot = [(one["latency"] - one["ttft"]) / (one["output"] - 1) for one in done if one["output"] > 1]
    out = {} if genai else {"schema_version": "1.1", "aiperf_version": "0.8.0", "benchmark_id": "0123"}
    out |= {"request_throughput": {"unit": "requests/sec", "avg": len(done) / duration},
            "request_latency": block([one["latency"] for one in done], "ms", 1e3),
            "request_count": {"unit": "requests" if not genai else "count", "avg": float(len(done))},
            "time_to_first_token": block([one["ttft"] for one in done], "ms", 1e3),
            "inter_token_latency": block(tpot, "ms", 1e3),
            "output_token_throughput": {"unit": "tokens/sec", "avg": outputs / duration},
            "output_token_throughput_per_user": {"unit": "tokens/sec/user", "avg": 50.0},
            "output_sequence_length": block([one["output"] for one in done], "tokens", 1),
            "input_sequence_length": block([one["input"] for one in done], "tokens", 1)}
    if genai:
        out["input_config"] = {"model_names": ["llama-3.1-8b"], "perf_analyzer": {"stimulus": {"concurrency": 4}}}
    else:
        out |= {"error_request_count": {"unit": "requests", "avg": float(len(made) - len(done))},
                "benchmark_duration": {"unit": "sec", "avg": duration}, "total_osl": {"unit": "tokens", "avg": float(outputs)},
                "total_isl": {"unit": "tokens", "avg": float(inputs)},
                "inter_chunk_latency": block([piece for one in done for piece in one["itl"]], "ms", 1e3),
                "telemetry_data": {"endpoints": {"localhost:9400": {"gpus": {"gpu_0": {"metrics": {"power": {"unit": "W", "avg": 310.0}}}}}}},
                "input_config": {"endpoint": {"model_names": ["meta-llama/Llama-3.1-8B-Instruct"], "streaming": True},
                                 "loadgen": {"concurrency": 8, "request_rate": None}},
                "was_cancelled": False, "error_summary": []}
    return json.dumps(out, indent=2) + "\n"


def summary(values, scale=1):
    return {"mean": sum(values) / len(values) * scale, "median": quantile(values, 0.5) * scale, "mode": values[0] * scale,
            "variance": 0.0, "std_dev": deviation(values) * scale, "min": min(values) * scale, "max": max(values) * scale,
            "count": len(values), "total_sum": sum(values) * scale,
            "percentiles": {f"p{name}": quantile(values, float(part)) * scale
                            for name, part in (("001", 0.001), ("01", 0.01), ("05", 0.05), ("25", 0.25), ("50", 0.5), ("75", 0.75),
                                               ("90", 0.9), ("95", 0.95), ("99", 0.99), ("999", 0.999))},
            "cumulative_distribution_function": None}


def of_status(done):
    return {"successful": done, "incomplete": None, "errored": None, "total": done}


def guidellm_request(one):
    return {"type_": "generative_request_stats", "request_id": "r", "output": "text", "info": {"error": one["error"] or None, "timings": {}},
            "request_start_time": START_NS / 1e9 + one["start"], "request_end_time": START_NS / 1e9 + one["start"] + one["latency"],
            "request_latency": one["latency"] or None, "prompt_tokens": one["input"], "output_tokens": one["output"] or None,
            "time_to_first_token_ms": one["ttft"] * 1e3 or None}


def guidellm_run(made, strategy, with_requests):
    done, duration, inputs, outputs = totals(made)
    flat = [(one["latency"] - one["ttft"]) / (one["output"] - 1) for one in done if one["output"] > 1 for _ in range(one["output"] - 1)]
    metrics = {"request_totals": {"successful": len(done), "incomplete": 0, "errored": len(made) - len(done), "total": len(made)},
               "requests_per_second": of_status(summary([len(done) / duration])),
               "request_concurrency": of_status(summary([3.0])),
               "request_latency": of_status(summary([one["latency"] for one in done])),
               "prompt_token_count": of_status(summary([float(one["input"]) for one in done])),
               "output_token_count": of_status(summary([float(one["output"]) for one in done])),
               "time_to_first_token_ms": of_status(summary([one["ttft"] for one in done], 1e3)),
               "time_per_output_token_ms": of_status(summary([one["latency"] / one["output"] for one in done], 1e3)),
               "inter_token_latency_ms": of_status(summary(flat, 1e3)),
               "output_tokens_per_second": of_status(summary([outputs / duration])),
               "tokens_per_second": of_status(summary([(inputs + outputs) / duration]))}
    kept = {"successful": [guidellm_request(one) for one in done] if with_requests else [], "incomplete": [],
            "errored": [guidellm_request(one) for one in made if one["error"]] if with_requests else [], "total": None}
    return {"type_": "generative_benchmark", "config": {"strategy": strategy}, "scheduler_state": {"num_processes": 1},
            "metrics": metrics, "requests": kept, "start_time": 1.0, "end_time": 1.0 + duration, "duration": duration}


def guidellm(first, second):
    return json.dumps({"metadata": {"version": 1, "guidellm_version": "0.5.3"}, "args": {"target": "http://localhost:8000", "model": "Qwen/Qwen3-8B"},
                       "benchmarks": [guidellm_run(first, {"type_": "constant", "rate": 4.0}, True),
                                      guidellm_run(second, {"type_": "throughput", "max_concurrency": 32}, False)]}, indent=1) + "\n"


def main():
    folder = pathlib.Path(sys.argv[1])
    a = requests(1, 40, 512, 0.031, 0.009, 8.0, failing=(7, 30))
    b = requests(2, 24, 512, 0.045, 0.012, 20.0)
    c = requests(3, 30, 512, 0.090, 0.021, 60.0, failing=(4,))
    for name, text in {
            "serving_vllm.json": vllm(a, True), "serving_vllm_summary.json": vllm(a, False),
            "serving_sglang.jsonl": sglang(b, 20.0, 8, False) + sglang(c, math.inf, None, True),
            "serving_aiperf.jsonl": aiperf_records(a), "serving_aiperf.json": aiperf_summary(a, False),
            "serving_genai_perf.json": aiperf_summary(b, True), "serving_guidellm.json": guidellm(a, c)}.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
