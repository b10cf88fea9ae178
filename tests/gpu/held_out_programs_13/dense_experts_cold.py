"""Starts cold and compiles nothing: a mixture of experts whose routing stays on the GPU, so the host waits for the token alone.

A step is one pass through the model and the draw of a token, until `.item()` has it: a prefill step takes in one prompt and runs
all experts on all of it; a decode step copies the weights of the two experts that its token is for, in each layer, and runs
these. A request is one text. With --ranges a text has "letter" around it, inside are "opening" for the prefill step and "line"
for each decode step.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, ranges
from parts import Reader, begun, in_bands, one_text, swiglu, weight

VOCABULARY, LENGTH, EXPERTS, CHOSEN = 32000, 640, 10, 2
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 1536, 1024, 18, 12, 4
BANDS = ((160, 230), (60, 110), (420, 560), (280, 360), (24, 50))  # of prompt lengths, by turns


class Writer(Reader):
    def __init__(self):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH)
        for layer in self.layers:  # gate, up and down are those of the expert that all tokens go through
            layer.update(router=weight(EXPERTS, WIDTH), first=weight(EXPERTS * 2 * INNER, WIDTH).view(EXPERTS, 2 * INNER, WIDTH),
                         second=weight(EXPERTS * WIDTH, INNER).view(EXPERTS, WIDTH, INNER))

    def feed(self, layer, h):
        top = F.linear(h, layer["router"]).float().softmax(-1).topk(CHOSEN, -1)
        parts = top.values / top.values.sum(-1, keepdim=True)  # count x chosen
        first, second = layer["first"], layer["second"]
        if h.shape[0] > 1:
            parts = torch.zeros(h.shape[0], EXPERTS, device="cuda").scatter_(1, top.indices, parts)
        else:
            first, second = first.index_select(0, top.indices[0]), second.index_select(0, top.indices[0])
        gate, up = (h.expand(first.shape[0], *h.shape) @ first.transpose(1, 2)).chunk(2, -1)
        each = (F.silu(gate) * up) @ second.transpose(1, 2)  # experts x count x width
        return swiglu(layer, h) + (each * parts.t()[:, :, None].to(h.dtype)).sum(0)


def write(writer, record, mark, tokens, steps, number):
    words = ("letter", "opening", "line")
    one_text(record, mark, words, VOCABULARY, writer.prefill, writer.decode, tokens, steps, cold=number == 0)
    assert bool(torch.isfinite(writer.last).all()) and len(tokens) + steps <= LENGTH


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, writer = begun(options.seed), Writer()
    torch.cuda.synchronize()
    in_bands(partial(write, writer, record, mark), chance, VOCABULARY, BANDS, options.steps, 4, 30)
    record.finish()


main()
