"""Starts cold with Triton for everything: attention over a ring of the last 128 places, side by side with the MLP.

A step is one pass through the model for a prefill step's every token in turn, or for a decode step's only one, and the
choice of a token, until `.item()` has it. The text lies on the GPU, where the choice writes the next token into it and the
place is counted up, so from one token to the next nothing has to be sent. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))

import torch
import triton
from triton import language as tl

from contract import Record, arguments, now, split
from parts import MADE, begun, prompt, weight

VOCABULARY, LENGTH, RING = 32768, 256, 128
WIDTH, INNER, LAYERS, HEADS, SIZE = 2048, 8192, 20, 16, 128
LENGTHS = (40, 24, 64, 32, 48)  # of prompts, by turns


@triton.jit
def read_word(table, text, place, x, SPAN: tl.constexpr):
    lanes = tl.arange(0, SPAN)
    token = tl.load(text + tl.load(place))
    tl.store(x + lanes, tl.load(table + token * SPAN + lanes))


@triton.jit
def norm(x, out, SPAN: tl.constexpr):
    lanes = tl.arange(0, SPAN)
    values = tl.load(x + lanes).to(tl.float32)
    values -= tl.sum(values, 0) / SPAN
    values = values * tl.rsqrt(tl.sum(values * values, 0) / SPAN + 1e-5)
    tl.store(out + lanes, values.to(tl.bfloat16))


@triton.jit
def product(x, weights, out, K: tl.constexpr, SQUARED: tl.constexpr, ADD: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """BN values of x times the weights (N x K). Of x, what stands at SQUARED and after is squared where it is above zero."""
    ns, ks = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    sums = tl.zeros([BN, BK], tl.float32)
    for start in range(0, K, BK):
        part = tl.load(weights + ns[:, None] * K + (start + ks)[None, :]).to(tl.float32)
        values = tl.load(x + start + ks).to(tl.float32)
        above = tl.maximum(values, 0.0)
        values = tl.where(start + ks >= SQUARED, above * above, values)
        sums += part * values[None, :]
    total = tl.sum(sums, 1)
    if ADD:
        total += tl.load(out + ns).to(tl.float32)
    tl.store(out + ns, total.to(tl.bfloat16))


@triton.jit
def keep(qkv, place, keys, values, WIDTH: tl.constexpr, SIZE: tl.constexpr, RING: tl.constexpr):
    """Key and value of one head go into the ring."""
    head, lanes = tl.program_id(0), tl.arange(0, SIZE)
    spot = (head * RING + tl.load(place) % RING) * SIZE
    tl.store(keys + spot + lanes, tl.load(qkv + WIDTH + head * SIZE + lanes))
    tl.store(values + spot + lanes, tl.load(qkv + 2 * WIDTH + head * SIZE + lanes))


@triton.jit
def attend(qkv, place, keys, values, out, SCALE: tl.constexpr, STEEP: tl.constexpr, SIZE: tl.constexpr, RING: tl.constexpr):
    """One head against the whole ring; the longer ago, the less."""
    head, lanes, rows = tl.program_id(0), tl.arange(0, SIZE), tl.arange(0, RING)
    here = tl.load(place)
    ago = (here % RING - rows + RING) % RING
    there = ago <= here
    query = tl.load(qkv + head * SIZE + lanes).to(tl.float32) * SCALE
    spots = head * RING * SIZE + rows[:, None] * SIZE + lanes[None, :]
    key = tl.load(keys + spots).to(tl.float32)
    slope = tl.exp2(-(head + 1).to(tl.float32) * STEEP)
    scores = tl.where(there, tl.sum(key * query[None, :], 1) - slope * ago.to(tl.float32), -1e30)
    shares = tl.exp(scores - tl.max(scores, 0))
    value = tl.load(values + spots).to(tl.float32)
    heads = tl.sum(shares[:, None] * value, 0) / tl.sum(shares, 0)
    tl.store(out + head * SIZE + lanes, heads.to(tl.bfloat16))


@triton.jit
def best_of_block(logits, tops, spots, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    values = tl.load(logits + block * BLOCK + tl.arange(0, BLOCK)).to(tl.float32)
    tl.store(tops + block, tl.max(values, 0))
    tl.store(spots + block, block * BLOCK + tl.argmax(values, 0))


@triton.jit
def write_word(tops, spots, text, place, BLOCKS: tl.constexpr):
    best = tl.argmax(tl.load(tops + tl.arange(0, BLOCKS)), 0)
    here = tl.load(place)
    tl.store(text + here + 1, tl.load(spots + best))
    tl.store(place, here + 1)


@triton.jit
def go_on(place):
    tl.store(place, tl.load(place) + 1)


class Engine:
    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.layers = [dict(into=weight(INNER + 3 * WIDTH, WIDTH), out=weight(WIDTH, WIDTH + INNER),
                            keys=torch.zeros(HEADS, RING, SIZE, **MADE), values=torch.zeros(HEADS, RING, SIZE, **MADE))
                       for _ in range(LAYERS)]
        self.text = torch.zeros(LENGTH, dtype=torch.int32, device="cuda")
        self.place = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.nothing = torch.zeros(1, dtype=torch.int32)
        self.x, self.h = torch.zeros(WIDTH, **MADE), torch.zeros(WIDTH, **MADE)
        self.wide = torch.zeros(WIDTH + INNER + 3 * WIDTH, **MADE)  # heads, MLP, and queries, keys and values
        self.right, self.qkv = self.wide[WIDTH:], self.wide[WIDTH + INNER:]
        self.logits = torch.zeros(VOCABULARY, **MADE)
        self.tops = torch.zeros(VOCABULARY // 1024, device="cuda")
        self.spots = torch.zeros(VOCABULARY // 1024, dtype=torch.int32, device="cuda")

    def word(self, choose):
        """One place, and the choice of the next token if it is wanted."""
        read_word[(1,)](self.embedding, self.text, self.place, self.x, SPAN=WIDTH)
        for layer in self.layers:
            norm[(1,)](self.x, self.h, SPAN=WIDTH)
            product[((INNER + 3 * WIDTH) // 16,)](self.h, layer["into"], self.right, K=WIDTH, SQUARED=WIDTH, ADD=False, BN=16, BK=256)
            keep[(HEADS,)](self.qkv, self.place, layer["keys"], layer["values"], WIDTH=WIDTH, SIZE=SIZE, RING=RING)
            attend[(HEADS,)](self.qkv, self.place, layer["keys"], layer["values"], self.wide, SCALE=SIZE ** -0.5,
                             STEEP=8 / HEADS, SIZE=SIZE, RING=RING, num_warps=8)
            product[(WIDTH // 8,)](self.wide, layer["out"], self.x, K=WIDTH + INNER, SQUARED=WIDTH, ADD=True, BN=8, BK=512)
        if choose:
            norm[(1,)](self.x, self.h, SPAN=WIDTH)
            product[(VOCABULARY // 16,)](self.h, self.head, self.logits, K=WIDTH, SQUARED=WIDTH, ADD=False, BN=16, BK=256)
            best_of_block[(VOCABULARY // 1024,)](self.logits, self.tops, self.spots, BLOCK=1024)
            write_word[(1,)](self.tops, self.spots, self.text, self.place, BLOCKS=VOCABULARY // 1024)
        else:
            go_on[(1,)](self.place)

    def prefill(self, tokens):
        count = len(tokens)
        self.text[:count].copy_(torch.tensor(tokens, dtype=torch.int32))
        self.place.copy_(self.nothing)
        for i in range(count):
            self.word(i == count - 1)
        return self.text[count].item()

    def decode(self, place):
        self.word(True)
        return self.text[place + 1].item()


def write(engine, record, tokens, steps, cold=False):
    count = len(tokens)
    start = now()
    text = [engine.prefill(tokens)]
    first = end = now()
    record.step("prefill", start, first, count, 1, cold)
    for i in range(steps):
        begin = now()
        text.append(engine.decode(count + i))
        end = now()
        record.step("decode", begin, end, 1, 1, cold and i == 0)
    record.request(start, first, end, count, len(text), cold)
    assert all(0 <= token < VOCABULARY for token in text) and bool(torch.isfinite(engine.logits).all())
    assert engine.place.item() == count + steps < LENGTH


def main():
    options = arguments(__doc__)
    record = Record()
    chance, engine = begun(options.seed), Engine()
    torch.cuda.synchronize()
    for number, steps in enumerate(split(options.steps, max(4, min(20, options.steps // 8)))):
        write(engine, record, prompt(chance, VOCABULARY, LENGTHS[number % len(LENGTHS)]), steps, cold=number == 0)
    record.finish()


main()
