"""Latent attention with the program's own Triton kernel for decode steps: the heads of a text read its small vectors together.

A step is one pass through the model and the draw of its tokens, until `.tolist()` has them: a prefill step takes in six prompts
of one length, whose keys and values are made for each head, a decode step a token of each text, whose queries are brought into
the space of the small vectors that the cache keeps. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
from functools import partial

import torch
import triton
from torch.nn import functional as F
from triton import language as tl

from contract import Record, arguments, ranges
from parts import MADE, begun, drawn, evened, in_batches, swiglu, tables, together, turned, weight

VOCABULARY, LENGTH, BATCH = 32000, 512, 6
WIDTH, INNER, LAYERS, HEADS = 2048, 5632, 20, 16
SMALL, PLACED, SIZE = 256, 64, 128  # numbers kept of a token, those that its place turns, and those of a head without them
SCALE = (SIZE + PLACED) ** -0.5
LENGTHS = (130, 290, 70, 440, 210)  # of prompts, by turns


@triton.jit(do_not_specialize=["count"])
def attend_to_latents(q, q_placed, latents, placed, out, count, SCALE: tl.constexpr, HEADS: tl.constexpr, SMALL: tl.constexpr,
                      PLACED: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    """All heads of one text over its places so far. What is kept of a place is both key and value, for all heads."""
    text, heads, lanes, spots = tl.program_id(0), tl.arange(0, HEADS), tl.arange(0, SMALL), tl.arange(0, PLACED)
    rows = text * HEADS + heads
    asked = tl.load(q + rows[:, None] * SMALL + lanes[None, :])
    asked_placed = tl.load(q_placed + rows[:, None] * PLACED + spots[None, :])
    top, total = tl.full([HEADS], -1e30, tl.float32), tl.zeros([HEADS], tl.float32)
    taken = tl.zeros([HEADS, SMALL], tl.float32)
    for start in range(0, count, BLOCK):
        places = start + tl.arange(0, BLOCK)
        there, at = places < count, text * LENGTH + places
        c = tl.load(latents + at[:, None] * SMALL + lanes[None, :], mask=there[:, None], other=0.0)
        p = tl.load(placed + at[:, None] * PLACED + spots[None, :], mask=there[:, None], other=0.0)
        scores = (tl.dot(asked, tl.trans(c)) + tl.dot(asked_placed, tl.trans(p))) * SCALE
        scores = tl.where(there[None, :], scores, -1e30)
        larger = tl.maximum(top, tl.max(scores, 1))
        shares, fade = tl.exp(scores - larger[:, None]), tl.exp(top - larger)
        total = total * fade + tl.sum(shares, 1)
        taken = taken * fade[:, None] + tl.dot(shares.to(tl.bfloat16), c)
        top = larger
    tl.store(out + rows[:, None] * SMALL + lanes[None, :], (taken / total[:, None]).to(tl.bfloat16))


def layer_of():
    return dict(q=weight(HEADS * (SIZE + PLACED), WIDTH), keep=weight(SMALL + PLACED, WIDTH), out=weight(WIDTH, HEADS * SIZE),
                key=torch.empty(HEADS, SIZE, SMALL, **MADE).normal_(0, SMALL ** -0.5),
                value=torch.empty(HEADS, SMALL, SIZE, **MADE).normal_(0, SMALL ** -0.5),
                gate=weight(INNER, WIDTH), up=weight(INNER, WIDTH), down=weight(WIDTH, INNER))


class Engine:
    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.layers = [layer_of() for _ in range(LAYERS)]
        self.cos, self.sin = tables(LENGTH, PLACED)
        self.columns = torch.arange(LENGTH, device="cuda")
        self.latents = torch.zeros(LAYERS, BATCH, LENGTH, SMALL, **MADE)
        self.placed = torch.zeros(LAYERS, BATCH, LENGTH, PLACED, **MADE)

    def queries(self, layer, h, cos, sin):
        """Without places, texts x heads x count x size, and with them."""
        q = F.linear(h, layer["q"]).view(*h.shape[:2], HEADS, SIZE + PLACED).transpose(1, 2)
        return q[..., :SIZE], turned(q[..., SIZE:], cos, sin)

    def kept(self, i, layer, h, start, cos, sin):
        """What the cache is to have of these places, texts x count x SMALL and PLACED; it has it then."""
        c, p = F.linear(h, layer["keep"]).split((SMALL, PLACED), -1)
        c, p, end = evened(c), turned(p, cos, sin), start + h.shape[1]
        self.latents[i, :, start:end] = c
        self.placed[i, :, start:end] = p
        return c, p

    def over_prompt(self, layer, q, q_placed, c, p):
        """Texts x count x heads * size."""
        count = c.shape[1]
        keys = torch.matmul(c[:, None], layer["key"].transpose(1, 2))  # texts x heads x count x size
        values = torch.matmul(c[:, None], layer["value"])
        scores = (q @ keys.transpose(2, 3) + q_placed @ p[:, None].transpose(2, 3)).float() * SCALE
        hidden = self.columns[:count] > self.columns[:count, None]
        shares = scores.masked_fill(hidden, -math.inf).softmax(-1).to(torch.bfloat16)
        return (shares @ values).transpose(1, 2).reshape(BATCH, count, HEADS * SIZE)

    def over_cache(self, i, layer, q, q_placed, count):
        """Texts x 1 x heads * size."""
        q = torch.bmm(q[:, :, 0].transpose(0, 1), layer["key"]).transpose(0, 1).contiguous()  # texts x heads x SMALL
        taken = torch.empty(BATCH, HEADS, SMALL, **MADE)
        attend_to_latents[(BATCH,)](q, q_placed.contiguous(), self.latents[i], self.placed[i], taken, count, SCALE=SCALE,
                                    HEADS=HEADS, SMALL=SMALL, PLACED=PLACED, LENGTH=LENGTH, BLOCK=32)
        heads = torch.bmm(taken.transpose(0, 1), layer["value"])  # heads x texts x size
        return heads.transpose(0, 1).reshape(BATCH, 1, HEADS * SIZE)

    def words(self, ids, start):
        end = start + ids.shape[1]
        cos, sin = self.cos[start:end], self.sin[start:end]
        x = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            h = evened(x)
            q, q_placed = self.queries(layer, h, cos, sin)
            c, p = self.kept(i, layer, h, start, cos, sin)
            heads = self.over_cache(i, layer, q, q_placed, end) if start else self.over_prompt(layer, q, q_placed, c, p)
            x = x + F.linear(heads, layer["out"])
            x = x + swiglu(layer, evened(x))
        self.last = F.linear(evened(x[:, -1]), self.head).float()
        self.ids, self.count = drawn(self.last, 0.8), end
        return self.ids[:, 0].tolist()

    def prefill(self, prompts):
        return self.words(torch.tensor(prompts).to("cuda"), 0)

    def decode(self):
        return self.words(self.ids, self.count)


def serve(engine, record, mark, prompts, steps, warm_up=False):
    count = together(record, mark, ("", "", ""), VOCABULARY, engine, prompts, steps, warm_up)
    assert bool(torch.isfinite(engine.last).all()) and engine.count == count + steps <= LENGTH


def main():
    options = arguments(__doc__)
    mark, record = ranges(False), Record()
    chance, engine = begun(options.seed), Engine()
    torch.cuda.synchronize()
    in_batches(partial(serve, engine, record, mark), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(90, 4))
    record.finish()


main()
