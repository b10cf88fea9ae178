#!/usr/bin/env python3
"""Figures of server benchmarks against the same files read here with json and statistics.

Every request and figure that `llmprof export` has, and every row of the report, must be what the file holds: times of arrays are
seconds, of summaries milliseconds, of AIPerf in the unit that stands beside them. Distributions are computed here from the single
requests where the file has them, in another way than in the program (statistics.quantiles), and a figure that is changed in the
file must be counted.
"""

import argparse
import csv
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

INPUTS = pathlib.Path(__file__).resolve().parent / "inputs"
problems = []


def expect(condition, text):
    if not condition and len(problems) < 20:
        problems.append(text)
    return condition


def near(a, b, text):
    if a is None or b is None:
        return expect(a is None and b is None, f"{text}: {a} and {b}")
    return expect(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6), f"{text}: {a} and {b}")


def run(binary, *arguments):
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    expect(done.returncode in (0, 3), f"{arguments}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def report_of(binary, *files):
    return json.loads(run(binary, "analyze", *files, "--json", "--top", "0", "--no-store"))


def table_of(binary, file, name):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "tables"
        run(binary, "export", file, "--to", "csv", "-o", out)
        with open(out / f"{name}.csv", encoding="utf-8", newline="") as rows:
            return list(csv.DictReader(rows))


def median_p99(values):
    if not values:
        return None, None
    if len(values) == 1:
        return values[0], values[0]
    # The 99th of 99 cut points of the closed interval: what numpy.percentile calls 99.
    return statistics.median(values), statistics.quantiles(values, n=100, method="inclusive")[98]


def check_distributions(row, what, ttft, tpot, itl, e2e):
    """Lists of seconds."""
    for name, values in (("ttft", ttft), ("tpot", tpot), ("itl", itl), ("e2e", e2e)):
        median, high = median_p99(values)
        near(row[f"{name}_median_ms"], None if median is None else median * 1e3, f"{what} {name} median")
        near(row[f"{name}_p99_ms"], None if high is None else high * 1e3, f"{what} {name} p99")


def check_rates(row, what, duration, completed, inputs, outputs):
    near(row["duration_s"], duration, f"{what} duration")
    expect(row["completed"] == completed, f"{what}: {row['completed']} completed, not {completed}")
    expect((row["input_tokens"], row["output_tokens"]) == (inputs, outputs), f"{what}: tokens")
    near(row["requests_per_s"], completed / duration, f"{what} requests/s")
    near(row["output_tokens_per_s"], outputs / duration, f"{what} tokens/s")
    near(row["total_tokens_per_s"], (inputs + outputs) / duration, f"{what} tokens/s of both")


def check_arrays(binary, document, row, what):
    """A run of vLLM or SGLang with its requests."""
    good = [i for i, error in enumerate(document["errors"]) if not error]
    ttft = [document["ttfts"][i] for i in good]
    e2e = [document["latencies"][i] if "latencies" in document else document["ttfts"][i] + sum(document["itls"][i]) for i in good]
    tokens = [document["output_lens"][i] for i in good]
    tpot = [(end - first) / (n - 1) for first, end, n in zip(ttft, e2e, tokens) if n > 1]
    check_distributions(row, what, ttft, tpot, [piece for i in good for piece in document["itls"][i]], e2e)
    check_rates(row, what, document["duration"], len(good), sum(document["input_lens"][i] for i in good), sum(tokens))
    expect(row["failed"] == len(document["errors"]) - len(good) and row["requests"] == len(document["errors"]), f"{what}: requests")
    expect(row["checked"] >= 10 and row["disagreeing"] == 0, f"{what}: {row['disagreeing']} of {row['checked']} disagree")


def check_stated(document, row, what, e2e):
    """A run of which there are figures only."""
    for name, key in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("e2e", e2e)):
        for statistic in ("median", "p99"):
            near(row[f"{name}_{statistic}_ms"], document.get(f"{statistic}_{key}_ms"), f"{what} {name} {statistic}")
    check_rates(row, what, document["duration"], document["completed"], document["total_input_tokens"], document["total_output_tokens"])
    expect(row["requests"] == 0 and row["checked"] == 0, f"{what}: no request is in the file")


