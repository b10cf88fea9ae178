#!/usr/bin/env python3
"""Sources of noise that the protocol of `llmprof bench` has an answer to (docs/adr/0011-measuring-kernels.md), by
PyTorch alone. A look, not a verdict: it passes if all were measured.

    python3 tests/gpu/bench_noise_look.py [--summary noise.json]

pages: 24 matrices of 235 MB, each multiplied by a vector in a CUDA graph of 64, three rounds over all of them: how far the
matrices differ, and whether each of them keeps its time.

control: products of 8192 x 8192 back to back, of random numbers (A), of ones, which need little power (B), and of random
numbers with the other layout (C), one after the other: how soon the power's control answers another kernel, and how the
times move after that. Means of five graphs of six products each, about 50 ms.

placement: a sum and a copy of arrays of 268 MB, in several processes, some of which have taken and given back other memory
before: arrays one behind the other, and each of them moved by a distance of its own, of 128 KiB or of 2 MiB to some. How far
sets of arrays differ in one process, and how far the processes do.
"""
import json
import sys

import harness

PAGES = r"""
import json, time, torch
torch.set_grad_enabled(False)
N, K, LAUNCHES = 28672, 4096, 64
x = torch.randn(1, K, device="cuda", dtype=torch.bfloat16)

def timer(w):
    y = torch.empty(1, N, device="cuda", dtype=torch.bfloat16)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3): torch.mm(x, w.t(), out=y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES): torch.mm(x, w.t(), out=y)
    def median_us(seconds=0.06):
        times, end = [], time.time() + seconds
        while time.time() < end:
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record(); graph.replay(); b.record(); b.synchronize()
            times.append(a.elapsed_time(b) * 1000 / LAUNCHES)
        return sorted(times)[len(times) // 2]
    return median_us

weights = [torch.randn(N, K, device="cuda", dtype=torch.bfloat16) for _ in range(24)]
timers = [timer(w) for w in weights]
print(json.dumps({"rounds_us": [[round(t(), 2) for t in timers] for _ in range(3)]}))
"""

CONTROL = r"""
import json, time, torch
torch.set_grad_enabled(False)
N, LAUNCHES, REPLAYS = 8192, 6, 5
def uniform(): return torch.empty(N, N, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)
a, b, out = uniform(), uniform(), uniform()
ones = torch.ones(N, N, device="cuda", dtype=torch.bfloat16)
more_ones = torch.ones_like(ones)

def graph_of(call):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream): call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES): call()
    return graph

graphs = {"A": graph_of(lambda: torch.mm(a, b.t(), out=out)), "B": graph_of(lambda: torch.mm(ones, more_ones.t(), out=out)),
          "C": graph_of(lambda: torch.mm(a, b, out=out))}
played = []
for name, seconds in (("A", 3), ("B", 2), ("A", 2.5), ("C", 2.5), ("A", 1.5), ("B", 1), ("C", 2)):
    events, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record(); graphs[name].replay(); last.record()
        events.append((first, last))
        if len(events) > 3: events[-3][1].synchronize()
    torch.cuda.synchronize()
    times = [first.elapsed_time(last) * 1000 / LAUNCHES for first, last in events]
    parts = [times[i:i + REPLAYS] for i in range(0, len(times), REPLAYS)]
    played.append({"product": name, "us": [round(sum(part) / len(part)) for part in parts]})
print(json.dumps({"played": played}))
"""

PLACEMENT = r"""
import json, os, random, sys, time
os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
import torch
torch.set_grad_enabled(False)
SEED, SETS, ARRAYS, BYTES, ROOM, LAUNCHES = int(sys.argv[1]), 6, 3, 1 << 28, 1 << 26, 4
luck = random.Random(SEED)
def take(size): return torch.empty(size, device="cuda", dtype=torch.uint8)
kept = []
if SEED:  # holes of many sizes
    blocks = [take(luck.randrange(1 << 21, 1 << 30)) for _ in range(40)]
    luck.shuffle(blocks)
    kept = blocks[:8]
    del blocks

def mean_us(call, sets, seconds=0.1):
    times, end = [], time.time() + seconds
    while time.time() < end:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for i in range(LAUNCHES * len(sets)): call(*sets[i % len(sets)])
        last.record(); last.synchronize()
        times.append(first.elapsed_time(last) * 1000 / LAUNCHES / len(sets))
    return sorted(times)[len(times) // 2]

CALLS = {"sum": lambda a, b, c: torch.add(a, b, out=c), "copy": lambda a, b, c: c.copy_(a)}
found = {}
for name, step in (("in a row", 0), ("moved by 128 KiB", 1 << 17), ("moved by 2 MiB", 1 << 21)):
    raw = [take(BYTES + ROOM) for _ in range(SETS * ARRAYS)]
    views = [block[k: k + BYTES].view(torch.bfloat16) for block, k in
             ((block, step * luck.randrange(ROOM // step) if step else 0) for block in raw)]
    for view in views: view.uniform_(-1, 1)
    sets = [views[i:i + ARRAYS] for i in range(0, len(views), ARRAYS)]
    for call in CALLS.values(): mean_us(call, sets, 0.05)
    found[name] = {what: {"all": round(mean_us(call, sets), 2), "sets": [round(mean_us(call, [s], 0.04), 2) for s in sets]}
                   for what, call in CALLS.items()}
    del raw, views, sets
print(json.dumps(found))
"""
PLACEMENT_SEEDS = [0, 0, 1, 2, 3, 4]


def print_placements(processes):
    for name in processes[0]:
        for what in processes[0][name]:
            alls = [found[name][what]["all"] for found in processes]
            within = max(max(found[name][what]["sets"]) / min(found[name][what]["sets"]) - 1 for found in processes)
            print(f"{what} of arrays {name}: {min(alls):.2f} to {max(alls):.2f} us by process ({max(alls) / min(alls) - 1:.2%}), "
                  f"sets of one process within {within:.2%}")


def main():
    args = harness.arguments(__doc__, "bench_noise.json").parse_args()
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    problems = []
    parts = {"pages": (PAGES, []), "control": (CONTROL, []),
             **{f"placement {i}": (PLACEMENT, [str(seed)]) for i, seed in enumerate(PLACEMENT_SEEDS)}}
    for name, (program, words) in parts.items():
        if name in state or budget.spent(30):
            continue
        outcome = harness.execute([args.python, "-c", program, *words], args.timeout)
        if outcome.returncode == 0:
            state.put(name, json.loads(outcome.stdout.strip().splitlines()[-1]))
        else:
            problems.append(f"{name}: {outcome.failure()}")
    missing = [name for name in parts if name not in state]
    if (pages := state.get("pages")) is not None:
        by_matrix = list(zip(*pages["rounds_us"]))
        means = [sum(times) / len(times) for times in by_matrix]
        print(f"matrices: {min(means):.2f} to {max(means):.2f} us; the same one within "
              f"{max(max(times) / min(times) - 1 for times in by_matrix):.2%}")
    for part in (state.get("control") or {"played": []})["played"]:
        print(part["product"], *part["us"][:12], "...")
    if processes := [state.get(name) for name in parts if name.startswith("placement") and name in state]:
        print_placements(processes)
    state.save(summary=state.results(), problems=problems, missing=missing, passed=not problems and not missing)
    harness.write_summary(args, state)
    print(json.dumps({"passed": not problems and not missing, "problems": problems, "missing": missing}))
    return 0 if not problems and not missing else 1


if __name__ == "__main__":
    sys.exit(main())
