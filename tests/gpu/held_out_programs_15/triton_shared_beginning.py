"""Sixteen texts behind one long beginning, whose keys and values Triton reads once for all of them, in decode steps.

A step is one pass through the model and the draw of its tokens, until `.tolist()` has them: a prefill step takes in sixteen
prompts of one length, by PyTorch alone, a decode step a token of each. The beginning is taken in once. A request is one text. It
marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
import triton
from triton import language as tl

from contract import Record, arguments, now, ranges
from parts import MADE, SIZE, Plain, attended, begun, drawn, in_batches, prompt, shares_of, together

VOCABULARY, SHARED, OWN, BATCH, PIECES = 32000, 1024, 256, 16, 8
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 20, 16, 4
GROUP = HEADS // KV_HEADS
LENGTHS = (60, 140, 32, 200, 90)  # of prompts, by turns


@triton.jit
def attend_to_beginning(q, keys, values, sums, totals, tops, SCALE: tl.constexpr, BATCH: tl.constexpr, HEADS: tl.constexpr,
                        GROUP: tl.constexpr, SIZE: tl.constexpr, SHARED: tl.constexpr, PIECES: tl.constexpr, BLOCK: tl.constexpr):
    """All texts' heads that share a key head, over a piece of the beginning: sums of values, of shares, and the largest score."""
    kv, piece, rows, lanes = tl.program_id(0), tl.program_id(1), tl.arange(0, BATCH * GROUP), tl.arange(0, SIZE)
    heads = (rows // GROUP) * HEADS + kv * GROUP + rows % GROUP
    asked = tl.load(q + heads[:, None] * SIZE + lanes[None, :])
    top, total = tl.full([BATCH * GROUP], -1e30, tl.float32), tl.zeros([BATCH * GROUP], tl.float32)
    taken = tl.zeros([BATCH * GROUP, SIZE], tl.float32)
    for start in range(0, SHARED // PIECES, BLOCK):
        places = kv * SHARED + piece * (SHARED // PIECES) + start + tl.arange(0, BLOCK)
        k = tl.load(keys + places[:, None] * SIZE + lanes[None, :])
        v = tl.load(values + places[:, None] * SIZE + lanes[None, :])
        scores = tl.dot(asked, tl.trans(k)) * SCALE
        larger = tl.maximum(top, tl.max(scores, 1))
        shares, fade = tl.exp(scores - larger[:, None]), tl.exp(top - larger)
        total = total * fade + tl.sum(shares, 1)
        taken = taken * fade[:, None] + tl.dot(shares.to(tl.bfloat16), v)
        top = larger
    at = piece * BATCH * HEADS + heads
    tl.store(sums + at[:, None] * SIZE + lanes[None, :], taken)
    tl.store(totals + at, total)
    tl.store(tops + at, top)


@triton.jit(do_not_specialize=["count"])
def attend_to_own(q, keys, values, sums, totals, tops, out, count, SCALE: tl.constexpr, BATCH: tl.constexpr, HEADS: tl.constexpr,
                  GROUP: tl.constexpr, SIZE: tl.constexpr, OWN: tl.constexpr, PIECES: tl.constexpr, BLOCK: tl.constexpr):
    """One text's heads that share a key head: what the pieces of the beginning gave, and its own places so far."""
    pair, lanes = tl.program_id(0), tl.arange(0, SIZE)
    heads = pair * GROUP + tl.arange(0, GROUP)
    asked = tl.load(q + heads[:, None] * SIZE + lanes[None, :]).to(tl.float32) * SCALE
    top, total = tl.full([GROUP], -1e30, tl.float32), tl.zeros([GROUP], tl.float32)
    taken = tl.zeros([GROUP, SIZE], tl.float32)
    for piece in range(0, PIECES):
        at = piece * BATCH * HEADS + heads
        other = tl.load(tops + at)
        larger = tl.maximum(top, other)
        fade, share = tl.exp(top - larger), tl.exp(other - larger)
        total = total * fade + tl.load(totals + at) * share
        taken = taken * fade[:, None] + tl.load(sums + at[:, None] * SIZE + lanes[None, :]) * share[:, None]
        top = larger
    for start in range(0, count, BLOCK):
        places = start + tl.arange(0, BLOCK)
        there, spots = places < count, (pair * OWN + places)[:, None] * SIZE + lanes[None, :]
        k = tl.load(keys + spots, mask=there[:, None], other=0.0).to(tl.float32)
        v = tl.load(values + spots, mask=there[:, None], other=0.0).to(tl.float32)
        scores = tl.where(there[None, :], tl.sum(asked[:, None, :] * k[None, :, :], 2), -1e30)
        larger = tl.maximum(top, tl.max(scores, 1))
        shares, fade = tl.exp(scores - larger[:, None]), tl.exp(top - larger)
        total = total * fade + tl.sum(shares, 1)
        taken = taken * fade[:, None] + tl.sum(shares[:, :, None] * v[None, :, :], 1)
        top = larger
    tl.store(out + heads[:, None] * SIZE + lanes[None, :], (taken / total[:, None]).to(tl.bfloat16))


class Engine(Plain):
    def __init__(self):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, SHARED + OWN)
        self.shared = torch.zeros(2, LAYERS, KV_HEADS, SHARED, SIZE, **MADE)
        self.own = torch.zeros(2, LAYERS, BATCH, KV_HEADS, OWN, SIZE, **MADE)
        self.sums = torch.zeros(PIECES * BATCH * HEADS, SIZE, device="cuda")
        self.totals, self.tops = (torch.zeros(PIECES * BATCH * HEADS, device="cuda") for _ in range(2))

    def words(self, ids, start, attend):
        end = start + ids.shape[-1]
        self.last = self.logits(self.through(ids, self.cos[start:end], self.sin[start:end], attend))
        self.ids = drawn(self.last, 0.8)
        return self.ids[:, 0].tolist()

    def begin(self, tokens):
        hidden = self.columns[:SHARED] > self.columns[:SHARED, None]

        def attend(i, q, k, v):
            self.shared[0, i] = k
            self.shared[1, i] = v
            return attended(shares_of(q, k, hidden), v)

        return self.words(torch.tensor(tokens).to("cuda"), 0, attend)

    def prefill(self, prompts):
        count = self.count = len(prompts[0])
        hidden = self.columns[:SHARED + count] > self.columns[SHARED:SHARED + count, None]

        def attend(i, q, k, v):
            self.own[0, i, :, :, :count] = k
            self.own[1, i, :, :, :count] = v
            keys = torch.cat((self.shared[0, i].expand(BATCH, -1, -1, -1), k), 2)
            values = torch.cat((self.shared[1, i].expand(BATCH, -1, -1, -1), v), 2)
            return attended(shares_of(q, keys, hidden), values)

        return self.words(torch.tensor(prompts).to("cuda"), SHARED, attend)

    def attend(self, i, q, k, v):
        """Of a token of each text, the `count`-th of its own."""
        self.own[0, i, :, :, self.count - 1] = k[:, :, 0]
        self.own[1, i, :, :, self.count - 1] = v[:, :, 0]
        q, out, parts = q.contiguous(), torch.empty(BATCH, 1, HEADS * SIZE, **MADE), (self.sums, self.totals, self.tops)
        sizes = dict(SCALE=SIZE ** -0.5, BATCH=BATCH, HEADS=HEADS, GROUP=GROUP, SIZE=SIZE, PIECES=PIECES)
        attend_to_beginning[(KV_HEADS, PIECES)](q, self.shared[0, i], self.shared[1, i], *parts, SHARED=SHARED, BLOCK=32, **sizes)
        attend_to_own[(BATCH * KV_HEADS,)](q, self.own[0, i], self.own[1, i], *parts, out, self.count, OWN=OWN, BLOCK=16, **sizes)
        return out

    def decode(self):
        self.count += 1
        return self.words(self.ids, SHARED + self.count - 1, self.attend)


def begin(engine, record, tokens):
    """The beginning's pass, whose token nobody wants, is a request of its own."""
    start = now()
    token, = engine.begin(tokens)
    end = now()
    record.step("prefill", start, end, len(tokens), 1, warm_up=True)
    record.request(start, end, end, len(tokens), 1, warm_up=True)
    assert 0 <= token < VOCABULARY


def serve(engine, record, mark, prompts, steps, warm_up=False):
    count = together(record, mark, ("", "", ""), VOCABULARY, engine, prompts, steps, warm_up)
    assert bool(torch.isfinite(engine.last).all()) and engine.count == count + steps <= OWN


def main():
    options = arguments(__doc__)
    mark, record = ranges(False), Record()
    chance, engine = begun(options.seed), Engine()
    torch.cuda.synchronize()
    begin(engine, record, prompt(chance, VOCABULARY, SHARED))
    in_batches(partial(serve, engine, record, mark), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(80, 4))
    record.finish()


main()
