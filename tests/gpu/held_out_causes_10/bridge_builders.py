"""Reads two plans of bridges of 2048 tokens each and names the builder of each by one token. As in T5, what a token thinks of
another depends on how far they are apart, by a small table that all layers share.

A step is one prefill, from its first call until the names are in a list on the host.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY, BUCKETS, FARTHEST = 2, 2048, 32000, 32, 128
SHAPE = Shape(layers=12, kv_heads=16, vocabulary=VOCABULARY, room=PROMPT, batch=BATCH)


class Builder(Block):
    """Its `table` has a number for each bucket of distances and each head."""

    def bias(self, count):
        """What is added to the scores, (1, heads, count, count)."""
        place = torch.arange(count, device="cuda")
        apart = place.view(1, -1) - place.view(-1, 1)
        far, half, exact = apart.abs(), BUCKETS // 2, BUCKETS // 4
        step = torch.log(far.clamp(min=1).float() / exact) / math.log(FARTHEST / exact)
        bucket = torch.where(far < exact, far, (exact + (step * (half - exact)).long()).clamp(max=half - 1))
        return self.table(bucket + (apart > 0) * half).permute(2, 0, 1).unsqueeze(0).contiguous()

    def judge(self, x, cos, sin, bias=None):
        """Yields the bias as well, for the next layer."""
        if bias is None:
            bias = self.bias(x.shape[1])
        heads = F.scaled_dot_product_attention(*self.split(x, cos, sin), attn_mask=bias)
        return self.close(x, heads.transpose(1, 2).reshape(x.shape)), bias


class Builders:
    def __init__(self, model, fixed, seed):
        self.model, self.fixed = model, fixed
        table = nn.Embedding(BUCKETS, SHAPE.heads, **SHAPE.made())
        for block in model.blocks:
            block.table = table
        self.stored = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(self, i):
        model = self.model
        x, bias = model.embedding(self.stored[i % len(self.stored)]), None
        for block in model.blocks:
            x, made = block.judge(x, model.cos, model.sin, bias)
            bias = made if self.fixed else None
        return greedy(model.logits(x.mean(1, keepdim=True)))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    builders = Builders(Model(SHAPE, block=Builder), options.fixed, options.seed)
    finish(record, serve_prefills(record, options.steps, builders.read, BATCH, PROMPT), VOCABULARY)


main()
