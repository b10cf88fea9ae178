#!/usr/bin/env python3
"""`llmprof bench` beside PyTorch in one run: the same work, the same shapes, the same GPU, taking turns.

    python3 tests/gpu/bench_torch_test.py [--only gemm,memory,attention,conv2d,lstm,rows] [--state bench_torch.json]

Each case is timed by torch, by llmprof and by torch again, and compared with the mean of torch's two times. Where llmprof
found the GPU at its power limit, torch is timed again for as long as llmprof was, over whole turns of the power's control
(a part of one is off by one to three percent) and, as llmprof's, once the control has acted three times, in every way that
was near its best, and the fastest of these counts. Both are timed the same way: a CUDA graph of several executions over as
many sets of inputs, 4 GiB together, events around each replay, uniform random inputs, the median (the mean at the power
limit). Torch has every way of doing it that it offers: both layouts of the weights (of few rows, of the outputs too), every
backend of scaled dot-product attention (with grouped heads, and with keys and values repeated), cuDNN's benchmark mode; the
fastest counts.

Goals: products of matrices 0.98 of torch, of up to 16 rows 0.99, copy and read 0.99, attention, conv2d and LSTM 0.95. Row
kernels (RMSNorm, softmax, LayerNorm with GELU, RoPE, SwiGLU) are held against the measured memory bandwidth of `llmprof
peaks`: 0.9.
"""
import json
import subprocess
import sys

import harness

LAYERS = [("qkv", 6144, 4096), ("o", 4096, 4096), ("gate_up", 28672, 4096), ("down", 4096, 14336),
          ("lm_head", 128256, 4096)]  # Llama-3.1-8B: outputs, inputs
PREFILL = [("prefill-1x4096", 1, 32, 8, 128, 4096), ("prefill-4x2048", 4, 32, 8, 128, 2048),
           ("prefill-1x16384", 1, 32, 8, 128, 16384)]  # batch, heads, heads of keys, head size, tokens
DECODE = [("decode-1x8192", 1, 32, 8, 128, 8192), ("decode-32x4096", 32, 32, 8, 128, 4096),
          ("decode-16x8192", 16, 64, 8, 128, 8192)]
NEAR = 0.1  # of torch's fastest way in a short look: a way that gets its turns at a power limit
ROWS = [("rmsnorm", ["--tokens", "16384", "--hidden", "8192"]),
        ("layernorm_gelu", ["--tokens", "16384", "--hidden", "8192"]),
        ("softmax", ["--rows", "16384", "--columns", "8192"]),
        ("swiglu", ["--tokens", "16384", "--ffn", "8192"]),
        ("rope", ["--tokens", "32768", "--heads", "32", "--kv-heads", "8", "--head-dim", "128"])]


def cases():
    """Name, group, goal, options of llmprof bench, what torch does."""
    yield ("gemm-8192", "gemm", 0.98, ["gemm", "--m", "8192", "--n", "8192", "--k", "8192", "--dtype", "bf16"],
           {"kind": "gemm", "m": 8192, "n": 8192, "k": 8192})
    for layer, n, k in LAYERS:
        for m in (1, 2, 4, 8, 16, 512, 4096):
            if m in (2, 4, 8) and layer not in ("o", "down"):
                continue
            # Few rows cost the reading of the weights, and nothing is in the way of that.
            yield (f"gemm-{layer}-{m}", "gemm", 0.99 if m <= 16 else 0.98,
                   ["gemm", "--m", str(m), "--n", str(n), "--k", str(k), "--dtype", "bf16"],
                   {"kind": "gemm", "m": m, "n": n, "k": k})
    for variant in ("copy", "read"):
        yield (f"memory-{variant}", "memory", 0.99, ["memory", "--variant", variant, "--bytes", str(1 << 30)],
               {"kind": variant, "bytes": 1 << 30})
    for name, batch, heads, kv, size, tokens in PREFILL:
        yield (name, "attention", 0.95,
               ["attention", "--variant", "causal", "--batch", str(batch), "--heads", str(heads), "--kv-heads", str(kv),
                "--head-dim", str(size), "--prompt", str(tokens), "--context", str(tokens), "--dtype", "bf16"],
               {"kind": "sdpa", "batch": batch, "heads": heads, "kv": kv, "size": size, "queries": tokens,
                "keys": tokens, "causal": True})
    for name, batch, heads, kv, size, tokens in DECODE:
        yield (name, "attention", 0.95,
               ["attention_decode", "--batch", str(batch), "--heads", str(heads), "--kv-heads", str(kv), "--head-dim",
                str(size), "--context", str(tokens), "--dtype", "bf16"],
               {"kind": "sdpa", "batch": batch, "heads": heads, "kv": kv, "size": size, "queries": 1, "keys": tokens,
                "causal": False})
    yield ("conv2d-resnet-3x3", "conv2d", 0.95,
           ["conv2d", "--batch", "32", "--height", "56", "--width", "56", "--in", "256", "--out", "256", "--kernel", "3",
            "--stride", "1", "--variant", "same", "--dtype", "bf16"],
           {"kind": "conv2d", "batch": 32, "height": 56, "width": 56, "in": 256, "out": 256, "kernel": 3, "stride": 1,
            "padding": 1})
    yield ("conv2d-vit-patch", "conv2d", 0.95,
           ["conv2d", "--batch", "32", "--height", "336", "--width", "336", "--in", "8", "--out", "1024", "--kernel",
            "14", "--stride", "14", "--variant", "valid", "--dtype", "bf16"],
           {"kind": "conv2d", "batch": 32, "height": 336, "width": 336, "in": 8, "out": 1024, "kernel": 14,
            "stride": 14, "padding": 0})
    yield ("lstm-1024", "lstm", 0.95,
           ["lstm", "--batch", "64", "--tokens", "128", "--input", "1024", "--hidden", "1024", "--layers", "1",
            "--dtype", "fp16"],
           {"kind": "lstm", "batch": 64, "tokens": 128, "input": 1024, "hidden": 1024, "layers": 1})
    for name, options in ROWS:
        yield (f"rows-{name}", "rows", 0.9, [name, *options, "--dtype", "bf16"], None)


