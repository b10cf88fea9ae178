"""Reads eight notes on wines of 1024 tokens at a time and names a grape for each.

The model has RMSNorm before and after attention and MLP, as in Gemma. A step is one prefill, from its first call until
the grapes are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY, SMALL = 8, 1024, 32000, 1e-6
SHAPE = Shape(inner=3072, layers=12, vocabulary=VOCABULARY, room=PROMPT)


class Taster(Block):
    def __init__(self, shape):
        super().__init__(shape)
        self.third = nn.Parameter(torch.ones(shape.width, **shape.made()))
        self.fourth = nn.Parameter(torch.ones(shape.width, **shape.made()))

    def norm(self, x, weight):
        """As the paper has it, in single precision."""
        wide = x.float()
        square = wide.pow(2).mean(-1, keepdim=True)
        return weight * (wide * torch.rsqrt(square + SMALL)).to(x.dtype)

    def close(self, x, heads):
        x = x + self.norm(self.out(heads), self.third)
        return x + self.norm(self.mlp(self.norm(x, self.second)), self.fourth)


class QuickTaster(Taster):
    def norm(self, x, weight):
        return F.rms_norm(x, weight.shape, weight, SMALL)


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, block=QuickTaster if options.fixed else Taster)
    batches = prompts(options.seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(i):
        return greedy(model.logits(model.hidden(batches[i % len(batches)])))[:, 0].tolist()

    finish(record, serve_prefills(record, options.steps, read, BATCH, PROMPT), VOCABULARY)


main()
