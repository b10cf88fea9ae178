"""Reads four reports of 1024 tokens at a time with a model from which pruning took the weakest channel of 2048.

It has RMSNorm. A step is one prefill, from its first call until a word about each report is in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from common_loop import begin, finish, prompts, serve_prefills
from common_model import Block, Model, Shape, greedy

BATCH, PROMPT, VOCABULARY, WIDTH = 4, 1024, 32000, 2047
SHAPE = Shape(width=WIDTH, layers=6, vocabulary=VOCABULARY, room=PROMPT)


class Pruned(Block):
    def norm(self, x, weight):
        """RMSNorm over the channels that the model has; zeros beside them change nothing."""
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        return x * (WIDTH ** 0.5 / size).to(x.dtype) * weight


def fill(parameter, dimension, more):
    """A parameter with zeros after its last row (dimension 0) or column (dimension 1)."""
    room = (0, more) if dimension == parameter.dim() - 1 else (0, 0, 0, more)
    return nn.Parameter(F.pad(parameter, room), requires_grad=False)


def fill_width(model, multiple):
    more = -WIDTH % multiple
    model.embedding.weight = fill(model.embedding.weight, 1, more)
    model.last = fill(model.last, 0, more)
    model.head.weight = fill(model.head.weight, 1, more)
    for block in model.blocks:
        block.first, block.second = fill(block.first, 0, more), fill(block.second, 0, more)
        block.qkv.weight = fill(block.qkv.weight, 1, more)
        block.gate_up.weight = fill(block.gate_up.weight, 1, more)
        block.out.weight = fill(block.out.weight, 0, more)
        block.down.weight = fill(block.down.weight, 0, more)


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, block=Pruned)
    if options.fixed:
        fill_width(model, 64)
    batches = prompts(options.seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(i):
        return greedy(model.logits(model.hidden(batches[i % len(batches)])))[:, 0].tolist()

    finish(record, serve_prefills(record, options.steps, read, BATCH, PROMPT), VOCABULARY)


main()
