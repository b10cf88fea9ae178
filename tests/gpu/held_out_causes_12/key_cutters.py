"""Reads the orders of three key cutters by turns, 24 of 1024 tokens at a time, and names the key for each order by one token.
Each cutter has adapters of rank sixteen of his own for all linear layers; the server has places for any rank up to 512.

A step is one prefill of the orders of one cutter, from its first call until the names are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY, CUTTERS, RANK, LARGEST = 24, 1024, 32000, 3, 16, 512
SHAPE = Shape(width=1024, inner=2816, layers=24, heads=8, vocabulary=VOCABULARY, room=PROMPT, batch=BATCH)


class Adapted(nn.Module):
    cutter = 0  # whose adapters are to be used

    def __init__(self, linear, places):
        super().__init__()
        self.linear, inputs, outputs = linear, linear.in_features, linear.out_features
        made = dict(device=linear.weight.device, dtype=linear.weight.dtype)
        self.enter = nn.ParameterList()
        self.leave = nn.ParameterList()
        for _ in range(CUTTERS):
            enter = torch.randn(inputs, RANK, **made) * inputs ** -0.5
            leave = torch.randn(RANK, outputs, **made) * 0.05
            # What the adapter does not need is zero.
            self.enter.append(nn.Parameter(F.pad(enter, (0, places - RANK))))
            self.leave.append(nn.Parameter(F.pad(leave, (0, 0, 0, places - RANK))))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        result = self.linear(flat)
        result.addmm_(flat @ self.enter[self.cutter], self.leave[self.cutter])
        return result.view(x.shape[0], x.shape[1], -1)


class Cutters:
    def __init__(self, model, fixed, seed):
        self.model = model
        for block in model.blocks:
            for name in "qkv", "out", "gate_up", "down":
                setattr(block, name, Adapted(getattr(block, name), RANK if fixed else LARGEST))
        self.stored = prompts(seed, CUTTERS * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(self, i):
        Adapted.cutter = i % CUTTERS
        return greedy(self.model.logits(self.model.hidden(self.stored[i % CUTTERS])))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    cutters = Cutters(Model(SHAPE), options.fixed, options.seed)
    finish(record, serve_prefills(record, options.steps, cutters.read, BATCH, PROMPT), VOCABULARY)


main()
