#!/usr/bin/env python3
"""Sources of noise that the protocol of `llmprof bench` has an answer to (docs/adr/0011-measuring-kernels.md), by
PyTorch and CuPy alone. A look, not a verdict: it passes if all were measured.

    python3 tests/gpu/bench_noise_look.py [--summary noise.json]

pages: 24 matrices of 235 MB, each multiplied by a vector in a CUDA graph of 64, three rounds over all of them: how far the
matrices differ, and whether each of them keeps its time.

control: products of 8192 x 8192 back to back, of random numbers (A), of ones, which need little power (B), and of random
numbers with the other layout (C), one after the other: how soon the power's control answers another kernel, and how the
times move after that. Means of five graphs of six products each, about 50 ms.

queue: 16 trials of a product of 512 x 4096 x 4096 queued behind a wait on a word of memory and let go at once, L2 emptied
before each, 64 sets of inputs; launched directly and as CUDA graphs, in turn: medians by the trial's place in the queue.

neighbour: a sum of two arrays of 1 GiB in a loop while another GPU of the machine is started and let go again and again (with
nothing else on it), by three ways to load and store: past L1 and .cs, past L1 and plain, plain and plain. Skipped, and
said so, without two GPUs and CuPy.
"""
import json
import sys

import harness

os.environ.setdefault("LLMPROF_STORE", "off")  # nothing of this among the runs of whoever calls it

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

QUEUE = r"""
import ctypes, json, threading, torch
torch.set_grad_enabled(False)
M, N, K, SETS, TRIALS, BATCHES = 512, 4096, 4096, 64, 16, 60
cuda = ctypes.CDLL("libcuda.so.1")
def randn(*shape): return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
sets = [(randn(M, K), randn(K, N), torch.empty(M, N, device="cuda", dtype=torch.bfloat16)) for _ in range(SETS)]
flushed = torch.zeros(32 << 20, device="cuda")  # 128 MiB
gate = torch.zeros(1, dtype=torch.int32).pin_memory()
stream = torch.cuda.Stream()

def product(i):
    a, b, out = sets[i % SETS]
    torch.mm(a, b, out=out)

def graph_of(i):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream): product(i)
    return graph

def batch_us(run, first):
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(TRIALS)]
    torch.cuda.synchronize()
    gate[0] = 0
    watchdog = threading.Timer(2, lambda: gate.fill_(1))
    watchdog.start()
    assert cuda.cuStreamWaitValue32_v2(ctypes.c_void_p(stream.cuda_stream), ctypes.c_uint64(gate.data_ptr()), 1, 0) == 0
    for i, (a, b) in enumerate(events):
        flushed.sum(); flushed.sum()
        a.record(stream); run(first + i); b.record(stream)
    gate[0] = 1
    watchdog.cancel()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) * 1000 for a, b in events]

with torch.cuda.stream(stream):
    for i in range(3): product(i)
    flushed.sum()
    torch.cuda.synchronize()
    graphs = [graph_of(i) for i in range(SETS)]
    ways = {"launched": product, "as a graph": lambda i: graphs[i % SETS].replay()}
    times = {name: [] for name in ways}
    for batch in range(BATCHES):
        for name, run in ways.items(): times[name].append(batch_us(run, batch * TRIALS))
median = lambda values: round(sorted(values)[len(values) // 2], 2)
print(json.dumps({name: {"by_place_us": [median(place) for place in zip(*batches)],
                         "by_batch_us": [median(batch[2:14]) for batch in batches]} for name, batches in times.items()}))
"""

