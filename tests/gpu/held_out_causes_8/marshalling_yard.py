"""Reads four waybills of 1536 tokens and names where each goes by one token. Each layer has 64 small experts, two of which
work on a token; an expert has room for 288 tokens, and those that come too late pass it by.

A step is one prefill, from its first call until the tokens are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY = 4, 1536, 32000
EXPERTS, CHOSEN, TRACK, INNER = 64, 2, 288, 512
SHAPE = Shape(inner=64, layers=6, vocabulary=VOCABULARY, room=PROMPT, batch=BATCH)


class Yard(Block):
    def __init__(self, shape):
        super().__init__(shape)
        self.router = shape.linear(shape.width, EXPERTS)
        self.gate_up = nn.Parameter(torch.randn(EXPERTS, shape.width, 2 * INNER, **shape.made()) / shape.width ** 0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, INNER, shape.width, **shape.made()) / INNER ** 0.5)

    def route(self, x):
        """For each token the places with its experts, (tokens, CHOSEN), whether there is one left, and its weights."""
        weights, experts = self.router(x).float().softmax(-1).topk(CHOSEN)
        taken = F.one_hot(experts.flatten(), EXPERTS).t().contiguous()
        place = (taken.cumsum(1) - 1).gather(0, experts.view(1, -1)).view_as(experts)
        there = place < TRACK
        return experts * TRACK + place.clamp(max=TRACK - 1), there.to(x.dtype), (weights * there).to(x.dtype)

    def experts(self, x):
        gate, up = torch.bmm(x.view(EXPERTS, TRACK, -1), self.gate_up).chunk(2, -1)
        return torch.bmm(F.silu(gate) * up, self.down).view(EXPERTS * TRACK, -1)

    def spread(self, places, numbers):
        """(tokens, places): the numbers at their places, and zeros."""
        return numbers.new_zeros(len(places), EXPERTS * TRACK).scatter_(1, places, numbers)

    def sorted(self, x):
        places, there, weights = self.route(x)
        loaded = torch.einsum("tp,tw->pw", self.spread(places, there), x)
        return torch.einsum("tp,pw->tw", self.spread(places, weights), self.experts(loaded))

    def mlp(self, x):
        return self.sorted(x.flatten(0, 1)).view_as(x)


class FixedYard(Yard):
    def sorted(self, x):
        places, there, weights = self.route(x)
        cars = (x.unsqueeze(1) * there.unsqueeze(2)).flatten(0, 1)
        loaded = x.new_zeros(EXPERTS * TRACK, x.shape[1]).index_add_(0, places.flatten(), cars)
        return (self.experts(loaded)[places] * weights.unsqueeze(2)).sum(1)


class Waybills:
    def __init__(self, model, seed):
        self.model = model
        self.bills = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(self, i):
        return greedy(self.model.logits(self.model.hidden(self.bills[i % len(self.bills)])))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    waybills = Waybills(Model(SHAPE, block=FixedYard if options.fixed else Yard), options.seed)
    finish(record, serve_prefills(record, options.steps, waybills.read, BATCH, PROMPT), VOCABULARY)


main()
