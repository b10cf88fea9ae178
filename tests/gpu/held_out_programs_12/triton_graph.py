"""A decode step of nothing but the program's own Triton kernels, in one CUDA graph; eight texts, whose rows share each product.

A step is one pass through the model and the draw of eight tokens, until `.tolist()` has them: a prefill step takes in eight
prompts of one length by PyTorch and draws by Triton, a decode step replays the graph. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
import triton
from torch.nn import functional as F
from triton import language as tl

from contract import Record, arguments
from parts import MADE, SIZE, attended, begun, captured, in_batches, served, shares_of, turned, weight

VOCABULARY, LENGTH, BATCH = 32768, 448, 8
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 20, 16, 4
ALL_HEADS = HEADS + 2 * KV_HEADS
LENGTHS = (96, 240, 64, 350, 160)  # of prompts, by turns


@triton.jit
def look_up(table, ids, out, SPAN: tl.constexpr):
    row, lanes = tl.program_id(0), tl.arange(0, SPAN)
    token = tl.load(ids + row)
    tl.store(out + row * SPAN + lanes, tl.load(table + token * SPAN + lanes))


@triton.jit
def even(x, out, SPAN: tl.constexpr):
    """Each row divided by its root mean square."""
    row, lanes = tl.program_id(0), tl.arange(0, SPAN)
    values = tl.load(x + row * SPAN + lanes).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / SPAN + 1e-6)
    tl.store(out + row * SPAN + lanes, (values * scale).to(tl.bfloat16))


@triton.jit
def multiply(x, weights, out, ROWS: tl.constexpr, K: tl.constexpr, N: tl.constexpr, ADD: tl.constexpr, BN: tl.constexpr,
             BK: tl.constexpr):
    """BN columns of all rows of x times the weights (N x K), added to what is there or not. Up to 16 rows."""
    rows, ns, ks = tl.arange(0, 16), tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    there = rows[:, None] < ROWS
    sums = tl.zeros([16, BN], tl.float32)
    for start in range(0, K, BK):
        part = tl.load(x + rows[:, None] * K + (start + ks)[None, :], mask=there, other=0.0)
        sums += tl.dot(part, tl.load(weights + (start + ks)[:, None] + ns[None, :] * K))
    spots = rows[:, None] * N + ns[None, :]
    if ADD:
        sums += tl.load(out + spots, mask=there, other=0.0).to(tl.float32)
    tl.store(out + spots, sums.to(tl.bfloat16), mask=there)


@triton.jit
def turn(qkv, cos, sin, places, keys, values, ROW: tl.constexpr, HEADS: tl.constexpr, KV: tl.constexpr, HALF: tl.constexpr,
         ROOM: tl.constexpr):
    """One head of one text: a query is turned where it is, a key is turned and put into the cache, a value only put there. A row
    has HEADS queries, KV keys and KV values."""
    text, head = tl.program_id(0), tl.program_id(1)
    place, lanes = tl.load(places + text), tl.arange(0, HALF)
    source = qkv + (text * ROW + head) * 2 * HALF
    a, b = tl.load(source + lanes).to(tl.float32), tl.load(source + HALF + lanes).to(tl.float32)
    c, s = tl.load(cos + place * HALF + lanes), tl.load(sin + place * HALF + lanes)
    first, second = (a * c - b * s).to(tl.bfloat16), (b * c + a * s).to(tl.bfloat16)
    if head < HEADS:
        tl.store(source + lanes, first)
        tl.store(source + HALF + lanes, second)
    if (head >= HEADS) & (head < HEADS + KV):
        key = keys + ((text * KV + head - HEADS) * ROOM + place) * 2 * HALF
        tl.store(key + lanes, first)
        tl.store(key + HALF + lanes, second)
    if head >= HEADS + KV:
        value = values + ((text * KV + head - HEADS - KV) * ROOM + place) * 2 * HALF
        tl.store(value + lanes, a.to(tl.bfloat16))
        tl.store(value + HALF + lanes, b.to(tl.bfloat16))


@triton.jit
def attend(qkv, places, keys, values, out, SCALE: tl.constexpr, ROW: tl.constexpr, HEADS: tl.constexpr, KV: tl.constexpr,
           SPAN: tl.constexpr, ROOM: tl.constexpr, BLOCK: tl.constexpr):
    """One head of one text; each of BLOCK rows has sums of its own, which are put together at the end."""
    text, head = tl.program_id(0), tl.program_id(1)
    count = tl.load(places + text) + 1
    lanes, rows = tl.arange(0, SPAN), tl.arange(0, BLOCK)
    query = tl.load(qkv + (text * ROW + head) * SPAN + lanes).to(tl.float32) * SCALE
    cells = (text * KV + head // (HEADS // KV)) * ROOM * SPAN + rows[:, None] * SPAN + lanes[None, :]
    tops = tl.full([BLOCK], -1e30, tl.float32)
    totals = tl.zeros([BLOCK], tl.float32)
    sums = tl.zeros([BLOCK, SPAN], tl.float32)
    for start in range(0, count, BLOCK):
        there = start + rows < count
        key = tl.load(keys + cells + start * SPAN, mask=there[:, None], other=0.0).to(tl.float32)
        scores = tl.where(there, tl.sum(key * query[None, :], 1), -1e30)
        higher = tl.maximum(tops, scores)
        faded = tl.exp(tops - higher)
        shares = tl.where(there, tl.exp(scores - higher), 0.0)
        value = tl.load(values + cells + start * SPAN, mask=there[:, None], other=0.0).to(tl.float32)
        totals = totals * faded + shares
        sums = sums * faded[:, None] + shares[:, None] * value
        tops = higher
    factors = tl.exp(tops - tl.max(tops, 0))
    total = tl.sum(totals * factors, 0)
    tl.store(out + (text * HEADS + head) * SPAN + lanes, (tl.sum(sums * factors[:, None], 0) / total).to(tl.bfloat16))


@triton.jit
def gate(both, out, N: tl.constexpr, BLOCK: tl.constexpr):
    """SwiGLU of BLOCK columns of a row, whose first N are the gates."""
    row, lanes = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(both + row * 2 * N + lanes).to(tl.float32)
    second = tl.load(both + row * 2 * N + N + lanes).to(tl.float32)
    tl.store(out + row * N + lanes, (first * tl.sigmoid(first) * second).to(tl.bfloat16))


@triton.jit
def draw(logits, seeds, ids, places, SPAN: tl.constexpr):
    """A token of one text, by noise of its own; the place is counted up."""
    row, lanes = tl.program_id(0), tl.arange(0, SPAN)
    values = tl.load(logits + row * SPAN + lanes).to(tl.float32)
    seed = tl.load(seeds + row)
    noise = -tl.log(tl.maximum(tl.rand(seed, lanes), 1e-9))
    best = tl.argmax(values * 1.25 - tl.log(tl.maximum(noise, 1e-9)), 0)
    tl.store(ids + row, best.to(tl.int32))
    tl.store(seeds + row, seed + 1)
    tl.store(places + row, tl.load(places + row) + 1)


class Engine:
    def __init__(self, seed):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.layers = [dict(qkv=weight(ALL_HEADS * SIZE, WIDTH), out=weight(WIDTH, HEADS * SIZE), both=weight(2 * INNER, WIDTH),
                            down=weight(WIDTH, INNER), keys=torch.zeros(BATCH, KV_HEADS, LENGTH, SIZE, **MADE),
                            values=torch.zeros(BATCH, KV_HEADS, LENGTH, SIZE, **MADE)) for _ in range(LAYERS)]
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(),
                            1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE))
        self.cos, self.sin = angle.cos(), angle.sin()
        self.columns = torch.arange(LENGTH, device="cuda")
        self.ids, self.places = (torch.zeros(BATCH, dtype=torch.int32, device="cuda") for _ in range(2))
        self.seeds = (torch.arange(BATCH, device="cuda") * 1000003 + seed).to(torch.int32)
        self.x, self.h = (torch.zeros(BATCH, WIDTH, **MADE) for _ in range(2))
        self.qkv, self.heads = torch.zeros(BATCH, ALL_HEADS * SIZE, **MADE), torch.zeros(BATCH, HEADS * SIZE, **MADE)
        self.both, self.inner = torch.zeros(BATCH, 2 * INNER, **MADE), torch.zeros(BATCH, INNER, **MADE)
        self.logits = torch.zeros(BATCH, VOCABULARY, **MADE)
        self.graph = captured(self.step)

    def times(self, x, weights, out, add=False):
        rows, columns = weights.shape
        multiply[(rows // 32,)](x, weights, out, ROWS=BATCH, K=columns, N=rows, ADD=add, BN=32, BK=128)

    def step(self):
        look_up[(BATCH,)](self.embedding, self.ids, self.x, SPAN=WIDTH)
        for layer in self.layers:
            even[(BATCH,)](self.x, self.h, SPAN=WIDTH)
            self.times(self.h, layer["qkv"], self.qkv)
            turn[(BATCH, ALL_HEADS)](self.qkv, self.cos, self.sin, self.places, layer["keys"], layer["values"], ROW=ALL_HEADS,
                                     HEADS=HEADS, KV=KV_HEADS, HALF=SIZE // 2, ROOM=LENGTH)
            attend[(BATCH, HEADS)](self.qkv, self.places, layer["keys"], layer["values"], self.heads, SCALE=SIZE ** -0.5,
                                   ROW=ALL_HEADS, HEADS=HEADS, KV=KV_HEADS, SPAN=SIZE, ROOM=LENGTH, BLOCK=32)
            self.times(self.heads, layer["out"], self.x, add=True)
            even[(BATCH,)](self.x, self.h, SPAN=WIDTH)
            self.times(self.h, layer["both"], self.both)
            gate[(BATCH, INNER // 512)](self.both, self.inner, N=INNER, BLOCK=512)
            self.times(self.inner, layer["down"], self.x, add=True)
        even[(BATCH,)](self.x, self.h, SPAN=WIDTH)
        self.times(self.h, self.head, self.logits)
        self.choose()

    def choose(self):
        draw[(BATCH,)](self.logits, self.seeds, self.ids, self.places, SPAN=VOCABULARY, num_warps=16)

    def prefill(self, prompts):
        count = len(prompts[0])
        columns = self.columns[:count]
        hidden = columns > columns[:, None]
        cos, sin = self.cos[:count].to(torch.bfloat16), self.sin[:count].to(torch.bfloat16)
        x = F.embedding(torch.tensor(prompts).to("cuda"), self.embedding)
        for layer in self.layers:
            heads = F.linear(self.evened(x), layer["qkv"]).view(BATCH, count, ALL_HEADS, SIZE).transpose(1, 2)
            q, k, v = heads.split((HEADS, KV_HEADS, KV_HEADS), 1)
            q, k = turned(q, cos, sin), turned(k, cos, sin)
            layer["keys"][:, :, :count] = k
            layer["values"][:, :, :count] = v
            x = x + F.linear(attended(shares_of(q, k, hidden), v), layer["out"])
            first, second = F.linear(self.evened(x), layer["both"]).chunk(2, -1)
            x = x + F.linear(F.silu(first) * second, layer["down"])
        self.logits.copy_(F.linear(self.evened(x[:, -1]), self.head))
        self.places.fill_(count - 1)
        self.choose()
        return self.ids.tolist()

    def evened(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).to(torch.bfloat16)

    def decode(self):
        self.graph.replay()
        return self.ids.tolist()


def serve(engine, record, prompts, steps, warm_up=False):
    count = served(record, engine, prompts, VOCABULARY, steps, warm_up)
    assert bool(torch.isfinite(engine.logits).all())
    assert engine.places.tolist() == [count + steps] * BATCH and count + steps <= LENGTH


def main():
    options = arguments(__doc__)
    record = Record()
    chance, engine = begun(options.seed), Engine(options.seed)
    in_batches(partial(serve, engine, record), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(80, 4))
    record.finish()


main()
