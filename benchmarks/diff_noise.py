#!/usr/bin/env python3
"""What equal processes differ by: the constants of src/diff/noise.cc, from docs/results.

Medians of the steps of each process that ran a program alone, without llmprof, as `tests/gpu/steady_test.py` left them in
docs/results/*.json: the standard deviation of their logarithms, by program. A program counts as one of the GPU where its
source replays CUDA graphs, else as one of the host. Four processes or more.

    python3 benchmarks/diff_noise.py
"""

import json
import math
import pathlib
import re
import statistics

ROOT = pathlib.Path(__file__).resolve().parent.parent
FEWEST = 4


def deviation(values):
    return statistics.stdev(math.log(value) for value in values)


def by_graph(name):
    files = list(ROOT.glob(f"tests/gpu/*/{name}.py"))
    return bool(files) and re.search(r"CUDAGraph|cuda\.graph|reduce-overhead", files[0].read_text()) is not None


def programs(node):
    """Every (program, figures) of a document, however deep."""
    if isinstance(node, dict):
        for key, value in node.items():
            if re.fullmatch(r"\w+ \d+", key) and isinstance(value, dict):
                yield key, value
            else:
                yield from programs(value)


def main():
    found = {}
    for path in sorted((ROOT / "docs/results").glob("h*.json")):
        for key, figures in programs(json.loads(path.read_text())):
            steps = (figures.get("own") or {}).get("steps_ms") or figures
            for pace, column in (("as it ran", "alone_processes"), ("at full pace", "full_pace_processes")):
                values = steps.get(column)
                if isinstance(values, list) and len(values) >= FEWEST:
                    found[(by_graph(key.split()[0]), pace, key, tuple(values))] = deviation(values)
    for graph in (False, True):
        for pace in ("as it ran", "at full pace"):
            spread = sorted(value for (is_graph, at, _, _), value in found.items() if (is_graph, at) == (graph, pace))
            if len(spread) < 2:
                continue
            quarters = statistics.quantiles(spread, n=4)
            print(f"{'CUDA graphs' if graph else 'eager':12} {pace:13} {len(spread):3} programs: "
                  f"median {100 * quarters[1]:.1f} %, quartiles {100 * quarters[0]:.1f} to {100 * quarters[2]:.1f} %")


if __name__ == "__main__":
    main()
