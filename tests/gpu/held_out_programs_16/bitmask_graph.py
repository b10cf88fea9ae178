"""Answers in the form of a grammar: while a CUDA graph runs the model, the host writes a bit for each word that may follow.

A step ends when the stream has been waited for and the tokens are in pinned memory: a prefill step takes in four prompts of one
length, eagerly, a decode step replays a graph of the model, and both end with a second graph, which puts the bits to the logits
and draws. A request is one text. With --ranges a batch has "order form" and its number around it, inside are "encode" around the
prefill step and "forward" around each eight decode steps (the last have fewer), and in all of these "mask" for the host's bits.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch

from contract import Record, arguments, now, ranges
from parts import MADE, SIZE, Plain, attended, begun, captured, drawn, in_batches, shares_of

VOCABULARY, LENGTH, BATCH, GROUP, DEEPEST = 32000, 448, 4, 8, 5
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 24, 16, 4
LENGTHS = (150, 310, 80, 230, 390)  # of prompts, by turns
KINDS = dict(open=(0, 6000), close=(6000, 9000), colon=(9000, 10000), comma=(10000, 14000), number=(14000, 20000),
             name=(20000, VOCABULARY))  # which tokens are of which kind
BITS = {kind: (1 << end) - (1 << start) for kind, (start, end) in KINDS.items()}
FOLLOWS = {"key": ("name", "close"), "colon": ("colon",), "value": ("number", "name", "open"), "after": ("comma", "close")}


class Form:
    """What may follow in an object of names and values, which may be objects. No name comes twice in an object."""

    def __init__(self):
        self.state, self.names, self.bits = "key", [set()], []

    def allowed(self):
        """A whole number with a bit for each word."""
        bits = 0
        for kind in FOLLOWS[self.state]:
            if kind == "open" and len(self.names) == DEEPEST or kind == "close" and len(self.names) == 1:
                continue
            bits |= BITS[kind]
        if self.state == "key":
            for name in self.names[-1]:
                bits &= ~(1 << name)
        self.bits.append(bits)
        return bits

    def takes(self, token):
        kind = next(kind for kind, (start, end) in KINDS.items() if start <= token < end)
        if self.state == "key" and kind == "name":
            self.names[-1].add(token)
        if kind == "open":
            self.names.append(set())
        elif kind == "close":
            self.names.pop()
        self.state = {"open": "key", "comma": "key", "close": "after", "number": "after", "colon": "value",
                      "name": "colon" if self.state == "key" else "after"}[kind]


class Engine(Plain):
    def __init__(self, mark):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH)
        self.mark, self.forms = mark, []
        self.cache = torch.zeros(2, LAYERS, BATCH, KV_HEADS, LENGTH, SIZE, **MADE)
        self.ids = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.place = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.last = torch.zeros(BATCH, VOCABULARY, device="cuda")
        self.mask = torch.full((BATCH, VOCABULARY // 8), 255, dtype=torch.uint8, device="cuda")
        self.shifts = torch.arange(8, dtype=torch.uint8, device="cuda")
        self.written = torch.zeros(BATCH, VOCABULARY // 8, dtype=torch.uint8, pin_memory=True)
        self.fetched = torch.zeros(BATCH, 1, dtype=torch.int64, pin_memory=True)
        self.model, self.sampler = captured(self.forward), captured(self.choose)

    def forward(self):
        hidden = self.columns > self.place[:, None]

        def attend(i, q, k, v):
            keys, values = self.cache[0, i], self.cache[1, i]
            keys.index_copy_(2, self.place, k)
            values.index_copy_(2, self.place, v)
            return attended(shares_of(q, keys, hidden), values)

        cos, sin = self.cos.index_select(0, self.place), self.sin.index_select(0, self.place)
        self.last.copy_(self.logits(self.through(self.ids, cos, sin, attend)))
        self.place.add_(1)

    def choose(self):
        bits = (self.mask[:, :, None] >> self.shifts) & 1
        self.ids.copy_(drawn(self.last.masked_fill(bits.reshape(BATCH, VOCABULARY) == 0, -1e30), 0.8))

    def read(self, ids):
        count = ids.shape[1]
        hidden = self.columns[:count] > self.columns[:count, None]

        def attend(i, q, k, v):
            self.cache[0, i, :, :, :count] = k
            self.cache[1, i, :, :, :count] = v
            return attended(shares_of(q, k, hidden), v)

        self.last.copy_(self.logits(self.through(ids, self.cos[:count], self.sin[:count], attend)))
        self.place.fill_(count)

    def words(self):
        """The model's pass has been launched. While it runs, the host finds out what may follow, and sends it."""
        with self.mark("mask"):
            for row, form in enumerate(self.forms):
                packed = bytearray(form.allowed().to_bytes(VOCABULARY // 8, "little"))
                self.written[row].copy_(torch.frombuffer(packed, dtype=torch.uint8))
        self.mask.copy_(self.written, non_blocking=True)
        self.sampler.replay()
        self.fetched.copy_(self.ids, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        tokens = self.fetched[:, 0].tolist()
        for form, token in zip(self.forms, tokens):
            form.takes(token)
        return tokens

    def prefill(self, prompts):
        self.forms = [Form() for _ in prompts]
        self.read(torch.tensor(prompts).to("cuda"))
        return self.words()

    def decode(self):
        self.model.replay()
        return self.words()


def timed(record, call, kind, each, warm_up):
    begin = now()
    tokens = call()
    end = now()
    record.step(kind, begin, end, each * BATCH, BATCH, warm_up)
    return begin, tokens, end


def serve(engine, record, prompts, steps, warm_up=False):
    count, mark = len(prompts[0]), engine.mark
    with mark("order form %d" % len(record.requests)):
        with mark("encode"):
            start, tokens, first = timed(record, partial(engine.prefill, prompts), "prefill", count, warm_up)
        texts, end = [[token] for token in tokens], first
        for done in range(0, steps, GROUP):
            with mark("forward"):
                for _ in range(min(GROUP, steps - done)):
                    _, tokens, end = timed(record, engine.decode, "decode", 1, warm_up)
                    for text, token in zip(texts, tokens):
                        text.append(token)
    for text, form in zip(texts, engine.forms):
        record.request(start, first, end, count, len(text), warm_up)
        assert len(text) == steps + 1 and all(bits >> token & 1 for bits, token in zip(form.bits, text))
    assert engine.place.item() == count + steps <= LENGTH and bool(torch.isfinite(engine.last).all())


def main():
    options = arguments(__doc__)
    record, chance, engine = Record(), begun(options.seed), Engine(ranges(options.ranges))
    in_batches(partial(serve, engine, record), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(110, 4))
    record.finish()


main()