NEIGHBOUR = r"""
import json, os, subprocess, sys, threading, time
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
if len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.strip().splitlines()) < 2:
    print(json.dumps({"skipped": "needs two GPUs"}))
    sys.exit()
try:
    import cupy
except ImportError:
    print(json.dumps({"skipped": "needs CuPy"}))
    sys.exit()
WORDS, UNROLL, THREADS, LAUNCHES = (1 << 30) // 16, 8, 256, 7
TEXT = r'''
extern "C" __global__ void sum(uint4* to, const uint4* a, const uint4* b, unsigned long long count) {
  const unsigned long long base = (unsigned long long)blockIdx.x * blockDim.x * UNROLL + threadIdx.x;
  uint4 x[UNROLL], y[UNROLL];
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const uint4 *p = a + base + k * blockDim.x, *q = b + base + k * blockDim.x;
    asm volatile("ld.global.nc" LOAD ".v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(x[k].x), "=r"(x[k].y), "=r"(x[k].z), "=r"(x[k].w) : "l"(p));
    asm volatile("ld.global.nc" LOAD ".v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(y[k].x), "=r"(y[k].y), "=r"(y[k].z), "=r"(y[k].w) : "l"(q));
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k)
    asm volatile("st.global" STORE ".v4.u32 [%0], {%1,%2,%3,%4};" :: "l"(to + base + k * blockDim.x), "r"(x[k].x + y[k].x),
                 "r"(x[k].y + y[k].y), "r"(x[k].z + y[k].z), "r"(x[k].w + y[k].w) : "memory");
}
'''
WAYS = {"past L1, .cs": (".L1::no_allocate", ".cs"), "past L1, plain": (".L1::no_allocate", ""), "plain, plain": ("", "")}
START = ("import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0); context = ctypes.c_void_p();"
         "cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)")

def loop_us(kernel, arrays, seconds):
    times, end = [], time.time() + seconds
    while time.time() < end:
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record()
        for _ in range(LAUNCHES): kernel((WORDS // UNROLL // THREADS,), (THREADS,), (*arrays, cupy.uint64(WORDS)))
        last.record(); last.synchronize()
        times.append(cupy.cuda.get_elapsed_time(first, last) * 1000 / LAUNCHES)
    parts = [sorted(times[i:i + 20]) for i in range(0, len(times) - 19, 20)]
    return [round(part[10], 1) for part in parts]

arrays = [cupy.random.randint(0, 1 << 30, WORDS * 4, dtype=cupy.int32).view(cupy.uint32) for _ in range(3)]
found, stop = {}, threading.Event()
def restart_the_other():
    while not stop.is_set():
        subprocess.run([sys.executable, "-c", START], env={**os.environ, "CUDA_VISIBLE_DEVICES": "1"})
for when in ("alone", "while another GPU starts"):
    thread = threading.Thread(target=restart_the_other, daemon=True)
    if when != "alone": thread.start()
    for name, (load, store) in WAYS.items():
        kernel = cupy.RawKernel(TEXT, "sum", ("-DUNROLL=%d" % UNROLL, '-DLOAD="%s"' % load, '-DSTORE="%s"' % store))
        loop_us(kernel, arrays, 0.3)
        found.setdefault(name, {})[when] = loop_us(kernel, arrays, 1.5 if when == "alone" else 4)
stop.set()
thread.join()
print(json.dumps(found))
"""


def print_neighbour(found):
    for name, by_when in found.items():
        for when, times in by_when.items():
            print(f"{name}, {when}: {min(times)} to {max(times)} us")


def main():
    parts = {"pages": PAGES, "control": CONTROL, "queue": QUEUE, "neighbour": NEIGHBOUR}
    parser = harness.arguments(__doc__, "bench_noise.json")
    parser.add_argument("--parts", nargs="+", choices=parts, help="only these")
    args = parser.parse_args()
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    problems = []
    for name in args.parts or parts:
        program = parts[name]
        if name in state or budget.spent(30):
            continue
        outcome = harness.execute([args.python, "-c", program], args.timeout)
        if outcome.returncode == 0:
            state.put(name, json.loads(outcome.stdout.strip().splitlines()[-1]))
        else:
            problems.append(f"{name}: {outcome.failure()}")
    missing = [name for name in args.parts or parts if name not in state]
    if (pages := state.get("pages")) is not None:
        by_matrix = list(zip(*pages["rounds_us"]))
        means = [sum(times) / len(times) for times in by_matrix]
        print(f"matrices: {min(means):.2f} to {max(means):.2f} us; the same one within "
              f"{max(max(times) / min(times) - 1 for times in by_matrix):.2%}")
    for part in (state.get("control") or {"played": []})["played"]:
        print(part["product"], *part["us"][:12], "...")
    for way, found in (state.get("queue") or {}).items():
        print(f"queued, {way}: by place", *found["by_place_us"])
    if (neighbour := state.get("neighbour")) is not None:
        print_neighbour(neighbour) if "skipped" not in neighbour else print("neighbour:", neighbour["skipped"])
    state.save(summary=state.results(), problems=problems, missing=missing, passed=not problems and not missing)
    harness.write_summary(args, state)
    print(json.dumps({"passed": not problems and not missing, "problems": problems, "missing": missing}))
    return 0 if not problems and not missing else 1


if __name__ == "__main__":
    sys.exit(main())
