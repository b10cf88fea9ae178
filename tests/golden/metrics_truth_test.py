#!/usr/bin/env python3
"""Two pages of a server and what really came between them, of simulated servers: the pages were written from the engines'
public sources and the truth from the simulated requests, blind to the reader.

    metrics_truth_test.py --binary LLMPROF

Folders of metrics_truth: before.prom.gz, after.prom.gz, truth.json.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent / "metrics_truth"
problems, checks = [], 0


def near(what, found, expected, share=1e-6):
    global checks
    checks += 1
    same = found is None if expected is None else found is not None and math.isclose(found, expected, rel_tol=share, abs_tol=1e-12)
    if not same:
        problems.append(f"{what}: {found}, really {expected}")


class Report:
    def __init__(self, binary, name):
        pages = [str(HERE / name / f"{page}.prom.gz") for page in ("before", "after")]
        done = subprocess.run([binary, "analyze", *pages, "--json"], capture_output=True, text=True, check=False,
                              env={**os.environ, "LLMPROF_STORE": "off"})
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        self.figures, self.distributions = document.get("server_figures", []), document.get("server_distributions", [])
        self.truth = json.loads((HERE / name / "truth.json").read_text())
        self.name = name

    def of(self, rows, figure, **labels):
        """Rows of a figure; with `labels`, those whose model or instance has these words."""
        return [row for row in rows if row["figure"] == figure and
                all(word in f'{row["model"]} {row["instance"]}' for word in labels.values())]

    def sum_of(self, figure, field, **labels):
        values = [row[field] for row in self.of(self.figures, figure, **labels)]
        return None if not values or any(value is None for value in values) else sum(values)

    def rate(self, figure, expected, **labels):
        near(f"{self.name}: {figure} per second {labels or ''}", self.sum_of(figure, "per_s", **labels), expected)

    def state(self, figure, expected, **labels):
        near(f"{self.name}: {figure} {labels or ''}", self.sum_of(figure, "value", **labels), expected)

    def time(self, figure, expected, **labels):
        """Count and mean, over all rows of the figure; the bucket of the median, where one row has it."""
        rows = self.of(self.distributions, figure, **labels)
        if expected is None:
            near(f"{self.name}: mean {figure}", next((row["mean"] for row in rows if row["mean"] is not None), None), None)
            return
        count = sum(row["count"] or 0 for row in rows)
        near(f"{self.name}: count of {figure}", count, expected["count"])
        if count == 0:
            return
        mean = sum(row["count"] * row["mean"] for row in rows) / count
        near(f"{self.name}: mean {figure}", mean / 1e3, expected["mean"])
        if len(rows) == 1 and "p50_in_bucket" in expected:
            for bound, end in zip(("p50_least", "p50_most"), expected["p50_in_bucket"]):
                near(f"{self.name}: {bound} of {figure}", rows[0][bound], 1e3 * end)


TIMES = {"ttft": "ttft_s", "itl": "inter_token_latency_s", "tpot": "tpot_per_request_s", "e2e": "e2e_s", "queue": "queue_s",
         "prefill": "prefill_s", "decode": "decode_s"}


def vllm(report):
    truth = report.truth
    report.rate("requests", truth["requests_finished_per_s"])
    report.rate("input-tokens", truth["prompt_tokens_per_s"])
    report.rate("output-tokens", truth["generation_tokens_per_s"])
    report.state("running", truth["running_at_second_page"])
    report.state("waiting", truth["waiting_at_second_page"])
    cache = truth["kv_cache_use_at_second_page"]
    report.state("kv-cache", sum(cache) if isinstance(cache, list) else cache)
    near(f"{report.name}: preemptions", report.sum_of("preemptions", "increase"), truth["preemptions"])
    if not isinstance(cache, list):
        hits = report.of(report.figures, "prefix-cache-hit")
        near(f"{report.name}: prefix hits", hits[0]["value"] if hits else None, truth["prefix_cache_hit_rate"])
    for figure, key in TIMES.items():
        if key in truth:
            report.time(figure, truth[key])


def sglang(report):
    truth = report.truth
    report.rate("requests", truth["requests_finished_per_s"])
    report.rate("input-tokens", truth["prompt_tokens_per_s_of_finished_requests"])
    report.rate("output-tokens", truth["generation_tokens_per_s_of_finished_requests"])
    report.state("running", truth["running_at_second_page"])
    report.state("waiting", truth["waiting_at_second_page"])
    report.state("kv-cache", truth["kv_cache_use_at_second_page"])
    for figure in ("ttft", "itl", "e2e", "queue"):
        report.time(figure, truth[TIMES[figure]])


def triton(report):
    for name, truth in report.truth["models"].items():
        model, version = name.split("/")
        labels = {"model": model, "version": f"version={version}"}
        report.rate("requests", truth["requests_ok_per_s"], **labels)
        report.rate("inferences", truth["inferences_per_s"], **labels)
        report.state("waiting", truth["pending_at_second_page"], **labels)
        if truth["requests_ok"] == 0:
            continue
        for figure, key in {"request": "mean_request_us", "queue": "mean_queue_us"}.items():
            rows = report.of(report.distributions, figure, **labels)
            near(f"triton: {figure} of {name}", rows[0]["mean"] if rows else None, truth[key])


def dcgm(report):
    scales = {"power": ("power_w_at_second_page", 1), "sm-clock": ("sm_clock_mhz", 1), "memory-clock": ("mem_clock_mhz", 1),
              "gpu-busy": ("gpu_util_percent", 0.01), "tensor-active": ("tensor_pipe_active_ratio", 1),
              "dram-active": ("dram_active_ratio", 1), "temperature": ("gpu_temp_c", 1),
              "memory-temperature": ("memory_temp_c", 1), "memory-used": ("fb_used_mib", 2**20)}
    for gpu, truth in report.truth["gpus"].items():
        for figure, (key, scale) in scales.items():
            if key not in truth:
                continue
            rows = report.of(report.figures, figure, gpu=f"gpu={gpu}")
            near(f"{report.name}: {figure} of GPU {gpu}", rows[0]["value"] if rows else None,
                 None if truth[key] is None else truth[key] * scale)
        energy = report.of(report.figures, "energy", gpu=f"gpu={gpu}")
        if energy and truth.get("mean_power_w_between_pages_from_energy") is not None:  # the counter has whole mJ
            near(f"{report.name}: mean power of GPU {gpu}", energy[0]["per_s"], truth["mean_power_w_between_pages_from_energy"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    options = parser.parse_args()
    engines = {"vllm": vllm, "sglang": sglang, "triton": triton, "dcgm": dcgm}
    for folder in sorted(HERE.iterdir()):
        engines[folder.name.split("_")[0]](Report(options.binary, folder.name))
    print("\n".join(problems) or f"{checks} figures agree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