def check_flat(binary):
    document = json.loads((INPUTS / "serving_vllm.json").read_text())
    [row] = report_of(binary, INPUTS / "serving_vllm.json")["client_runs"]
    check_arrays(binary, document, row, "vllm")
    expect((row["format"], row["backend"], row["model"], row["request_rate"], row["max_concurrency"], row["unlimited_rate"]) ==
           ("vllm", document["backend"], document["model_id"], 8.0, 16, False), "vllm: its load")
    rows = table_of(binary, INPUTS / "serving_vllm.json", "client_requests")
    expect(len(rows) == len(document["ttfts"]), "vllm: requests of the export")
    first = min(document["start_times"])
    for i, exported in enumerate(rows):
        failed = bool(document["errors"][i])
        expect(exported["error"] == document["errors"][i], f"vllm request {i}: error")
        near(int(exported["start_ns"]) / 1e9, document["start_times"][i] - first, f"vllm request {i}: start")
        near(int(exported["latency_ns"] or -1), -1 if failed else round(document["latencies"][i] * 1e9), f"vllm request {i}: latency")
        near(int(exported["ttft_ns"] or -1), -1 if failed else round(document["ttfts"][i] * 1e9), f"vllm request {i}: TTFT")
        expect((int(exported["input_tokens"]), int(exported["output_tokens"])) == (document["input_lens"][i], document["output_lens"][i]),
               f"vllm request {i}: tokens")
    pieces = [(int(piece["request"]), int(piece["length_ns"])) for piece in table_of(binary, INPUTS / "serving_vllm.json", "client_intervals")]
    expect(pieces == [(i, round(value * 1e9)) for i, values in enumerate(document["itls"]) for value in values], "vllm: pieces")

    document = json.loads((INPUTS / "serving_vllm_summary.json").read_text())
    [row] = report_of(binary, INPUTS / "serving_vllm_summary.json")["client_runs"]
    check_stated(document, row, "vllm summary", "e2el")
    expect(row["failed"] == document["failed"], "vllm summary: failed")

    first, second = map(json.loads, (INPUTS / "serving_sglang.jsonl").read_text().splitlines())
    rows = report_of(binary, INPUTS / "serving_sglang.jsonl")["client_runs"]
    expect([row["source"] for row in rows] == ["serving_sglang.jsonl:1", "serving_sglang.jsonl:2"], "sglang: a row a run")
    check_stated(first, rows[0], "sglang", "e2e_latency")
    check_arrays(binary, second, rows[1], "sglang with requests")
    expect(rows[0]["failed"] is None, "sglang: failed requests are not in a summary")
    expect(math.isinf(second["request_rate"]) and rows[1]["request_rate"] is None and rows[1]["unlimited_rate"] is True, "sglang: Infinity")
    expect(rows[1]["model"] == second["server_info"]["model_path"], "sglang: the model")


def check_aiperf(binary):
    records = [json.loads(line) for line in (INPUTS / "serving_aiperf.jsonl").read_text().splitlines()]
    records = [record for record in records if record["metadata"]["benchmark_phase"] == "profiling"]
    good = [record for record in records if not record["error"]]
    [row] = report_of(binary, INPUTS / "serving_aiperf.jsonl")["client_runs"]

    def of(record, name):
        metric = record["metrics"][name]
        scale = {"ms": 1e-3, "tokens": 1}[metric["unit"]]
        return [value * scale for value in metric["value"]] if isinstance(metric["value"], list) else metric["value"] * scale
    ttft, e2e = [of(record, "time_to_first_token") for record in good], [of(record, "request_latency") for record in good]
    tokens = [of(record, "output_sequence_length") for record in good]
    tpot = [(end - first) / (n - 1) for first, end, n in zip(ttft, e2e, tokens) if n > 1]
    check_distributions(row, "aiperf records", ttft, tpot, [piece for record in good for piece in of(record, "inter_chunk_latency")], e2e)
    starts = [record["metadata"]["request_start_ns"] for record in good]
    duration = max(start + round(length * 1e9) for start, length in zip(starts, e2e)) - min(starts)
    check_rates(row, "aiperf records", duration / 1e9, len(good), sum(of(record, "input_sequence_length") for record in good), sum(tokens))
    expect(row["failed"] == len(records) - len(good), "aiperf records: failed")

    for name, itl in (("serving_aiperf.json", "inter_chunk_latency"), ("serving_genai_perf.json", None)):
        document = json.loads((INPUTS / name).read_text())
        [row] = report_of(binary, INPUTS / name)["client_runs"]
        for field, key in (("ttft", "time_to_first_token"), ("tpot", "inter_token_latency"), ("itl", itl), ("e2e", "request_latency")):
            near(row[f"{field}_median_ms"], document[key]["p50"] if key else None, f"{name} {field} median")
            near(row[f"{field}_p99_ms"], document[key]["p99"] if key else None, f"{name} {field} p99")
        near(row["requests_per_s"], document["request_throughput"]["avg"], f"{name} requests/s")
        near(row["output_tokens_per_s"], document["output_token_throughput"]["avg"], f"{name} tokens/s")
        expect(row["completed"] == document["request_count"]["avg"], f"{name} completed")


