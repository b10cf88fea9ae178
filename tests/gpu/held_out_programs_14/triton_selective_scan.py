"""In the manner of Mamba: Triton has the short convolution, the selective scan, and the residual with its norm; no attention.

A step is one pass through the model and the draw of four tokens, until `.tolist()` has them: a prefill step takes in four prompts
of one length, which one launch for each layer goes through from first to last, a decode step a token of each, by the same
kernels. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
import triton
from torch.nn import functional as F
from triton import language as tl

from contract import Record, arguments, ranges
from parts import MADE, begun, drawn, evened, in_batches, together, weight

VOCABULARY, BATCH = 32000, 4
WIDTH, CHANNELS, LAYERS, STATES, RANK, TAPS = 1536, 3072, 48, 16, 96, 4
WIDE = RANK + 2 * STATES
LENGTHS = (110, 240, 56, 300, 160)  # of prompts, by turns


@triton.jit
def add_and_even(x, more, out, WIDTH: tl.constexpr, SPAN: tl.constexpr):
    """x gets what is to be added, out the same divided by its root mean square."""
    row, lanes = tl.program_id(0), tl.arange(0, SPAN)
    there, spots = lanes < WIDTH, row * WIDTH + lanes
    values = tl.load(x + spots, mask=there, other=0.0).to(tl.float32)
    values += tl.load(more + spots, mask=there, other=0.0).to(tl.float32)
    tl.store(x + spots, values.to(tl.bfloat16), mask=there)
    scale = tl.rsqrt(tl.sum(values * values, 0) / WIDTH + 1e-6)
    tl.store(out + spots, (values * scale).to(tl.bfloat16), mask=there)


@triton.jit
def convolve(both, window, taps, out, CHANNELS: tl.constexpr, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK channels of one place of one text: the first half of `both`, and before its first place the window."""
    text, place, count = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    lanes = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros([BLOCK], tl.float32)
    for i in tl.static_range(TAPS):
        at = place - (TAPS - 1) + i
        new = tl.load(both + (text * count + at) * 2 * CHANNELS + lanes, mask=(lanes >= 0) & (at >= 0), other=0.0)
        old = tl.load(window + (text * (TAPS - 1) + TAPS - 1 + at) * CHANNELS + lanes, mask=(lanes >= 0) & (at < 0), other=0.0)
        sums += (new.to(tl.float32) + old.to(tl.float32)) * tl.load(taps + i * CHANNELS + lanes).to(tl.float32)
    tl.store(out + (text * count + place) * CHANNELS + lanes, (sums * tl.sigmoid(sums)).to(tl.bfloat16))


@triton.jit(do_not_specialize=["count"])
def scan(x, paces, wide, both, bias, rates, skip, states, out, count, CHANNELS: tl.constexpr, STATES: tl.constexpr,
         RANK: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK channels of one text, place by place: their states fade and take in at paces of the text's own making."""
    text, lanes, ns = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, STATES)
    cells = lanes[:, None] * STATES + ns[None, :]
    rate, kept = tl.load(rates + cells), tl.load(states + text * CHANNELS * STATES + cells)
    usual, straight = tl.load(bias + lanes), tl.load(skip + lanes)
    for place in range(count):
        row = text * count + place
        value = tl.load(x + row * CHANNELS + lanes).to(tl.float32)
        pace = tl.load(paces + row * CHANNELS + lanes).to(tl.float32) + usual
        pace = tl.where(pace > 15.0, pace, tl.log(1.0 + tl.exp(pace)))
        taken = tl.load(wide + row * (RANK + 2 * STATES) + RANK + ns).to(tl.float32)
        given = tl.load(wide + row * (RANK + 2 * STATES) + RANK + STATES + ns).to(tl.float32)
        gate = tl.load(both + row * 2 * CHANNELS + CHANNELS + lanes).to(tl.float32)
        kept = tl.exp(pace[:, None] * rate) * kept + (pace * value)[:, None] * taken[None, :]
        result = tl.sum(kept * given[None, :], 1) + straight * value
        tl.store(out + row * CHANNELS + lanes, (result * gate * tl.sigmoid(gate)).to(tl.bfloat16))
    tl.store(states + text * CHANNELS * STATES + cells, kept)


def layer_of():
    rates = -torch.arange(1, STATES + 1, device="cuda").float()
    return dict(both=weight(2 * CHANNELS, WIDTH), wide=weight(WIDE, CHANNELS), paces=weight(CHANNELS, RANK),
                out=weight(WIDTH, CHANNELS), taps=torch.empty(TAPS, CHANNELS, **MADE).normal_(0, 0.5),
                rates=rates.repeat(CHANNELS, 1), bias=torch.empty(CHANNELS, device="cuda").uniform_(-6.0, -2.0),
                skip=torch.ones(CHANNELS, device="cuda"), window=torch.zeros(BATCH, TAPS - 1, CHANNELS, **MADE),
                states=torch.zeros(BATCH, CHANNELS, STATES, device="cuda"))


class Engine:
    def __init__(self):
        self.embedding = weight(VOCABULARY, WIDTH)
        self.layers = [layer_of() for _ in range(LAYERS)]

    def mix(self, layer, h):
        count = h.shape[1]
        both = F.linear(h, layer["both"])
        x = torch.empty(BATCH, count, CHANNELS, **MADE)
        convolve[(BATCH, count, CHANNELS // 1024)](both, layer["window"], layer["taps"], x, CHANNELS=CHANNELS, TAPS=TAPS,
                                                   BLOCK=1024)
        layer["window"].copy_(torch.cat((layer["window"], both[:, 1 - TAPS:, :CHANNELS]), 1)[:, 1 - TAPS:])
        wide = F.linear(x, layer["wide"])
        paces = F.linear(wide[:, :, :RANK], layer["paces"])
        out = torch.empty_like(x)
        scan[(BATCH, CHANNELS // 32)](x, paces, wide, both, layer["bias"], layer["rates"], layer["skip"], layer["states"], out,
                                      count, CHANNELS=CHANNELS, STATES=STATES, RANK=RANK, BLOCK=32, num_warps=1)
        return F.linear(out, layer["out"])

    def word(self, ids):
        x = F.embedding(ids, self.embedding)
        h = evened(x)
        for layer in self.layers:
            add_and_even[(BATCH * ids.shape[1],)](x, self.mix(layer, h), h, WIDTH=WIDTH, SPAN=2048)
        self.last = F.linear(h[:, -1], self.embedding).float()
        self.ids = drawn(self.last, 0.8)
        return self.ids[:, 0].tolist()

    def prefill(self, prompts):
        for layer in self.layers:
            layer["window"].zero_()
            layer["states"].zero_()
        return self.word(torch.tensor(prompts).to("cuda"))

    def decode(self):
        return self.word(self.ids)


def serve(engine, record, mark, prompts, steps, warm_up=False):
    together(record, mark, ("", "", ""), VOCABULARY, engine, prompts, steps, warm_up)
    assert bool(torch.isfinite(engine.last).all())
    assert all(bool(torch.isfinite(layer["states"]).all()) for layer in engine.layers)


def main():
    options = arguments(__doc__)
    mark, record = ranges(False), Record()
    chance, engine = begun(options.seed), Engine()
    torch.cuda.synchronize()
    in_batches(partial(serve, engine, record, mark), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(80, 4))
    record.finish()


main()
