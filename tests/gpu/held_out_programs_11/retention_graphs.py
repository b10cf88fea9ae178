"""A retention network in two graphs: one takes in 32 tokens of a prompt at once, the other a single token.

A step is from the upload or the replay until `.cpu()` has four tokens: a prefill step takes in four prompts of one length, by
replays of the first graph as long as more than 32 tokens are left and of the second graph for each of the rest, without a wait
between them; a decode step replays the second graph once. What is kept of a text is a matrix for each head, so no replay
depends on the length. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments
from parts import MADE, SIZE, begun, captured, drawn, in_batches, served, tables, turned, weight

VOCABULARY, LENGTH, BATCH, CHUNK = 32000, 512, 4, 32
WIDTH, INNER, LAYERS, HEADS = 1792, 4608, 24, 14
LENGTHS = (100, 61, 240, 150, 33, 330)  # of prompts, by turns


class Decay:
    """What of earlier tokens is left, for `count` tokens at once; each head forgets at a pace of its own."""

    def __init__(self, count):
        paces = (1 - 2.0 ** (-3 - torch.arange(HEADS, device="cuda") * 0.35)).log()[:, None, None]
        steps = torch.arange(count, device="cuda")
        ago = steps[:, None] - steps
        self.within = (paces * ago).exp().masked_fill(ago < 0, 0.0)  # heads x count x count
        self.since = (paces * (steps[:, None] + 1)).exp()  # heads x count x 1
        self.until = (paces * (count - 1 - steps[:, None])).exp()
        self.whole = (paces * count).exp()


class Engine:
    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.layers = [dict(q=weight(WIDTH, WIDTH), k=weight(WIDTH, WIDTH), v=weight(WIDTH, WIDTH), gate=weight(WIDTH, WIDTH),
                            out=weight(WIDTH, WIDTH), up=weight(INNER, WIDTH), down=weight(WIDTH, INNER)) for _ in range(LAYERS)]
        self.states = torch.zeros(LAYERS, BATCH, HEADS, SIZE, SIZE, device="cuda")
        self.cos, self.sin = tables(LENGTH, SIZE)
        self.decays = {count: Decay(count) for count in (CHUNK, 1)}
        self.steps = torch.arange(CHUNK, device="cuda")
        self.chunk = torch.zeros(BATCH, CHUNK, dtype=torch.int64, device="cuda")
        self.ids = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.place = torch.zeros(1, dtype=torch.int64, device="cuda")

    def through(self, ids):
        """The last layer's states, which are added to what is kept; the place is counted up."""
        count = ids.shape[1]
        decay, places = self.decays[count], self.place + self.steps[:count]
        cos, sin = self.cos.index_select(0, places), self.sin.index_select(0, places)
        x = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            state = self.states[i]
            h = F.layer_norm(x, (WIDTH,), self.one)
            q, k, v = (F.linear(h, layer[name]).view(BATCH, count, HEADS, SIZE).transpose(1, 2) for name in "qkv")
            q, k, v = turned(q, cos, sin).float(), turned(k, cos, sin).float() * SIZE ** -0.5, v.float()
            heads = (q @ k.transpose(2, 3) * decay.within) @ v + (q * decay.since) @ state
            state.copy_(state * decay.whole + (k * decay.until).transpose(2, 3) @ v)
            heads = F.layer_norm(heads, (SIZE,)).to(torch.bfloat16).transpose(1, 2).reshape(BATCH, count, WIDTH)
            x = x + F.linear(heads * F.silu(F.linear(h, layer["gate"])), layer["out"])
            x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (WIDTH,), self.one), layer["up"])), layer["down"])
        self.place.add_(count)
        return x

    def word(self):
        x = self.through(self.ids)[:, -1]
        self.last = F.linear(F.layer_norm(x, (WIDTH,), self.one), self.head).float()
        self.ids.copy_(drawn(self.last, 0.8))

    def capture(self):
        self.many = captured(lambda: self.through(self.chunk))
        self.single = captured(self.word)

    def prefill(self, prompts):
        count = len(prompts[0])
        ids = torch.tensor(prompts).to("cuda")
        self.states.zero_()
        self.place.zero_()
        done = 0
        while count - done > CHUNK:
            self.chunk.copy_(ids[:, done:done + CHUNK])
            self.many.replay()
            done += CHUNK
        for i in range(done, count):
            self.ids.copy_(ids[:, i:i + 1])
            self.single.replay()
        return self.ids[:, 0].cpu().tolist()

    def decode(self):
        self.single.replay()
        return self.ids[:, 0].cpu().tolist()


def serve(engine, record, prompts, steps, warm_up=False):
    count = served(record, engine, prompts, VOCABULARY, steps, warm_up)
    assert bool(torch.isfinite(engine.last).all()) and bool(torch.isfinite(engine.states).all())
    assert engine.place.item() == count + steps <= LENGTH


def main():
    options = arguments(__doc__)
    record = Record()
    chance, engine = begun(options.seed), Engine()
    engine.capture()
    in_batches(partial(serve, engine, record), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(80, 4))
    record.finish()


main()