# A process that times what it is told, one JSON line for each; CUDA starts once.
TORCH = r"""
import json, statistics, sys, time, warnings
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
warnings.filterwarnings("ignore")
torch.backends.cudnn.benchmark = True
L2 = torch.cuda.get_device_properties(0).L2_cache_size

def uniform(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="cuda").uniform_(-1, 1)

def sets_for(size):  # as many as llmprof rotates over
    return max(2, min(64, -(-max(2 * L2, 4 << 30) // size)))

def time_us(call, sets, seconds, turns):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(sets): call(i)
        stream.synchronize()
        begin = time.perf_counter()
        for i in range(sets): call(i)
        stream.synchronize()
        once = (time.perf_counter() - begin) / sets
        launches = max(1, min(2000, int(5e-3 / once)))
        if once * sets < 20e-3: launches = -(-launches // sets) * sets
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(launches): call(i % sets)
        graph.replay(); stream.synchronize()
        # At the power limit: until its control has acted three times, which slows what runs then, and two whole turns.
        settle_s, seconds = (3, 3 + 1.84) if turns else (seconds / 2, seconds)
        times, begin = [], time.perf_counter()
        settle, end = begin + settle_s, begin + seconds
        while time.perf_counter() < end or len(times) < 5:
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record(stream); graph.replay(); b.record(stream); b.synchronize()
            if time.perf_counter() > settle: times.append(a.elapsed_time(b) * 1000 / launches)
    del graph
    return statistics.mean(times) if turns else statistics.median(times)

def ways(case):
    kind = case["kind"]
    if kind == "gemm":
        m, n, k = case["m"], case["n"], case["k"]
        count = sets_for(2 * (m * k + n * k + m * n))
        x = [uniform(m, k) for _ in range(count)]
        w = [uniform(n, k) for _ in range(count)]
        out = [torch.empty(m, n, dtype=torch.bfloat16, device="cuda") for _ in range(count)]
        yield "mm(x, w.t())", lambda i: torch.mm(x[i], w[i].t(), out=out[i]), count
        if m <= 16:  # what else a decode step may be written as
            yield "linear(x, w)", lambda i: F.linear(x[i], w[i]), count
            across = [torch.empty(n, m, dtype=torch.bfloat16, device="cuda") for _ in range(count)]
            yield "mm(w, x.t())", lambda i: torch.mm(w[i], x[i].t(), out=across[i]), count
        if m == 1:
            yield "mv(w, x)", lambda i: torch.mv(w[i], x[i][0], out=out[i][0]), count
        for i in range(count): w[i] = w[i].t().contiguous()
        yield "mm(x, w)", lambda i: torch.mm(x[i], w[i], out=out[i]), count
    elif kind in ("copy", "read"):
        n = case["bytes"] // 4
        count = sets_for(case["bytes"] * (2 if kind == "copy" else 1))
        x = [uniform(n, dtype=torch.float32) for _ in range(count)]
        if kind == "copy":
            y = [torch.empty_like(x[0]) for _ in range(count)]
            yield "copy_", lambda i: y[i].copy_(x[i]), count
            yield "add", lambda i: torch.add(x[i], 1.0, out=y[i]), count
        else:
            s = torch.empty((), device="cuda")
            yield "sum", lambda i: torch.sum(x[i], dim=0, out=s), count
            yield "amax", lambda i: torch.amax(x[i], dim=0, out=s), count
    elif kind == "sdpa":
        b, h, kv, d = case["batch"], case["heads"], case["kv"], case["size"]
        size = 2 * b * d * (2 * kv * case["keys"] + 2 * h * case["queries"])
        count = sets_for(size)
        q = [uniform(b, h, case["queries"], d) for _ in range(count)]
        k = [uniform(b, kv, case["keys"], d) for _ in range(count)]
        v = [uniform(b, kv, case["keys"], d) for _ in range(count)]
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
            def call(i, backend=backend):
                with sdpa_kernel(backend):
                    F.scaled_dot_product_attention(q[i], k[i], v[i], is_causal=case["causal"], enable_gqa=True)
            yield f"{backend.name} grouped", call, count
        if size * h / kv < 40e9:
            k = [x.repeat_interleave(h // kv, 1) for x in k]
            v = [x.repeat_interleave(h // kv, 1) for x in v]
            for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
                def call(i, backend=backend):
                    with sdpa_kernel(backend):
                        F.scaled_dot_product_attention(q[i], k[i], v[i], is_causal=case["causal"])
                yield f"{backend.name} repeated", call, count
    elif kind == "conv2d":
        x_size = case["batch"] * case["height"] * case["width"] * case["in"]
        count = sets_for(2 * x_size)
        x = [uniform(case["batch"], case["in"], case["height"], case["width"]).to(memory_format=torch.channels_last)
             for _ in range(count)]
        w = [uniform(case["out"], case["in"], case["kernel"], case["kernel"]).to(memory_format=torch.channels_last)
             for _ in range(count)]
        yield "conv2d", lambda i: F.conv2d(x[i], w[i], stride=case["stride"], padding=case["padding"]), count
    elif kind == "lstm":
        count = 4
        layer = torch.nn.LSTM(case["input"], case["hidden"], case["layers"]).cuda().half().eval()
        x = [uniform(case["tokens"], case["batch"], case["input"], dtype=torch.float16) for _ in range(count)]
        yield "lstm", lambda i: layer(x[i]), count

print(json.dumps({"torch": torch.__version__, "gpu": torch.cuda.get_device_name()}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    answer = {}
    with torch.no_grad():
        for name, call, count in ways(request["case"]):
            if request["only"] and name != request["only"]:
                continue
            try:
                answer[name] = time_us(call, count, request["seconds"], request["turns"])
            except Exception as error:
                answer[name] = None
                answer["error " + name] = str(error)[:200]
                torch.cuda.synchronize()
    torch.cuda.empty_cache()
    print(json.dumps(answer), flush=True)
"""


