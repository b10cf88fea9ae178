"""Two texts whose decode steps are Triton alone, with attention in eight pieces of the cache that a second kernel puts together.

A step is one pass through the model and the choice of two tokens, until `.tolist()` has them: a prefill step takes in two
prompts of one length by PyTorch, with the same weights and caches, a decode step launches no kernel but the program's own.
A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
from functools import partial

import torch
import triton
from torch.nn import functional as F
from triton import language as tl

from contract import Record, arguments
from parts import MADE, begun, in_batches, served, turned, weight

VOCABULARY, LENGTH, BATCH = 32768, 512, 2
WIDTH, INNER, LAYERS = 2048, 6144, 20
HEADS, KV_HEADS, SIZE = 16, 4, 128
GROUP, ALL_HEADS, PIECES = HEADS // KV_HEADS, HEADS + 2 * KV_HEADS, 8
LENGTHS = (64, 256, 128, 320, 96)  # of prompts, by turns


@triton.jit
def look_up(table, ids, out, SPAN: tl.constexpr):
    row, lanes = tl.program_id(0), tl.arange(0, SPAN)
    token = tl.load(ids + row)
    tl.store(out + row * SPAN + lanes, tl.load(table + token * SPAN + lanes))


@triton.jit
def norm(x, out, SPAN: tl.constexpr):
    row, lanes = tl.program_id(0), tl.arange(0, SPAN)
    values = tl.load(x + row * SPAN + lanes).to(tl.float32)
    values = values * tl.rsqrt(tl.sum(values * values, 0) / SPAN + 1e-6)
    tl.store(out + row * SPAN + lanes, values.to(tl.bfloat16))


@triton.jit
def product(x, weights, out, K: tl.constexpr, N: tl.constexpr, ADD: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """BN values of a row of x times the weights (N x K), which are added to what is there or not."""
    row = tl.program_id(1)
    ns, ks = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    sums = tl.zeros([BN, BK], tl.float32)
    for start in range(0, K, BK):
        part = tl.load(weights + ns[:, None] * K + (start + ks)[None, :]).to(tl.float32)
        sums += part * tl.load(x + row * K + start + ks).to(tl.float32)[None, :]
    total = tl.sum(sums, 1)
    if ADD:
        total += tl.load(out + row * N + ns).to(tl.float32)
    tl.store(out + row * N + ns, total.to(tl.bfloat16))


@triton.jit
def gated(both, out, INNER: tl.constexpr, BLOCK: tl.constexpr):
    row, lanes = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(both + row * 2 * INNER + lanes).to(tl.float32)
    up = tl.load(both + row * 2 * INNER + INNER + lanes).to(tl.float32)
    tl.store(out + row * INNER + lanes, (gate * tl.sigmoid(gate) * up).to(tl.bfloat16))


@triton.jit
def turn(qkv, cos, sin, places, keys, values, HEADS: tl.constexpr, KV: tl.constexpr, HALF: tl.constexpr, LENGTH: tl.constexpr):
    """One head of one text. Keys are turned on their way to the cache, queries where they lie."""
    text, head = tl.program_id(0), tl.program_id(1)
    place = tl.load(places + text)
    lanes = tl.arange(0, HALF)
    source = qkv + (text * (HEADS + 2 * KV) + head) * 2 * HALF
    a, b = tl.load(source + lanes).to(tl.float32), tl.load(source + HALF + lanes).to(tl.float32)
    c, s = tl.load(cos + place * HALF + lanes), tl.load(sin + place * HALF + lanes)
    first, second = (a * c - b * s).to(tl.bfloat16), (b * c + a * s).to(tl.bfloat16)
    if head < HEADS:
        tl.store(source + lanes, first)
        tl.store(source + HALF + lanes, second)
    else:
        if head < HEADS + KV:
            cell = ((text * KV + head - HEADS) * LENGTH + place) * 2 * HALF
            tl.store(keys + cell + lanes, first)
            tl.store(keys + cell + HALF + lanes, second)
        else:
            cell = ((text * KV + head - HEADS - KV) * LENGTH + place) * 2 * HALF
            tl.store(values + cell + lanes, a.to(tl.bfloat16))
            tl.store(values + cell + HALF + lanes, b.to(tl.bfloat16))


@triton.jit
def attend(qkv, places, keys, values, sums, tops, totals, SCALE: tl.constexpr, HEADS: tl.constexpr, KV: tl.constexpr,
           SIZE: tl.constexpr, LENGTH: tl.constexpr, PIECES: tl.constexpr):
    """One head of one text against one piece of the cache, of LENGTH / PIECES places, which may all be empty."""
    text, head, piece = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    last = tl.load(places + text)
    lanes = tl.arange(0, SIZE)
    rows = piece * (LENGTH // PIECES) + tl.arange(0, LENGTH // PIECES)
    there = rows <= last
    query = tl.load(qkv + (text * (HEADS + 2 * KV) + head) * SIZE + lanes).to(tl.float32) * SCALE
    spots = (text * KV + head // (HEADS // KV)) * LENGTH * SIZE + rows[:, None] * SIZE + lanes[None, :]
    key = tl.load(keys + spots, mask=there[:, None], other=0.0).to(tl.float32)
    scores = tl.where(there, tl.sum(key * query[None, :], 1), -1e30)
    top = tl.max(scores, 0)
    shares = tl.where(there, tl.exp(scores - top), 0.0)
    value = tl.load(values + spots, mask=there[:, None], other=0.0).to(tl.float32)
    spot = (text * HEADS + head) * PIECES + piece
    tl.store(sums + spot * SIZE + lanes, tl.sum(shares[:, None] * value, 0))
    tl.store(tops + spot, top)
    tl.store(totals + spot, tl.sum(shares, 0))


@triton.jit
def put_together(sums, tops, totals, out, SIZE: tl.constexpr, PIECES: tl.constexpr):
    spot = tl.program_id(0)
    pieces, lanes = spot * PIECES + tl.arange(0, PIECES), tl.arange(0, SIZE)
    top = tl.load(tops + pieces)
    factors = tl.exp(top - tl.max(top, 0))
    total = tl.sum(factors * tl.load(totals + pieces), 0)
    parts = tl.load(sums + pieces[:, None] * SIZE + lanes[None, :])
    tl.store(out + spot * SIZE + lanes, (tl.sum(parts * factors[:, None], 0) / total).to(tl.bfloat16))


@triton.jit
def best_of_block(logits, tops, spots, N: tl.constexpr, BLOCK: tl.constexpr):
    block, row = tl.program_id(0), tl.program_id(1)
    lanes = block * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(logits + row * N + lanes).to(tl.float32)
    tl.store(tops + row * (N // BLOCK) + block, tl.max(values, 0))
    tl.store(spots + row * (N // BLOCK) + block, block * BLOCK + tl.argmax(values, 0))


@triton.jit
def best_of_all(tops, spots, ids, places, BLOCKS: tl.constexpr):
    """Chooses the token and counts the place up."""
    row, lanes = tl.program_id(0), tl.arange(0, BLOCKS)
    best = tl.argmax(tl.load(tops + row * BLOCKS + lanes), 0)
    tl.store(ids + row, tl.load(spots + row * BLOCKS + best))
    tl.store(places + row, tl.load(places + row) + 1)


class Engine:
    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.layers = [dict(qkv=weight(ALL_HEADS * SIZE, WIDTH), out=weight(WIDTH, HEADS * SIZE),
                            up=weight(2 * INNER, WIDTH), down=weight(WIDTH, INNER),
                            keys=torch.zeros(BATCH, KV_HEADS, LENGTH, SIZE, **MADE),
                            values=torch.zeros(BATCH, KV_HEADS, LENGTH, SIZE, **MADE)) for _ in range(LAYERS)]
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(),
                            1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE))
        self.cos, self.sin = angle.cos(), angle.sin()
        self.one, self.columns = torch.ones(WIDTH, **MADE), torch.arange(LENGTH, device="cuda")
        self.ids = torch.zeros(BATCH, dtype=torch.int32, device="cuda")
        self.places = torch.zeros(BATCH, dtype=torch.int32, device="cuda")
        self.x, self.h = torch.zeros(BATCH, WIDTH, **MADE), torch.zeros(BATCH, WIDTH, **MADE)
        self.qkv, self.heads = torch.zeros(BATCH, ALL_HEADS * SIZE, **MADE), torch.zeros(BATCH, HEADS * SIZE, **MADE)
        self.both, self.inner = torch.zeros(BATCH, 2 * INNER, **MADE), torch.zeros(BATCH, INNER, **MADE)
        self.sums = torch.zeros(BATCH, HEADS, PIECES, SIZE, device="cuda")
        self.tops, self.totals = (torch.zeros(BATCH, HEADS, PIECES, device="cuda") for _ in range(2))
        self.logits = torch.zeros(BATCH, VOCABULARY, **MADE)
        self.block_tops = torch.zeros(BATCH, VOCABULARY // 1024, device="cuda")
        self.block_spots = torch.zeros(BATCH, VOCABULARY // 1024, dtype=torch.int32, device="cuda")

    def prefill(self, prompts):
        count = len(prompts[0])
        later = self.columns[:count] > self.columns[:count, None]
        cos, sin = self.cos[:count].to(torch.bfloat16), self.sin[:count].to(torch.bfloat16)
        x = F.embedding(torch.tensor(prompts).to("cuda"), self.embedding)
        for layer in self.layers:
            h = F.rms_norm(x, (WIDTH,), self.one, 1e-6)
            both = F.linear(h, layer["qkv"]).view(BATCH, count, ALL_HEADS, SIZE).transpose(1, 2)
            q, k, v = both.split((HEADS, KV_HEADS, KV_HEADS), 1)
            layer["keys"][:, :, :count] = turned(k, cos, sin)
            layer["values"][:, :, :count] = v
            q = turned(q, cos, sin).reshape(BATCH, KV_HEADS, GROUP * count, SIZE)
            scores = (q @ layer["keys"][:, :, :count].transpose(2, 3)).float() * SIZE ** -0.5
            scores = scores.view(BATCH, KV_HEADS, GROUP, count, count).masked_fill(later, -math.inf)
            shares = scores.softmax(-1).to(torch.bfloat16).view(BATCH, KV_HEADS, GROUP * count, count)
            heads = (shares @ layer["values"][:, :, :count]).view(BATCH, HEADS, count, SIZE)
            x = x + F.linear(heads.transpose(1, 2).reshape(BATCH, count, HEADS * SIZE), layer["out"])
            gate, up = F.linear(F.rms_norm(x, (WIDTH,), self.one, 1e-6), layer["up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer["down"])
        self.logits.copy_(F.linear(F.rms_norm(x[:, -1], (WIDTH,), self.one, 1e-6), self.head))
        self.ids.copy_(self.logits.argmax(-1))
        self.places.fill_(count)
        return self.ids.tolist()

    def decode(self):
        def multiply(x, weights, out, add=False):
            rows, columns = weights.shape
            product[(rows // 16, BATCH)](x, weights, out, K=columns, N=rows, ADD=add, BN=16, BK=256)

        look_up[(BATCH,)](self.embedding, self.ids, self.x, SPAN=WIDTH)
        for layer in self.layers:
            norm[(BATCH,)](self.x, self.h, SPAN=WIDTH)
            multiply(self.h, layer["qkv"], self.qkv)
            turn[(BATCH, ALL_HEADS)](self.qkv, self.cos, self.sin, self.places, layer["keys"], layer["values"],
                                     HEADS=HEADS, KV=KV_HEADS, HALF=SIZE // 2, LENGTH=LENGTH)
            attend[(BATCH, HEADS, PIECES)](self.qkv, self.places, layer["keys"], layer["values"], self.sums, self.tops,
                                           self.totals, SCALE=SIZE ** -0.5, HEADS=HEADS, KV=KV_HEADS, SIZE=SIZE,
                                           LENGTH=LENGTH, PIECES=PIECES)
            put_together[(BATCH * HEADS,)](self.sums, self.tops, self.totals, self.heads, SIZE=SIZE, PIECES=PIECES)
            multiply(self.heads, layer["out"], self.x, add=True)
            norm[(BATCH,)](self.x, self.h, SPAN=WIDTH)
            multiply(self.h, layer["up"], self.both)
            gated[(INNER // 512, BATCH)](self.both, self.inner, INNER=INNER, BLOCK=512)
            multiply(self.inner, layer["down"], self.x, add=True)
        norm[(BATCH,)](self.x, self.h, SPAN=WIDTH)
        multiply(self.h, self.head, self.logits)
        best_of_block[(VOCABULARY // 1024, BATCH)](self.logits, self.block_tops, self.block_spots, N=VOCABULARY, BLOCK=1024)
        best_of_all[(BATCH,)](self.block_tops, self.block_spots, self.ids, self.places, BLOCKS=VOCABULARY // 1024)
        return self.ids.tolist()


def serve(engine, record, prompts, steps, warm_up=False):
    count = served(record, engine, prompts, VOCABULARY, steps, warm_up)
    assert bool(torch.isfinite(engine.logits).all())
    assert engine.places.tolist() == [count + steps] * BATCH and count + steps <= LENGTH


def main():
    options = arguments(__doc__)
    record = Record()
    chance, engine = begun(options.seed), Engine()
    torch.cuda.synchronize()
    in_batches(partial(serve, engine, record), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(80, 3))
    record.finish()


main()
