#!/usr/bin/env python3
"""Metrics pages of servers, read once more here: every sample, and rates, means and quantiles computed from the text.

What `llmprof export` has in scraped_values must be the samples of the text, value by value. Rates, mean times and quantiles of
the report are computed from the same text with fractions: the increase of each counter over the time between its pages, the
increase of each bucket, and the bucket in which half, or 99 %, of the observations are reached. Then pages are changed: given in
the other order, without their times, after a restart of the server, by the server's older names.
"""

import argparse
import csv
import datetime
import fractions
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

INPUTS = pathlib.Path(__file__).resolve().parent / "inputs"
SAMPLE = re.compile(r'^([a-zA-Z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})? (\S+)(?: ([\d.]+))?(?: #.*)?$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
BLANK = 9223372036854775792

problems = []


def expect(condition, text):
    if not condition and len(problems) < 20:
        problems.append(text)
    return condition


def exact(text):
    return fractions.Fraction(text)


def seconds(text):
    if re.fullmatch(r"[\d.]+", text):
        return exact(text)
    return exact(str(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()))


def pages_of(text):
    """A list of pages: a dictionary (name, labels) -> (value as text, its time in s or None)."""
    pages, when = [], None
    for line in text.splitlines():
        if line.startswith("# time: "):
            when = seconds(line[8:])
            pages.append({})
        elif line == "# EOF":
            when = None
        match = SAMPLE.match(line)
        if line.startswith("#") or not match:
            continue
        name, labels, value, own = match.groups()
        key = name, tuple(sorted(LABEL.findall(labels or "")))
        if not pages or key in pages[-1]:
            pages.append({})
        time = when
        if own:
            time = exact(own) / 1000 if "." not in own and len(own) > 11 else exact(own)
        pages[-1][key] = value, time
    return [page for page in pages if page]


def run(binary, *arguments):
    done = subprocess.run([binary, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def report_of(binary, *files):
    return json.loads(run(binary, "analyze", *files, "--json", "--no-store"))


def close(value, wanted):
    return value is not None and abs(value - float(wanted)) <= 1e-9 * max(1, abs(float(wanted)))


def check_samples(binary, folder, files):
    run(binary, "export", *files, "--to", "csv", "-o", folder)
    with open(folder / "scraped_values.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    samples = [(key, value) for file in files for page in pages_of(file.read_text()) for key, value in page.items()]
    if not expect(len(rows) == len(samples), f"{files}: {len(rows)} rows, {len(samples)} samples in the text"):
        return
    for row, ((name, labels), (value, time)) in zip(rows, samples):
        where = f"{row['source']}: {name}{{{labels}}}"
        expect(row["name"] == name and tuple(LABEL.findall(row["labels"])) == labels, f"{where} is {row['name']} {row['labels']}")
        blank = value == "NaN" or (name.startswith("DCGM") and float(value) >= BLANK)
        expect((row["value"] in ("", "nan")) if blank else float(row["value"]) == float(value), f"{where} is {row['value']}, the page has {value}")
        expect(int(row["time_ns"]) == (0 if time is None else round(time * 10**9)), f"{where} at {row['time_ns']}, the page has {time}")
    print(f"{[file.name for file in files]}: {len(rows)} samples")


def total(page, name, labels, skip=()):
    """The sum over label sets that have these labels."""
    found = [exact(value) for (of, own), (value, _) in page.items()
             if of == name and all(pair in own for pair in labels) and not any(key in skip for key, _ in own)]
    return sum(found) if found else None


def time_of(page, name):
    return max(time for (of, _), (_, time) in page.items() if of == name)


def buckets(page, family, labels):
    found = {}
    for (of, own), (value, _) in page.items():
        if of == family + "_bucket" and all(pair in own for pair in labels):
            bound = dict(own)["le"]
            found[float("inf") if bound == "+Inf" else exact(bound)] = exact(value)
    return dict(sorted(found.items()))


def quantile(first, last, share):
    """(estimate, lower bound, upper bound) of the bucket that holds it."""
    increase = {bound: last[bound] - (first[bound] if first else 0) for bound in last}
    rank = exact(share) * list(increase.values())[-1]
    low, below = exact(0), exact(0)
    for bound, count in increase.items():
        if count >= rank and count > 0:
            if bound == float("inf"):
                return low, low, None
            return low + (bound - low) * (rank - below) / (count - below), low, bound
        low, below = bound, count
    return None


def figure(report, server, name, **of):
    rows = [row for row in report["server_figures"] if row["server"] == server and row["figure"] == name and
            all(row[key] == value for key, value in of.items())]
    expect(len(rows) == 1, f"{server} {name} {of}: {len(rows)} rows")
    return rows[0] if rows else {}


def distribution(report, server, name, **of):
    rows = [row for row in report["server_distributions"] if row["server"] == server and row["figure"] == name and
            all(row[key] == value for key, value in of.items())]
    expect(len(rows) == 1, f"{server} {name} {of}: {len(rows)} rows")
    return rows[0] if rows else {}


def check_counter(report, server, name, family, first, last, labels=(), scale=1, **of):
    row = figure(report, server, name, **of)
    increase = (total(last, family, labels) - total(first, family, labels)) * exact(str(scale))
    between = time_of(last, family) - time_of(first, family)
    expect(close(row.get("increase"), increase) and close(row.get("value"), increase), f"{server} {name}: {row}, {float(increase)}")
    expect(close(row.get("seconds"), between) and close(row.get("per_s"), increase / between), f"{server} {name}: {row} per s")


def check_histogram(report, server, name, family, first, last, labels=(), scale=1000):
    row = distribution(report, server, name)
    before = buckets(first, family, labels) if first else None
    after = buckets(last, family, labels)
    count, added = total(last, family + "_count", labels), total(last, family + "_sum", labels)
    if first:
        count, added = count - total(first, family + "_count", labels), added - total(first, family + "_sum", labels)
    expect(row.get("span") == ("pages" if first else "start"), f"{server} {name}: {row}")
    expect(close(row.get("count"), count) and close(row.get("mean"), added / count * scale), f"{server} {name}: {row}, {count}")
    for share, key in (("0.5", "p50"), ("0.99", "p99")):
        value, low, high = quantile(before, after, share)
        expect(close(row[key], value * scale) and close(row[key + "_least"], low * scale), f"{server} {name} {key}: {row}, {float(value)}")
        expect(row[key + "_most"] is None if high is None else close(row[key + "_most"], high * scale), f"{server} {name} {key}: {row}")


VLLM_TIMES = (("ttft", "time_to_first_token_seconds"), ("itl", "inter_token_latency_seconds"),
              ("tpot", "request_time_per_output_token_seconds"), ("e2e", "e2e_request_latency_seconds"),
              ("queue", "request_queue_time_seconds"), ("prefill", "request_prefill_time_seconds"),
              ("decode", "request_decode_time_seconds"), ("inference", "request_inference_time_seconds"))


def check_vllm(binary, folder):
    files = INPUTS / "metrics_vllm_before.prom", INPUTS / "metrics_vllm_after.prom"
    first, last = (pages_of(file.read_text())[0] for file in files)
    report = report_of(binary, *files)
    for name, family in (("requests", "request_success"), ("input-tokens", "prompt_tokens"), ("output-tokens", "generation_tokens"),
                         ("preemptions", "num_preemptions"), ("prefix-cache-hits", "prefix_cache_hits")):
        check_counter(report, "vllm", name, f"vllm:{family}_total", first, last)
    for name, family in VLLM_TIMES:
        check_histogram(report, "vllm", name, f"vllm:{family}", first, last)
    check_histogram(report, "vllm", "tokens-per-step", "vllm:iteration_tokens_total", first, last, scale=1)
    hits, queries = (total(last, f"vllm:prefix_cache_{of}_total", ()) - total(first, f"vllm:prefix_cache_{of}_total", ())
                     for of in ("hits", "queries"))
    expect(close(figure(report, "vllm", "prefix-cache-hit")["value"], hits / queries), "share of the prefix cache")
    for name, family in (("running", "num_requests_running"), ("waiting", "num_requests_waiting"), ("kv-cache", "kv_cache_usage_perc")):
        row = figure(report, "vllm", name)
        expect(close(row["value"], total(last, "vllm:" + family, ())) and close(row["first"], total(first, "vllm:" + family, ())), f"{row}")
    # One page: since the start.
    alone = report_of(binary, files[1])
    for name, family in VLLM_TIMES:
        check_histogram(alone, "vllm", name, f"vllm:{family}", None, last)
    row = figure(alone, "vllm", "requests")
    expect(row["per_s"] is None and row["increase"] is None and close(row["value"], total(last, "vllm:request_success_total", ())), f"{row}")
    expect(any("one page" in said["why"] for said in alone["cannot_tell"]), "one page is said so")
    # The other order, and both in one file: the same.
    def figures(of):
        return of["server_figures"], of["server_distributions"]
    expect(figures(report_of(binary, files[1], files[0])) == figures(report), "the order of the files does not matter")
    (folder / "both.prom").write_text(files[0].read_text() + files[1].read_text())
    expect(figures(report_of(binary, folder / "both.prom")) == figures(report), "both pages in one file")
    # Without times: no rates, the same ratios.
    texts = [re.sub(r"^# time: .*\n", "", file.read_text(), flags=re.M) for file in files]
    (folder / "untimed.prom").write_text("".join(texts))
    untimed = report_of(binary, folder / "untimed.prom")
    expect(untimed["server_distributions"] == report["server_distributions"], "times of requests do not need times of pages")
    expect(all(row["per_s"] is None for row in untimed["server_figures"]), "no rates without times")
    expect(any("nothing says when" in said["why"] for said in untimed["cannot_tell"]), "and it is said so")
    # In files of their own: by the last change of each, unless a copy made both at once.
    split = folder / "first.prom", folder / "second.prom"
    for apart, known in ((30, True), (0, False)):
        for number, text in enumerate(texts):
            split[number].write_text(text)
            os.utime(split[number], (1795773600 + number * apart,) * 2)
        by_files = report_of(binary, *split)
        for row in by_files["server_figures"]:
            if row["kind"] == "counter":
                expect(close(row["per_s"], row["increase"] / 30) if known else row["per_s"] is None, f"by times of files: {row}")
        said = "last changes of their files" if known else "they were copied"
        expect(any(said in row["why"] for row in by_files["cannot_tell"]), f"{said} is said")
    # The names of older versions.
    for old, new in (("time_per_output_token_seconds", "inter_token_latency_seconds"), ("gpu_cache_usage_perc", "kv_cache_usage_perc"),
                     ("gpu_prefix_cache_hits", "prefix_cache_hits"), ("gpu_prefix_cache_queries", "prefix_cache_queries")):
        renamed = []
        for file in files:
            lines = [line for line in file.read_text().splitlines(True) if not re.search(rf"\bvllm:{new}(_|\b)", line)]
            renamed.append("".join(lines))
        (folder / "old.prom").write_text("".join(renamed))
        older = report_of(binary, folder / "old.prom")
        values = [[(row["figure"], row.get("value"), row.get("mean"), row.get("p99")) for table in figures(of) for row in table]
                  for of in (older, report)]
        expect(values[0] == values[1], f"{old} stands for {new}")
        expect(any(row["metric"] == f"vllm:{old}" for table in figures(older) for row in table), f"{old} is named")
    # Restarted: by a counter that fell, or by the time at which the process started.
    fallen = re.sub(r"(vllm:prompt_tokens_total\{.*\}) .*", r"\1 5.0", texts[1])
    started = texts[1].replace("process_start_time_seconds 1.79562345612e+09", "process_start_time_seconds 1.7957e+09")
    for text in (fallen, started):
        (folder / "restarted.prom").write_text("# time: 100\n" + texts[0] + "# time: 160\n" + text)
        restarted = report_of(binary, folder / "restarted.prom")
        expect(all(row["per_s"] is None and (row["kind"] == "gauge" or row["value"] is None) for row in restarted["server_figures"]),
               "no rate across a restart")
        expect(all(row["count"] is None and row["p50"] is None for row in restarted["server_distributions"]), "no times across a restart")
        expect(any("restarted" in said["why"] for said in restarted["cannot_tell"]), "a restart is said so")
    print(f"vLLM: {len(report['server_figures'])} figures, {len(report['server_distributions'])} distributions")


def check_sglang(binary):
    pages = pages_of((INPUTS / "metrics_sglang_loop.prom").read_text())
    report = report_of(binary, INPUTS / "metrics_sglang_loop.prom")
    expect(len(pages) == 3 and [row["samples"] for row in report["metrics_pages"]] == [len(page) for page in pages], "three pages")
    for name, family in (("requests", "num_requests"), ("input-tokens", "prompt_tokens"), ("output-tokens", "generation_tokens")):
        check_counter(report, "sglang", name, f"sglang:{family}_total", pages[0], pages[2])
    for name, family in (("ttft", "time_to_first_token"), ("itl", "inter_token_latency"), ("e2e", "e2e_request_latency")):
        check_histogram(report, "sglang", name, f"sglang:{family}_seconds", pages[0], pages[2])
    usage = [total(page, "sglang:token_usage", ()) for page in pages]
    row = figure(report, "sglang", "kv-cache")
    expect(close(row["least"], min(usage)) and close(row["most"], max(usage)) and close(row["value"], usage[2]), f"{row}")
    # Its first page does not have it.
    expect(figure(report, "sglang", "aborted")["value"] is None, "what a page lacks is not 0")
    expect(any("num_aborted_requests" in said["why"] for said in report["cannot_tell"]), "and it is said so")
    print("SGLang: three pages of a loop")


def check_triton(binary):
    first, last = pages_of((INPUTS / "metrics_triton.prom").read_text())
    report = report_of(binary, INPUTS / "metrics_triton.prom")
    for model in ("ensemble", "tensorrt_llm", "preprocessing"):
        labels = (("model", model),)
        check_counter(report, "triton", "requests", "nv_inference_request_success", first, last, labels, model=model)
        requests = total(last, "nv_inference_request_success", labels) - total(first, "nv_inference_request_success", labels)
        for name, family in (("request", "request"), ("queue", "queue"), ("compute-input", "compute_input"),
                             ("compute-infer", "compute_infer"), ("compute-output", "compute_output")):
            spent = total(last, f"nv_inference_{family}_duration_us", labels) - total(first, f"nv_inference_{family}_duration_us", labels)
            row = distribution(report, "triton", name, model=model)
            expect(row["unit"] == "us" and close(row["mean"], spent / requests) and close(row["count"], requests), f"{row}")
    check_counter(report, "triton", "failed", "nv_inference_request_failure", first, last, (("model", "ensemble"),), model="ensemble")
    print("Triton: mean times of three models")


def check_dcgm(binary):
    first, last = pages_of((INPUTS / "metrics_dcgm.prom").read_text())
    report = report_of(binary, INPUTS / "metrics_dcgm.prom")
    for gpu in ("0", "1"):
        labels = (("gpu", gpu),)
        instance = {"instance": f"Hostname=node-1, gpu={gpu}"}
        check_counter(report, "dcgm", "energy", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", first, last, labels, "0.001", **instance)
        for name, family, scale in (("power", "DEV_POWER_USAGE", "1"), ("sm-clock", "DEV_SM_CLOCK", "1"), ("tensor-active", "PROF_PIPE_TENSOR_ACTIVE", "1"),
                                    ("dram-active", "PROF_DRAM_ACTIVE", "1"), ("memory-busy", "DEV_MEM_COPY_UTIL", "0.01"),
                                    ("memory-used", "DEV_FB_USED", str(2**20))):
            row = figure(report, "dcgm", name, **instance)
            expect(close(row["value"], total(last, "DCGM_FI_" + family, labels) * exact(scale)), f"{row}")
    expect(not any(row["figure"] == "memory-temperature" for row in report["server_figures"]), "a blank value is none")
    idle = figure(report, "dcgm", "gpu-busy", instance="Hostname=node-1, gpu=1")
    expect(idle["pages"] == 1 and idle["value"] == 0, f"a blank value on one page: {idle}")
    print("DCGM: two GPUs")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        both = [INPUTS / "metrics_vllm_before.prom", INPUTS / "metrics_vllm_after.prom"]
        alone = [[INPUTS / f"metrics_{name}"] for name in ("sglang_loop.prom", "triton.prom", "dcgm.prom", "openmetrics.txt")]
        for number, files in enumerate([both, *alone]):
            check_samples(binary, folder / f"export{number}", files)
        check_vllm(binary, folder)
        check_sglang(binary)
        check_triton(binary)
        check_dcgm(binary)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


main()
