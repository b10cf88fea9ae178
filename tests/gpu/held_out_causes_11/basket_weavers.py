"""Thirty-two basket weavers tell how it is done. The model's file has the weights of the MLP as (inputs, outputs), those of gate
and up in turns, column by column.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 32, 64, 32000
SHAPE = Shape(layers=12, vocabulary=VOCABULARY, batch=BATCH)


class Weaver(Block):
    def __init__(self, shape):
        super().__init__(shape)
        del self.gate_up
        bound = shape.width ** -0.5
        self.both = nn.Parameter(torch.empty(shape.width, 2 * shape.inner, **shape.made()).uniform_(-bound, bound))
        # Every second column: neither of the two strides is one.
        self.gate, self.up = self.both.detach()[:, 0::2], self.both.detach()[:, 1::2]

    def straighten(self):
        self.gate, self.up = self.gate.contiguous(), self.up.contiguous()
        self.both = None

    def mlp(self, x):
        return self.down(F.silu(x @ self.gate) * (x @ self.up))


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, block=Weaver)
    if options.fixed:
        for block in model.blocks:
            block.straighten()
    weavers = Decoder(model)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, weavers.start, weavers.following, warm_up=True)
    texts = serve(record, prompt, options.steps, weavers.start, weavers.following)
    finish(record, texts, VOCABULARY)


main()
