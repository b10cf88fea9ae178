#!/usr/bin/env python3
"""The laws of conservation.py can be broken: each tampering with a real report must be noticed."""

import copy
import json
import pathlib
import sys

import conservation

ROOT = pathlib.Path(__file__).resolve().parent
REPORT = ROOT / "analyze/all_rows_json/expected.json"
RECORDING = ROOT / "inputs/kineto_qwen2.5-0.5b_cuda_graph.json.gz"
NS = 1e-6  # one nanosecond in milliseconds


def add(row, key, amount):
    row[key] = round(row[key] + amount, 6)


def move_idle(report):
    """One nanosecond from busy to idle: every sum inside the report but the idle causes still holds."""
    add(report["stages"][0], "gpu_busy_ms", -NS)
    add(report["stages"][0], "gpu_idle_ms", NS)


def longer_window(report):
    add(report["stages"][0], "wall_ms", NS)
    add(report["stages"][0], "gpu_idle_ms", NS)
    add(report["idle"][0], "total_ms", NS)


def longer_path(report):
    add(report["critical_path"][0], "gpu_gap_ms", NS)


def less_work_on_path(report):
    add(report["critical_path_work"][0], "ms", -NS)


def shorter_kernels(report):
    """A nanosecond less in category and kernel alike: only the recording itself tells."""
    add(report["categories"][0], "time_ms", -NS)
    kernel = max(report["kernels_topk"], key=lambda row: row["total_ms"])
    add(kernel, "total_ms", -NS)
    kernel["mean_ms"] = kernel["total_ms"] / kernel["calls"]


def another_share(report):
    finding = report["findings"][0]
    finding["title"] = "decode: 58.4 % of the GPU time is lost"
    finding["evidence"].append(dict(finding["evidence"][0], metric="share of the stage's GPU time", value=0.59, unit="frac"))


TAMPERINGS = {
    "a key is missing": lambda report: report.pop("findings"),
    "a stage lacks a key": lambda report: report["stages"][0].pop("mbu"),
    "busy + idle is not wall": lambda report: add(report["stages"][0], "gpu_idle_ms", NS),
    "half a nanosecond": lambda report: report["stages"][0].update(wall_ms=report["stages"][0]["wall_ms"] + NS / 2),
    "idle moved": move_idle,
    "the window grew": longer_window,
    "a part of the critical path grew": longer_path,
    "a category of the critical path shrank": less_work_on_path,
    "kernels got shorter": shorter_kernels,
    "a kernel counts twice": lambda report: report["kernels_topk"].append(report["kernels_topk"][0]),
    "a category is missing": lambda report: report["categories"].pop(0),
    "an unknown kind": lambda report: report["stages"][0].update(kind="warmup"),
    "MFU above 1": lambda report: report["stages"][0].update(mfu=1.7),
    "mean is not total / calls": lambda report: report["kernels_topk"][0].update(mean_ms=1.0),
    "a title has another share than its evidence": another_share,
    "a severity that no share gives": lambda report: report["findings"][0].update(severity="info"),
    "percentiles out of order": lambda report: report["latency"]["tpot_ms"].update(p50=1e9),
}


def main():
    recordings = [RECORDING]
    sound = json.loads(REPORT.read_text())
    conservation.check_document(json.dumps(sound), recordings)
    unnoticed = []
    for name, tamper in TAMPERINGS.items():
        report = copy.deepcopy(sound)
        tamper(report)
        try:
            conservation.check_document(json.dumps(report), recordings)
            unnoticed.append(name)
        except conservation.Broken as broken:
            print(f"noticed: {name}: {broken}")
    for name in unnoticed:
        print(f"NOT NOTICED: {name}")
    sys.exit(1 if unnoticed else 0)


if __name__ == "__main__":
    main()
