"""A prompt grows shorter on its way through the layers: behind a third of them, and behind two, the host is told how much stays.

Layers 7 to 12 see only the places of a long prompt that held seven tenths of the attention in layer 6, layers 13 to 18 only those
of these that did in layer 12. A step is one pass through the model and the draw of a token, until `.item()` has it: a prefill
step takes in one prompt, with two waits more within it; a decode step one token, by all layers, each over what it has. Triton has
attention in decode steps, residuals with norms, and the picking of rows. A request is one text. With --ranges six layers at a
time have "blocks" and their numbers around them, in passes of both kinds, and the choice behind the first and the second six of
a prefill step, with its wait, has "cut" around it in that. There are no others.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
import triton
from torch.nn import functional as F
from triton import language as tl

from contract import Record, arguments, ranges
from parts import (MADE, SIZE, attended, begun, drawn, evened, heads_of, in_bands, layer_of, one_text, prompt, shares_of, swiglu,
                   tables, weight)

VOCABULARY, LENGTH = 32000, 1664
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 18, 16, 4
EACH, HELD, NEWEST = 6, 0.7, 16  # layers to a block; the share of attention that stays; the last places always do
BANDS = ((900, 1200), (400, 600), (1400, 1600), (700, 800))  # of prompts' lengths, by turns


@triton.jit(do_not_specialize=["span"])
def look(q, keys, values, out, span, GROUP: tl.constexpr, AREA: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """One head's attention to the first `span` places of its keys and values, block by block."""
    head, lanes, rows = tl.program_id(0), tl.arange(0, SIZE), tl.arange(0, BLOCK)
    first = (head // GROUP) * AREA
    asked = tl.load(q + head * SIZE + lanes).to(tl.float32)
    highest = tl.full([1], -1e30, tl.float32)
    total = tl.zeros([1], tl.float32)
    taken = tl.zeros([SIZE], tl.float32)
    for start in range(0, span, BLOCK):
        known = start + rows < span
        at = first + (start + rows)[:, None] * SIZE + lanes[None, :]
        key = tl.load(keys + at, mask=known[:, None], other=0.0).to(tl.float32)
        scores = tl.where(known, tl.sum(key * asked[None, :], 1) * 0.08838834764831845, -1e30)  # the root of 1 / 128
        higher = tl.maximum(highest, tl.max(scores, 0))
        shrink, shares = tl.exp(highest - higher), tl.exp(scores - higher)
        value = tl.load(values + at, mask=known[:, None], other=0.0).to(tl.float32)
        taken = taken * shrink + tl.sum(shares[:, None] * value, 0)
        total = total * shrink + tl.sum(shares, 0)
        highest = higher
    tl.store(out + head * SIZE + lanes, (taken / total).to(tl.bfloat16))


@triton.jit
def settle(x, more, out, SPAN: tl.constexpr):
    """x gets what is to be added, out the same divided by its root mean square."""
    row, lanes = tl.program_id(0), tl.arange(0, SPAN)
    values = tl.load(x + row * SPAN + lanes).to(tl.float32) + tl.load(more + row * SPAN + lanes).to(tl.float32)
    tl.store(x + row * SPAN + lanes, values.to(tl.bfloat16))
    scale = 1.0 / tl.sqrt(tl.sum(values * values, 0) / SPAN + 1e-6)
    tl.store(out + row * SPAN + lanes, (values * scale).to(tl.bfloat16))


@triton.jit
def pick(x, places, out, SPAN: tl.constexpr):
    row, lanes = tl.program_id(0), tl.arange(0, SPAN)
    place = tl.load(places + row)
    tl.store(out + row * SPAN + lanes, tl.load(x + place * SPAN + lanes))


def picked(x, places):
    out = torch.empty(places.shape[0], WIDTH, **MADE)
    pick[(places.shape[0],)](x, places, out, SPAN=WIDTH)
    return out


def settled(x, more):
    out = torch.empty_like(x)
    settle[(x.shape[0],)](x, more, out, SPAN=WIDTH)
    return out


class Engine:
    def __init__(self, mark):
        self.mark, self.embedding, self.head = mark, torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.layers = [layer_of(WIDTH, INNER, HEADS, KV_HEADS) for _ in range(LAYERS)]
        self.cos, self.sin = tables(LENGTH, SIZE)
        self.columns = torch.arange(LENGTH, device="cuda")
        self.cache = torch.zeros(LAYERS, 2, KV_HEADS, LENGTH, SIZE, **MADE)
        self.lengths = [0] * (LAYERS // EACH)  # of the cache of each block's layers

    def seen(self, i, q, k, v):
        """What the layer attends to, over the cache with these keys and values at its end."""
        start, count = self.lengths[i // EACH], q.shape[1]
        keys, values = self.cache[i]
        keys[:, start:start + count] = k
        values[:, start:start + count] = v
        if count > 1:
            hidden = self.columns[:count] > self.columns[:count, None]
            shares = shares_of(q, keys[:, :count], hidden)
            if i % EACH == EACH - 1:
                self.watched = shares[..., -NEWEST:, :].mean((0, 1, 2))  # how much the last places see of each
            return attended(shares, values[:, :count])
        out = torch.empty(1, HEADS * SIZE, **MADE)
        look[(HEADS,)](q.contiguous(), keys, values, out, start + 1, GROUP=HEADS // KV_HEADS, AREA=LENGTH * SIZE, SIZE=SIZE,
                       BLOCK=64)
        return out

    def block(self, number, x, h, cos, sin):
        for i in range(number * EACH, (number + 1) * EACH):
            q, k, v = heads_of(self.layers[i], h, cos, sin)
            h = settled(x, F.linear(self.seen(i, q, k, v), self.layers[i]["out"]))
            h = settled(x, swiglu(self.layers[i], h))
        self.lengths[number] += h.shape[0]
        return h

    def cut(self):
        """Which places stay, in their order. The newest ones count for more than all the others."""
        with self.mark("cut"):
            self.watched[-NEWEST:] += 1.0
            best = self.watched.sort(descending=True)
            count = (best.values.cumsum(0) < NEWEST + HELD).sum().item() + 1
            return best.indices[:count].sort().values

    def words(self, ids, places):
        x = F.embedding(ids, self.embedding)
        h, cos, sin = evened(x), self.cos[places], self.sin[places]
        for number in range(len(self.lengths)):
            with self.mark("blocks %d to %d" % (number * EACH + 1, (number + 1) * EACH)):
                h = self.block(number, x, h, cos, sin)
                if ids.shape[0] > 1 and number < len(self.lengths) - 1:
                    stay = self.cut()
                    x, h, cos, sin = picked(x, stay), picked(h, stay), cos[stay], sin[stay]
        self.last = F.linear(h[-1:], self.head).float()
        self.ids = drawn(self.last, 0.8).view(1)
        return self.ids.item()

    def prefill(self, tokens):
        self.lengths = [0] * len(self.lengths)
        return self.words(torch.tensor(tokens).to("cuda"), slice(0, len(tokens)))

    def decode(self, place):
        return self.words(self.ids, slice(place, place + 1))


def write(engine, record, unmarked, tokens, steps, number, warm_up=False):
    one_text(record, unmarked, ("", "", ""), VOCABULARY, engine.prefill, engine.decode, tokens, steps, warm_up)
    all_of_it, less, least = engine.lengths
    assert LENGTH >= all_of_it == len(tokens) + steps > less > least > steps and bool(torch.isfinite(engine.last).all())


def main():
    options = arguments(__doc__)
    unmarked, record = ranges(False), Record()
    chance, engine = begun(options.seed), Engine(ranges(options.ranges))
    torch.cuda.synchronize()
    answer = partial(write, engine, record, unmarked)
    answer(prompt(chance, VOCABULARY, 300), 4, 0, warm_up=True)
    in_bands(answer, chance, VOCABULARY, BANDS, options.steps, 3, 25)
    record.finish()


main()