def check_guidellm(binary):
    document = json.loads((INPUTS / "serving_guidellm.json").read_text())
    rows = report_of(binary, INPUTS / "serving_guidellm.json")["client_runs"]
    for number, (row, benchmark) in enumerate(zip(rows, document["benchmarks"])):
        what = f"guidellm {number + 1}"
        good = benchmark["requests"]["successful"]
        if good:
            ttft, e2e = [one["time_to_first_token_ms"] / 1e3 for one in good], [one["request_latency"] for one in good]
            tpot = [(end - first) / (one["output_tokens"] - 1) for first, end, one in zip(ttft, e2e, good) if one["output_tokens"] > 1]
            check_distributions(row, what, ttft, tpot, [], e2e)
            expect(row["disagreeing"] == 0 and row["checked"] > 5, f"{what}: {row['disagreeing']} disagree")
        else:
            for name, key, scale in (("ttft", "time_to_first_token_ms", 1), ("e2e", "request_latency", 1e3)):
                stated = benchmark["metrics"][key]["successful"]
                near(row[f"{name}_median_ms"], stated["median"] * scale, f"{what} {name} median")
                near(row[f"{name}_p99_ms"], stated["percentiles"]["p99"] * scale, f"{what} {name} p99")
            expect(row["tpot_median_ms"] is None and row["itl_median_ms"] is None, f"{what}: TPOT is not in a summary")
        metrics = benchmark["metrics"]
        near(row["output_tokens_per_s"], metrics["output_tokens_per_second"]["successful"]["mean"], f"{what} tokens/s")
        expect((row["completed"], row["failed"]) == (metrics["request_totals"]["successful"], metrics["request_totals"]["errored"]), f"{what}: counts")
    expect([row["unlimited_rate"] for row in rows] == [False, True] and rows[1]["max_concurrency"] == 32, "guidellm: the load")


def check_changed(binary):
    """A figure that is not what the requests give is counted, each once."""
    document = json.loads((INPUTS / "serving_vllm.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "changed.json"
        for keys in (["median_ttft_ms"], ["p99_itl_ms", "mean_tpot_ms"], ["completed"], ["total_output_tokens"]):
            changed = dict(document)
            for key in keys:
                changed[key] = changed[key] * 1.01 if key.endswith("_ms") else changed[key] + 1
            file.write_text(json.dumps(changed))
            report = report_of(binary, file)
            counts = [row["count"] for row in report["diagnostics"] if row["key"] == "figure-disagrees"]
            expect(counts == [len(keys)] and report["client_runs"][0]["disagreeing"] == len(keys), f"{keys} changed: {counts}")


def check_beside(binary):
    """Beside a recording both are in one report, and that of the recording is as it is without."""
    recording = INPUTS / "kineto_qwen2.5-0.5b_annotated.json.gz"
    alone, both = report_of(binary, recording), report_of(binary, recording, INPUTS / "serving_vllm.json")
    expect(both["stages"] == alone["stages"] and both["latency"] == alone["latency"] and alone["stages"], "the recording's part")
    expect(both["client_runs"] == report_of(binary, INPUTS / "serving_vllm.json")["client_runs"], "the client's part")
    with tempfile.TemporaryDirectory() as folder:
        same = pathlib.Path(folder) / "serving_vllm.json"
        same.write_text((INPUTS / "serving_vllm_summary.json").read_text())
        rows = report_of(binary, INPUTS / "serving_vllm.json", same)["client_runs"]
        expect([row["source"] for row in rows] == ["serving_vllm.json", "serving_vllm.json (2)"], "files of one name stay apart")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    for check in (check_flat, check_aiperf, check_guidellm, check_changed, check_beside):
        check(binary)
    for problem in problems:
        print(problem)
    print("failed" if problems else "every figure is that of the files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
