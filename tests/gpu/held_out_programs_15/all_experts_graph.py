"""A CUDA graph of a mixture in which each of eight experts computes all rows, and shares that are mostly 0 weigh what they give.

A step ends when the tokens are in pinned memory, and an event on which the host sleeps says so: a prefill step takes in four
prompts of one length, eagerly, a decode step replays the graph, in which the draw is. A request is one text. With --ranges a
batch has "generate" around it, inside are "prompt" and, for each decode step, "token", and in both "wait".
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, ranges
from parts import MADE, SIZE, Plain, attended, begun, captured, drawn, in_batches, shares_of, swiglu, together, weight

VOCABULARY, LENGTH, BATCH, EXPERTS, CHOSEN = 32000, 448, 4, 8, 2
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 1536, 1024, 20, 12, 4
LENGTHS = (160, 320, 90, 240, 380)  # of prompts, by turns


class Engine(Plain):
    def __init__(self, mark):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH)
        for layer in self.layers:
            layer["router"] = weight(EXPERTS, WIDTH)
            layer["into"] = torch.empty(EXPERTS, WIDTH, 2 * INNER, **MADE).normal_(0, WIDTH ** -0.5)
            layer["back"] = torch.empty(EXPERTS, INNER, WIDTH, **MADE).normal_(0, INNER ** -0.5)
        self.mark = mark
        self.cache = torch.zeros(2, LAYERS, BATCH, KV_HEADS, LENGTH, SIZE, **MADE)
        self.ids = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.place = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.last = torch.zeros(BATCH, VOCABULARY, device="cuda")
        self.fetched = torch.zeros(BATCH, 1, dtype=torch.int64, pin_memory=True)
        self.landed = torch.cuda.Event(blocking=True)
        self.graph = captured(self.forward)

    def feed(self, layer, h):
        """What the expert that all rows share adds, and what the two chosen of eight add."""
        rows = h.reshape(-1, WIDTH)
        scores = F.linear(rows, layer["router"]).float()
        top = scores.topk(CHOSEN, -1)
        shares = torch.zeros_like(scores).scatter_(-1, top.indices, top.values.softmax(-1)).to(torch.bfloat16)
        gate, up = torch.matmul(rows.expand(EXPERTS, -1, -1), layer["into"]).chunk(2, -1)
        each = torch.bmm(F.silu(gate) * up, layer["back"])  # experts x rows x width
        return swiglu(layer, h) + (each * shares.t()[:, :, None]).sum(0).view(h.shape)

    def choose(self, x):
        self.last.copy_(self.logits(x))
        self.ids.copy_(drawn(self.last, 0.8))

    def forward(self):
        hidden = self.columns > self.place[:, None]

        def attend(i, q, k, v):
            keys, values = self.cache[0, i], self.cache[1, i]
            keys.index_copy_(2, self.place, k)
            values.index_copy_(2, self.place, v)
            return attended(shares_of(q, keys, hidden), values)

        cos, sin = self.cos.index_select(0, self.place), self.sin.index_select(0, self.place)
        self.choose(self.through(self.ids, cos, sin, attend))
        self.place.add_(1)

    def read(self, ids):
        count = ids.shape[1]
        hidden = self.columns[:count] > self.columns[:count, None]

        def attend(i, q, k, v):
            self.cache[0, i, :, :, :count] = k
            self.cache[1, i, :, :, :count] = v
            return attended(shares_of(q, k, hidden), v)

        self.choose(self.through(ids, self.cos[:count], self.sin[:count], attend))
        self.place.fill_(count)

    def fetch(self):
        self.fetched.copy_(self.ids, non_blocking=True)
        self.landed.record()
        with self.mark("wait"):
            self.landed.synchronize()
        return self.fetched[:, 0].tolist()

    def prefill(self, prompts):
        self.read(torch.tensor(prompts).to("cuda"))
        return self.fetch()

    def decode(self):
        self.graph.replay()
        return self.fetch()


def serve(engine, record, prompts, steps, warm_up=False):
    words = ("generate", "prompt", "token")
    count = together(record, engine.mark, words, VOCABULARY, engine, prompts, steps, warm_up)
    assert engine.place.item() == count + steps <= LENGTH and bool(torch.isfinite(engine.last).all())


def main():
    options = arguments(__doc__)
    record, chance, engine = Record(), begun(options.seed), Engine(ranges(options.ranges))
    in_batches(partial(serve, engine, record), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(110, 4))
    record.finish()


main()
