"""What the planted programs share: options, a plain decoder, stage ranges with their own timers, the RESULT line.

A planted program makes one mistake on purpose; with --healthy it does the same work without it. Everything outside the
measured requests (weights, warm-up, graph capture) runs without stage ranges, so that only the mistake is left to find.
Weights are random and nothing is downloaded. Only torch is imported: start-up counts when many programs run in a row.
"""
import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch.cuda import nvtx

WARM_UP_SECONDS = 0.3


def options(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--healthy", action="store_true", help="the same work without the planted cause")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long requests are repeated")
    return parser.parse_args()


class Stages:
    """NVTX ranges that also keep the host's time inside them, once `measuring`."""

    def __init__(self):
        self.measuring = False
        self.ms = {}

    @contextlib.contextmanager
    def __call__(self, name):
        if not self.measuring:
            yield
            return
        start = time.perf_counter()
        with nvtx.range(name):
            yield
        self.ms.setdefault(name, []).append(1e3 * (time.perf_counter() - start))


stage = Stages()


def repeat(request, seconds):
    """Calls `request` until it is warm, then for `seconds` with stage ranges, and prints what was measured."""
    with torch.inference_mode():
        begin, calls = time.perf_counter(), 0
        while calls < 2 or time.perf_counter() - begin < WARM_UP_SECONDS:
            request()
            torch.cuda.synchronize()
            calls += 1
        stage.measuring = True
        begin, calls = time.perf_counter(), 0
        while calls < 2 or time.perf_counter() - begin < seconds:
            request()
            torch.cuda.synchronize()
            calls += 1
        took = time.perf_counter() - begin
    stages = {name: {"count": len(ms), "median_ms": statistics.median(ms)} for name, ms in stage.ms.items()}
    print("RESULT " + json.dumps({"requests": calls, "request_ms": 1e3 * took / calls, "stages": stages}), flush=True)


def graph_of(function):
    """A CUDA graph that replays `function`. Its tensors must keep their places."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.inference_mode(), torch.cuda.stream(side):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        function()
    return graph


def random(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, device="cuda", dtype=dtype).normal_(0, 0.02)


class Ballast:
    """GPU work without weights and without a fault: long passes over a large tensor, about half a millisecond each."""

    def __init__(self, mebibytes=1024):
        self.data = torch.ones(mebibytes * 2**19, device="cuda", dtype=torch.bfloat16)

    def __call__(self, passes):
        for _ in range(passes):
            self.data.mul_(1.0)


class Decoder:
    """A decoder-only transformer as servers run it: fused norm, joined projections, static cache, fused attention.

    Positions are not encoded: that would add kernels and say nothing about the planted causes.
    """

    def __init__(self, hidden, ffn, layers, vocab=8192, heads=None, batch=1, room=0, dtype=torch.bfloat16):
        self.hidden, self.batch, self.dtype = hidden, batch, dtype
        self.heads = heads or max(1, hidden // 128)
        self.head = hidden // self.heads
        self.embedding = random(vocab, hidden, dtype=dtype)
        self.output = random(vocab, hidden, dtype=dtype)
        self.norm = torch.ones(hidden, device="cuda", dtype=dtype)
        self.layers = [dict(qkv=random(3 * hidden, hidden, dtype=dtype), out=random(hidden, hidden, dtype=dtype),
                            up=random(2 * ffn, hidden, dtype=dtype), down=random(hidden, ffn, dtype=dtype),
                            k=random(batch, self.heads, room, self.head, dtype=dtype),
                            v=random(batch, self.heads, room, self.head, dtype=dtype)) for _ in range(layers)]

    def attention(self, q, k, v, causal):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def heads_of(self, x, layer):
        tokens = x.shape[1]
        qkv = F.linear(x, layer["qkv"]).view(self.batch, tokens, 3, self.heads, self.head)
        return [qkv[:, :, i].transpose(1, 2) for i in range(3)]

    def block(self, x, layer, position):
        """One layer over x [batch, tokens, hidden]; `position` is None for a prompt, else the place of the token."""
        tokens = x.shape[1]
        q, k, v = self.heads_of(F.rms_norm(x, (self.hidden,), self.norm), layer)
        if position is None:
            mixed = self.attention(q, k, v, True)
        else:
            layer["k"][:, :, position:position + 1] = k
            layer["v"][:, :, position:position + 1] = v
            mixed = self.attention(q, layer["k"][:, :, :position + 1], layer["v"][:, :, :position + 1], False)
        x = x + F.linear(mixed.transpose(1, 2).reshape(self.batch, tokens, self.hidden), layer["out"])
        gate, up = F.linear(F.rms_norm(x, (self.hidden,), self.norm), layer["up"]).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, layer["down"])

    def __call__(self, ids, position=None, all_logits=False):
        """Next tokens [batch, 1] for ids [batch, tokens]."""
        x = F.embedding(ids, self.embedding)
        for layer in self.layers:
            x = self.block(x, layer, position)
        if not all_logits:
            x = x[:, -1:]
        return F.linear(F.rms_norm(x, (self.hidden,), self.norm), self.output)[:, -1:].argmax(-1)


def tokens(batch, count):
    return torch.randint(0, 8192, (batch, count), device="cuda")


def prefill_request(step, name="prefill"):
    """A request that is one `step`, waited for inside its range; then the GPU rests."""
    def request():
        with stage(name):
            step()
            torch.cuda.synchronize()
    return request


def decode_request(step, steps=16, wait_each_step=True):
    def request():
        for _ in range(steps):
            with stage("decode_step"):
                step()
                if wait_each_step:
                    torch.cuda.synchronize()
    return request
