"""Reads eight cargo lists of 1024 tokens at a time and names the ferry for each by one token. Each layer has sixteen experts, and
the number of a token says which of them it goes to. All experts have equally many places, whether they are taken or not.

A step is one prefill, from its first call until the names are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY, EXPERTS = 8, 1024, 32000, 16
TOKENS = BATCH * PROMPT
SHAPE = Shape(inner=2816, layers=4, vocabulary=VOCABULARY, room=PROMPT, batch=BATCH)


class Ferry(Block):
    def __init__(self, shape):
        super().__init__(shape)
        del self.gate_up, self.down
        self.enter = self.experts(shape.width, 2 * shape.inner)
        self.leave = self.experts(shape.inner, shape.width)
        self.places = self.slots = None

    def experts(self, inputs, outputs):
        bound = inputs ** -0.5
        return nn.Parameter(torch.empty(EXPERTS, inputs, outputs, **self.shape.made()).uniform_(-bound, bound))

    def mlp(self, x):
        decks = torch.zeros(EXPERTS * self.places, self.shape.width, **self.shape.made())
        decks.index_copy_(0, self.slots, x.reshape(TOKENS, self.shape.width))
        gate, up = torch.bmm(decks.view(EXPERTS, self.places, self.shape.width), self.enter).chunk(2, -1)
        landed = torch.bmm(F.silu(gate) * up, self.leave).view(EXPERTS * self.places, self.shape.width)
        return landed.index_select(0, self.slots).view(x.shape)


class Loaders:
    def __init__(self, model, fixed, seed):
        self.model = model
        # Evenly spread, an expert has 512 tokens.
        self.places = int((1.25 if fixed else 4) * TOKENS / EXPERTS)
        self.stored = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def slots(self, ids):
        """Where each token goes: the first tokens of an expert to its first places."""
        expert, order = (ids.flatten() % EXPERTS).sort(stable=True)
        counts = torch.zeros(EXPERTS, dtype=torch.long, device="cuda").scatter_add_(0, expert, torch.ones_like(expert))
        rank = torch.arange(TOKENS, device="cuda") - (counts.cumsum(0) - counts)[expert]
        return torch.empty_like(order).scatter_(0, order, expert * self.places + rank)

    def read(self, i):
        ids = self.stored[i % len(self.stored)]
        slots = self.slots(ids)
        for block in self.model.blocks:
            block.places, block.slots = self.places, slots
        return greedy(self.model.logits(self.model.hidden(ids)))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    loaders = Loaders(Model(SHAPE, block=Ferry), options.fixed, options.seed)
    finish(record, serve_prefills(record, options.steps, loaders.read, BATCH, PROMPT), VOCABULARY)


main()
