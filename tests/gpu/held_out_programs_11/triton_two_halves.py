"""A decoder of two halves, all of whose decode steps are Triton: the second half shares one cache, made where the first one ends.

A step is one pass through the model and the draw of four tokens, until `.tolist()` has them: a prefill step takes in four
prompts of one length by PyTorch, the second half for the last places alone; a decode step launches no kernel but the program's
own. Ten layers attend to the last 128 places, each in a ring of its own, ten more to all places, in the one cache that they
share. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
import triton
from torch.nn import functional as F
from triton import language as tl

from contract import Record, arguments
from parts import MADE, SIZE, attended, begun, in_batches, served, shares_of, swiglu, turned, weight

VOCABULARY, LENGTH, RING, BATCH = 32768, 512, 128, 4
WIDTH, INNER, HALF_LAYERS, HEADS, KV_HEADS = 2048, 6144, 10, 16, 4
ALL_HEADS, SHARE = HEADS + 2 * KV_HEADS, 0.92  # of the chances, which the tokens that may be drawn have together
LENGTHS = (120, 300, 72, 200, 420)  # of prompts, by turns


@triton.jit
def look_up(table, ids, out, SPAN: tl.constexpr):
    row, lanes = tl.program_id(0), tl.arange(0, SPAN)
    token = tl.load(ids + row)
    tl.store(out + row * SPAN + lanes, tl.load(table + token * SPAN + lanes))


@triton.jit
def product(x, weights, out, K: tl.constexpr, N: tl.constexpr, NORM: tl.constexpr, ADD: tl.constexpr, BN: tl.constexpr,
            BK: tl.constexpr):
    """BN values of a row of x, divided by its root mean square or not, times the weights (N x K), added to what is there or not."""
    row = tl.program_id(0)
    ns, ks = tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    sums = tl.zeros([BN, BK], tl.float32)
    squares = tl.zeros([BK], tl.float32)
    for start in range(0, K, BK):
        part = tl.load(weights + ns[:, None] * K + (start + ks)[None, :]).to(tl.float32)
        values = tl.load(x + row * K + start + ks).to(tl.float32)
        sums += part * values[None, :]
        squares += values * values
    total = tl.sum(sums, 1)
    if NORM:
        total = total * tl.rsqrt(tl.sum(squares, 0) / K + 1e-6)
    if ADD:
        total += tl.load(out + row * N + ns).to(tl.float32)
    tl.store(out + row * N + ns, total.to(tl.bfloat16))


@triton.jit
def gated(x, gates, ups, out, K: tl.constexpr, N: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The same for two matrices at once, and SwiGLU."""
    row = tl.program_id(0)
    ns, ks = tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    first = tl.zeros([BN, BK], tl.float32)
    second = tl.zeros([BN, BK], tl.float32)
    squares = tl.zeros([BK], tl.float32)
    for start in range(0, K, BK):
        spots = ns[:, None] * K + (start + ks)[None, :]
        values = tl.load(x + row * K + start + ks).to(tl.float32)
        first += tl.load(gates + spots).to(tl.float32) * values[None, :]
        second += tl.load(ups + spots).to(tl.float32) * values[None, :]
        squares += values * values
    scale = tl.rsqrt(tl.sum(squares, 0) / K + 1e-6)
    gate = tl.sum(first, 1) * scale
    tl.store(out + row * N + ns, (gate * tl.sigmoid(gate) * tl.sum(second, 1) * scale).to(tl.bfloat16))


@triton.jit
def keep(source, cos, sin, places, keys, values, ROW: tl.constexpr, FIRST: tl.constexpr, KV: tl.constexpr, HALF: tl.constexpr,
         ROOM: tl.constexpr):
    """Key and value of one head of one text; keys are turned. A row of the source is ROW heads, the keys begin at FIRST."""
    text, head = tl.program_id(0), tl.program_id(1)
    place, lanes = tl.load(places + text), tl.arange(0, HALF)
    key = source + (text * ROW + FIRST + head) * 2 * HALF
    value = key + KV * 2 * HALF
    a, b = tl.load(key + lanes).to(tl.float32), tl.load(key + HALF + lanes).to(tl.float32)
    c, s = tl.load(cos + place * HALF + lanes), tl.load(sin + place * HALF + lanes)
    cell = ((text * KV + head) * ROOM + place % ROOM) * 2 * HALF
    tl.store(keys + cell + lanes, (a * c - b * s).to(tl.bfloat16))
    tl.store(keys + cell + HALF + lanes, (b * c + a * s).to(tl.bfloat16))
    tl.store(values + cell + lanes, tl.load(value + lanes))
    tl.store(values + cell + HALF + lanes, tl.load(value + HALF + lanes))


