#!/usr/bin/env python3
"""By how much two equal runs differ: the constants of src/diff/noise.h, from docs/results.

Of processes that ran a program alone, without llmprof, the medians of their steps, as `tests/gpu/steady_test.py` left them in
docs/results/*.json; and on CPUs what `llmprof analyze` says of equal runs (`tests/gpu/diff_test.py --program cpu`,
docs/results/cpu_diff_*.json). Quantiles of the absolute difference of logarithms over all pairs of a program's runs, each
program with the same weight. A program counts as one of the GPU where its source replays CUDA graphs and it does not go back
to the host between them, else as one of the host. Four processes or more, of 40 steps or more.

    python3 benchmarks/diff_noise.py
"""

import itertools
import json
import math
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
FEWEST, STEPS_LEAST = 4, 40
WAITED = 0.05  # kContended of src/diff/noise.h
QUANTILES = (0.90, 0.95, 0.98)
IN_PIECES = {"piecewise_server"}  # its graphs are pieces of a step


def quantiles(groups):
    """Of pairs; `groups`: lists of values, one for each program."""
    pairs = sorted((abs(math.log(a / b)), 2 / (len(values) * (len(values) - 1)) / len(groups))
                   for values in groups for a, b in itertools.combinations(values, 2))
    out = []
    for quantile in QUANTILES:
        above = 0
        for difference, weight in reversed(pairs):
            above += weight
            if above >= 1 - quantile:
                out.append(difference)
                break
    return out


def by_graph(name):
    files = list(ROOT.glob(f"tests/gpu/*/{name}.py"))
    graph = bool(files) and re.search(r"CUDAGraph|cuda\.graph|reduce-overhead", files[0].read_text()) is not None
    return None if graph and name in IN_PIECES else graph


def programs(node):
    """Every (program, figures) of a document, however deep."""
    if isinstance(node, dict):
        for key, value in node.items():
            if re.fullmatch(r"\w+ \d+", key) and isinstance(value, dict):
                yield key, value
            else:
                yield from programs(value)


def of_gpus():
    found = {}
    for path in sorted((ROOT / "docs/results").glob("h*.json")):
        for key, figures in programs(json.loads(path.read_text())):
            name, length = key.split()
            if int(length) < STEPS_LEAST:
                continue
            steps = (figures.get("own") or {}).get("steps_ms") or figures
            for pace, column in (("as they ran", "alone_processes"), ("at full pace", "full_pace_processes")):
                values = steps.get(column)
                if isinstance(values, list) and len(values) >= FEWEST:
                    found[(by_graph(name), pace, key, tuple(values))] = list(values)
    for graph, pace, label in ((False, "as they ran", "eager, as they ran"), (False, "at full pace", "eager, at full pace"),
                               (True, "as they ran", "CUDA graphs")):
        yield label, [values for key, values in found.items() if key[:2] == (graph, pace)]


def of_cpus():
    rows = [run for path in sorted((ROOT / "docs/results").glob("cpu_diff_fit_*.json"))
            for runs in json.loads(path.read_text())["summary"]["figures"].values() for run in runs.values() if run.get("itl_ms")]
    contended = [run for run in rows if run["waited_frac"] > WAITED]
    yield "one prompt, CPU waited for", [[run["ttft_ms"] for run in contended]]
    yield "one prompt, on a CPU", [[run["ttft_ms"] for run in rows if run not in contended]]
    yield "steps, CPU waited for", [[run["itl_ms"] for run in contended]]
    yield "steps, on a CPU", [[run["itl_ms"] for run in rows if run not in contended]]


def main():
    for label, groups in (*of_gpus(), *of_cpus()):
        if groups:
            print(f"{label:26} {len(groups):3} programs: " + ", ".join(
                f"{100 * part:.0f} of 100 pairs within {value:.3f}" for part, value in zip(QUANTILES, quantiles(groups))))


if __name__ == "__main__":
    main()
