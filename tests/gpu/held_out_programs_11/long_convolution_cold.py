"""Starts cold and compiles nothing: long convolutions in place of attention, by Fourier transforms in the prompt's pass.

A step is one pass through the model and the draw of a token, until `.item()` has it: a prefill step takes in one prompt, each
layer's convolution as a product of two transforms as long as the next power of two of twice the prompt; a decode step takes in
one token and sums up what each layer has seen so far, weighted by its filter. A request is one text. With --ranges a text has
"page" around it, inside are "given" for the prefill step and "added" for each decode step, with "draw" in both.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, ranges
from parts import MADE, alone, begun, drawn, in_bands, weight

VOCABULARY, LENGTH = 32000, 1024
WIDTH, INNER, LAYERS = 2048, 8192, 20
BANDS = ((270, 340), (140, 200), (560, 760), (400, 500), (72, 120))  # of prompt lengths, by turns


class Model:
    def __init__(self, mark):
        self.mark = mark
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.layers = [dict(into=weight(3 * WIDTH, WIDTH), short=weight(3 * WIDTH, 3), filter=self.filter(),
                            out=weight(WIDTH, WIDTH), up=weight(INNER, WIDTH), down=weight(WIDTH, INNER),
                            seen=torch.zeros(LENGTH, WIDTH, device="cuda"), window=torch.zeros(2, 3 * WIDTH, **MADE))
                       for _ in range(LAYERS)]

    def filter(self):
        """LENGTH x WIDTH, the latest last; each column fades at a pace of its own."""
        ago = torch.arange(LENGTH - 1, -1, -1, device="cuda")[:, None]
        pace = 0.2 * torch.rand(WIDTH, device="cuda").square() + 0.005
        values = torch.randn(LENGTH, WIDTH, device="cuda") * (-ago * pace).exp()
        return values / values.square().sum(0).sqrt()

    def long(self, layer, moved, start, count):
        """The convolution's `count` values from `start` on; `moved` is what goes into it there."""
        layer["seen"][start:start + count] = moved
        if count == 1:
            return (layer["seen"][:start + 1] * layer["filter"][LENGTH - 1 - start:]).sum(0, keepdim=True)
        size = 1 << (2 * count - 1).bit_length()
        weights = layer["filter"][LENGTH - count:].flip(0)
        product = torch.fft.rfft(moved, size, 0) * torch.fft.rfft(weights, size, 0)
        return torch.fft.irfft(product, size, 0)[:count]

    def word(self, ids, start):
        count = ids.shape[0]
        if start == 0:
            for layer in self.layers:
                layer["window"].zero_()
        x = F.embedding(ids, self.embedding)
        for layer in self.layers:
            h = torch.cat((layer["window"], F.linear(F.layer_norm(x, (WIDTH,), self.one), layer["into"])))
            layer["window"].copy_(h[count:])
            short = layer["short"]
            h = h[2:] * short[:, 0] + h[1:-1] * short[:, 1] + h[:-2] * short[:, 2]
            gate, key, value = h.chunk(3, -1)
            far = self.long(layer, (key * value).float(), start, count)
            x = x + F.linear((gate * far).to(torch.bfloat16), layer["out"])
            x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (WIDTH,), self.one), layer["up"])), layer["down"])
        with self.mark("draw"):
            self.last = F.linear(F.layer_norm(x[-1:], (WIDTH,), self.one), self.head).float()
            top = self.last.topk(50, -1)
            self.ids = top.indices.gather(-1, drawn(top.values, 0.8))[0]
            return self.ids.item()

    def prefill(self, tokens):
        return self.word(torch.tensor(tokens).to("cuda"), 0)

    def decode(self, place):
        return self.word(self.ids, place)


def write(model, record, mark, tokens, steps, number):
    alone(record, mark, ("page", "given", "added"), VOCABULARY, model.prefill, model.decode, tokens, steps, cold=number == 0)
    assert bool(torch.isfinite(model.last).all()) and len(tokens) + steps <= LENGTH


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, model = begun(options.seed), Model(mark)
    torch.cuda.synchronize()
    in_bands(partial(write, model, record, mark), chance, VOCABULARY, BANDS, options.steps, 4, 30)
    record.finish()


main()