class Torch:
    def __init__(self, python):
        self.child = subprocess.Popen([python, "-c", TORCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.machine = json.loads(self.child.stdout.readline())

    def time(self, case, seconds, only=None, turns=False):
        self.child.stdin.write(json.dumps({"case": case, "seconds": seconds, "only": only, "turns": turns}) + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline()
        if not answer:
            raise RuntimeError("torch's process ended")
        return json.loads(answer)

    def close(self):
        self.child.stdin.close()
        self.child.wait(30)


def ours(args, options):
    """The sustained row of a case, or why there is none."""
    outcome = harness.execute([args.llmprof, "bench", *options, "--device", "cuda:0", "--regime", "sustained",
                               "--min-time", str(args.seconds), "--busy-ok", "--json"], args.timeout)
    try:
        rows = json.loads(outcome.stdout)["cases"]
    except (ValueError, KeyError):
        return None, outcome.failure() or outcome.stdout[:200]
    row = next((row for row in rows if row["regime"] == "sustained"), None)
    if row is None or row.get("median_us") is None:
        return None, json.dumps(rows)[:300]
    row.pop("samples_us", None)
    return row, None


def compare(args, torch, options, case):
    first = torch.time(case, args.seconds)
    best = min((name for name, us in first.items() if isinstance(us, float)), key=lambda name: first[name], default=None)
    if best is None:
        return {"error": "torch: " + json.dumps(first)[:300]}
    before = torch.time(case, args.seconds, best)[best]
    row, error = ours(args, options)
    if row is None:
        return {"error": error, "torch_us": before, "torch_way": best, "torch_ways": first}
    result = {}
    if row["spread_frac"] is not None:  # ours has taken whole turns
        near = [name for name, us in first.items() if isinstance(us, float) and us <= (1 + NEAR) * first[best]]
        over_turns = {name: torch.time(case, args.seconds, name, True)[name] for name in near}
        best = min(near, key=lambda name: over_turns[name])
        torch_us = over_turns[best]
        result["torch_over_turns"] = over_turns
    else:
        after = torch.time(case, args.seconds, best)[best]
        torch_us = (before + after) / 2
        result["torch_drift"] = after / before - 1
    return {**result, "us": row["median_us"], "torch_us": torch_us, "torch_way": best, "torch_ways": first,
            "of_torch": torch_us / row["median_us"], "backend": row["backend"],
            "tflops": row["tflops"], "gbs": row["gbs"], "status": row["status"], "check": row["check_status"],
            "sm_clock_mhz": row["sm_clock_mhz"], "power_w": row["power_w"], "throttle": row["throttle"],
            "settled": row["settled"], "settle_s": row["settle_s"], "compared": row["compared"]}


def against_ceiling(args, options):
    row, error = ours(args, options)
    if row is not None and row["of_ceiling_frac"] is None:  # nothing measured on this device yet
        harness.execute([args.llmprof, "peaks", "--quick", "--device", "cuda:0", "--busy-ok"], args.timeout)
        row, error = ours(args, options)
    if row is None:
        return {"error": error}
    return {"us": row["median_us"], "gbs": row["gbs"], "of_ceiling": row["of_ceiling_frac"],
            "ceiling": row["ceiling_kind"], "bound": row["bound"], "backend": row["backend"], "status": row["status"],
            "check": row["check_status"], "of_datasheet": row["of_datasheet_frac"]}


def line_of(name, goal, result):
    if "error" in result:
        return f"FAIL {name:22} {result['error'][:160]}"
    value = result.get("of_torch", result.get("of_ceiling"))
    good = value is not None and value >= goal and result["check"] == "passed"
    text = f"{'ok  ' if good else 'FAIL'} {name:22} {'-' if value is None else format(value, '.3f')} of {goal}"
    if "torch_us" in result:
        text += f"  {result['us']:.2f} us [{result['backend']}]  torch {result['torch_us']:.2f} [{result['torch_way']}]"
    else:
        text += f"  {result['us']:.2f} us  {result['gbs']:.0f} GB/s [{result['backend']}]"
    return text + ("" if result["check"] == "passed" else f"  check {result['check']}")


def main():
    parser = harness.arguments(__doc__, "bench_torch.json")
    parser.add_argument("--only", default="", help="groups: gemm,memory,attention,conv2d,lstm,rows")
    parser.add_argument("--cases", default="", help="names, by comma")
    parser.add_argument("--seconds", type=float, default=0.3, help="of measuring for each time")
    args = parser.parse_args()
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    wanted = [case for case in cases() if not args.only or case[1] in args.only.split(",")]
    wanted = [case for case in wanted if not args.cases or case[0] in args.cases.split(",")]
    if not wanted:
        parser.error("no such group or case")
    state.save(machine=harness.machine(args.python))
    torch = Torch(args.python) if any(case is not None for *_, case in wanted) else None
    for name, _, goal, options, case in wanted:
        done = state.get(name)
        if (done is None or "error" in done) and not budget.spent(15):
            try:
                state.put(name, against_ceiling(args, options) if case is None else compare(args, torch, options, case))
            except (RuntimeError, KeyError) as error:
                state.put(name, {"error": f"{type(error).__name__}: {error}"})
                torch = Torch(args.python)
            print(line_of(name, goal, state.get(name)), flush=True)
    if torch is not None:
        torch.close()
    results = state.results()
    missing = [name for name, *_ in wanted if name not in results]
    failed = [name for name, _, goal, _, _ in wanted
              if name in results and not line_of(name, goal, results[name]).startswith("ok")]
    state.save(summary={"cases": {name: results[name] for name, *_ in wanted if name in results}}, missing=missing,
               failures=failed, passed=not missing and not failed)
    harness.write_summary(args, state)
    print(json.dumps({"cases": len(wanted), "failed": failed, "missing": missing}))
    return 0 if not missing and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