@triton.jit
def attend(source, cos, sin, places, keys, values, out, SCALE: tl.constexpr, ROW: tl.constexpr, HEADS: tl.constexpr,
           KV: tl.constexpr, HALF: tl.constexpr, ROOM: tl.constexpr, BLOCK: tl.constexpr):
    """One head of one text, whose query is turned here, against what is there of ROOM places; each of BLOCK rows has sums of its
    own, which are put together at the end."""
    text, head = tl.program_id(0), tl.program_id(1)
    place = tl.load(places + text)
    count = tl.minimum(place + 1, ROOM)
    lanes, rows = tl.arange(0, HALF), tl.arange(0, BLOCK)
    query = source + (text * ROW + head) * 2 * HALF
    a, b = tl.load(query + lanes).to(tl.float32) * SCALE, tl.load(query + HALF + lanes).to(tl.float32) * SCALE
    c, s = tl.load(cos + place * HALF + lanes), tl.load(sin + place * HALF + lanes)
    first, second = a * c - b * s, b * c + a * s
    cells = (text * KV + head // (HEADS // KV)) * ROOM * 2 * HALF + rows[:, None] * 2 * HALF + lanes[None, :]
    tops = tl.full([BLOCK], -1e30, tl.float32)
    totals = tl.zeros([BLOCK], tl.float32)
    left = tl.zeros([BLOCK, HALF], tl.float32)
    right = tl.zeros([BLOCK, HALF], tl.float32)
    for start in range(0, count, BLOCK):
        there = start + rows < count
        spots = cells + start * 2 * HALF
        scores = tl.sum(tl.load(keys + spots, mask=there[:, None], other=0.0).to(tl.float32) * first[None, :], 1)
        scores += tl.sum(tl.load(keys + spots + HALF, mask=there[:, None], other=0.0).to(tl.float32) * second[None, :], 1)
        scores = tl.where(there, scores, -1e30)
        higher = tl.maximum(tops, scores)
        faded = tl.exp(tops - higher)
        shares = tl.where(there, tl.exp(scores - higher), 0.0)
        totals = totals * faded + shares
        v = tl.load(values + spots, mask=there[:, None], other=0.0).to(tl.float32)
        left = left * faded[:, None] + shares[:, None] * v
        v = tl.load(values + spots + HALF, mask=there[:, None], other=0.0).to(tl.float32)
        right = right * faded[:, None] + shares[:, None] * v
        tops = higher
    factors = tl.exp(tops - tl.max(tops, 0))
    total = tl.sum(totals * factors, 0)
    target = out + (text * HEADS + head) * 2 * HALF
    tl.store(target + lanes, (tl.sum(left * factors[:, None], 0) / total).to(tl.bfloat16))
    tl.store(target + HALF + lanes, (tl.sum(right * factors[:, None], 0) / total).to(tl.bfloat16))


@triton.jit
def draw(logits, seeds, ids, places, SHARE: tl.constexpr, SPAN: tl.constexpr):
    """A token of one text among the likeliest, whose least chance is found by halving; the place is counted up."""
    row, lanes = tl.program_id(0), tl.arange(0, SPAN)
    values = tl.load(logits + row * SPAN + lanes).to(tl.float32)
    chances = tl.exp(values - tl.max(values, 0))
    total = tl.sum(chances, 0)
    low = total * 0.0
    high = low + 1.0
    for turn in range(20):
        middle = (low + high) * 0.5
        enough = tl.sum(tl.where(chances >= middle, chances, 0.0), 0) >= SHARE * total
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    seed = tl.load(seeds + row)
    noise = -tl.log(tl.maximum(tl.rand(seed, lanes), 1e-9))
    best = tl.argmax(tl.where(chances >= low, chances / noise, 0.0), 0)
    tl.store(ids + row, best.to(tl.int32))
    tl.store(seeds + row, seed + 1)
    tl.store(places + row, tl.load(places + row) + 1)


class Engine:
    def __init__(self, seed):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.first = [dict(self.layer(ALL_HEADS), keys=self.room(RING), values=self.room(RING)) for _ in range(HALF_LAYERS)]
        self.shared = dict(qkv=weight(2 * KV_HEADS * SIZE, WIDTH), keys=self.room(LENGTH), values=self.room(LENGTH))
        self.second = [self.layer(HEADS) for _ in range(HALF_LAYERS)]
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(),
                            1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE))
        self.cos, self.sin = angle.cos(), angle.sin()
        self.columns = torch.arange(LENGTH, device="cuda")
        self.ids, self.places = (torch.zeros(BATCH, dtype=torch.int32, device="cuda") for _ in range(2))
        self.seeds = (torch.arange(BATCH, device="cuda") * 1000003 + seed).to(torch.int32)
        self.x, self.heads = torch.zeros(BATCH, WIDTH, **MADE), torch.zeros(BATCH, HEADS * SIZE, **MADE)
        self.qkv, self.inner = torch.zeros(BATCH, ALL_HEADS * SIZE, **MADE), torch.zeros(BATCH, INNER, **MADE)
        self.logits = torch.zeros(BATCH, VOCABULARY, **MADE)

    def layer(self, heads):
        return dict(qkv=weight(heads * SIZE, WIDTH), out=weight(WIDTH, HEADS * SIZE), gate=weight(INNER, WIDTH),
                    up=weight(INNER, WIDTH), down=weight(WIDTH, INNER))

    def room(self, length):
        return torch.zeros(BATCH, KV_HEADS, length, SIZE, **MADE)

    def norm(self, x):
        return F.rms_norm(x, (WIDTH,), self.one, 1e-6)

    def parted(self, layer, x, *counts):
        heads = F.linear(self.norm(x), layer["qkv"]).view(BATCH, x.shape[1], -1, SIZE).transpose(1, 2)
        return heads.split(counts, 1)

    def through(self, layer, x, shares, values):
        x = x + F.linear(attended(shares, values), layer["out"])
        return x + swiglu(layer, self.norm(x))

    def prefill(self, prompts):
        count = len(prompts[0])
        columns = self.columns[:count]
        ago = columns[:, None] - columns
        hidden = (ago < 0) | (ago >= RING)
        kept = columns[-RING:]
        cos, sin = self.cos[:count].to(torch.bfloat16), self.sin[:count].to(torch.bfloat16)
        x = F.embedding(torch.tensor(prompts).to("cuda"), self.embedding)
        for layer in self.first:
            q, k, v = self.parted(layer, x, HEADS, KV_HEADS, KV_HEADS)
            q, k = turned(q, cos, sin), turned(k, cos, sin)
            layer["keys"].index_copy_(2, kept % RING, k[:, :, -RING:])
            layer["values"].index_copy_(2, kept % RING, v[:, :, -RING:])
            x = self.through(layer, x, shares_of(q, k, hidden), v)
        k, v = self.parted(self.shared, x, KV_HEADS, KV_HEADS)
        self.shared["keys"][:, :, :count] = turned(k, cos, sin)
        self.shared["values"][:, :, :count] = v
        keys, values = self.shared["keys"][:, :, :count], self.shared["values"][:, :, :count]
        x = x[:, -1:]
        for layer in self.second:
            q, = self.parted(layer, x, HEADS)
            x = self.through(layer, x, shares_of(turned(q, cos[-1:], sin[-1:]), keys), values)
        self.logits.copy_(F.linear(self.norm(x[:, 0]), self.head))
        self.places.fill_(count - 1)
        return self.drawn()

    def drawn(self):
        draw[(BATCH,)](self.logits, self.seeds, self.ids, self.places, SHARE=SHARE, SPAN=VOCABULARY, num_warps=16)
        return self.ids.tolist()

    def decode(self):
        def multiply(x, weights, out, norm=False, add=False):
            rows, columns = weights.shape
            product[(BATCH, rows // 16)](x, weights, out, K=columns, N=rows, NORM=norm, ADD=add, BN=16, BK=256)

        def store(where, row, first, room):
            keep[(BATCH, KV_HEADS)](self.qkv, self.cos, self.sin, self.places, where["keys"], where["values"], ROW=row,
                                    FIRST=first, KV=KV_HEADS, HALF=SIZE // 2, ROOM=room)

        def rest(layer, where, row, room):
            attend[(BATCH, HEADS)](self.qkv, self.cos, self.sin, self.places, where["keys"], where["values"], self.heads,
                                   SCALE=SIZE ** -0.5, ROW=row, HEADS=HEADS, KV=KV_HEADS, HALF=SIZE // 2, ROOM=room, BLOCK=32)
            multiply(self.heads, layer["out"], self.x, add=True)
            gated[(BATCH, INNER // 16)](self.x, layer["gate"], layer["up"], self.inner, K=WIDTH, N=INNER, BN=16, BK=256)
            multiply(self.inner, layer["down"], self.x, add=True)

        look_up[(BATCH,)](self.embedding, self.ids, self.x, SPAN=WIDTH)
        for layer in self.first:
            multiply(self.x, layer["qkv"], self.qkv, norm=True)
            store(layer, ALL_HEADS, HEADS, RING)
            rest(layer, layer, ALL_HEADS, RING)
        multiply(self.x, self.shared["qkv"], self.qkv, norm=True)
        store(self.shared, 2 * KV_HEADS, 0, LENGTH)
        for layer in self.second:
            multiply(self.x, layer["qkv"], self.qkv, norm=True)
            rest(layer, self.shared, HEADS, LENGTH)
        multiply(self.x, self.head, self.logits, norm=True)
        return self.drawn()


def serve(engine, record, prompts, steps, warm_up=False):
    count = served(record, engine, prompts, VOCABULARY, steps, warm_up)
    assert bool(torch.isfinite(engine.logits).all())
    assert engine.places.tolist() == [count + steps] * BATCH and count + steps <= LENGTH


def main():
    options = arguments(__doc__)
    record = Record()
    chance, engine = begun(options.seed), Engine(options.seed)
    torch.cuda.synchronize()
    in_batches(partial(serve, engine, record), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(80, 4))
    record.finish()


main()
