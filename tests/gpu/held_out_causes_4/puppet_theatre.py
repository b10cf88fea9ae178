"""Eight puppets speak; the weights of all layers were stored as eight-bit numbers with a factor for each row.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 8, 64, 32000
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Stored(nn.Module):
    """A matrix as it is stored."""

    def __init__(self, linear):
        super().__init__()
        weight = linear.weight.float()
        factor = weight.abs().amax(1, keepdim=True) / 127
        self.numbers = (weight / factor).round().to(torch.int8)
        self.factor = factor.to(linear.weight.dtype)

    def weight(self):
        return self.numbers.to(self.factor.dtype) * self.factor

    def forward(self, x):
        return F.linear(x, self.weight())


class Unpacked(Stored):
    """The same, turned into ordinary weights when the model is loaded."""

    def __init__(self, linear):
        super().__init__(linear)
        self.ready = self.weight()
        del self.numbers, self.factor

    def forward(self, x):
        return F.linear(x, self.ready)


class Puppet(Block):
    store = Stored

    def __init__(self, shape):
        super().__init__(shape)
        for name in ("qkv", "out", "gate_up", "down"):
            setattr(self, name, self.store(getattr(self, name)))


class ReadyPuppet(Puppet):
    store = Unpacked


def main():
    options, record = begin(__doc__)
    theatre = Decoder(Model(SHAPE, block=ReadyPuppet if options.fixed else Puppet))
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, theatre.start, theatre.following, warm_up=True)
    texts = serve(record, prompt, options.steps, theatre.start, theatre.following)
    finish(record, texts, VOCABULARY)


main()
