"""Reads four price lists of spices, 2048 tokens each, and answers each by one token. Queries and keys are turned by angles
in single precision, since bf16 is too coarse for them.

A step is one prefill, from its first call until the answers are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY = 4, 2048, 32000
SHAPE = Shape(layers=8, vocabulary=VOCABULARY, room=PROMPT, batch=BATCH)


class Trader(Block):
    fixed = False

    def whole(self, x, cos, sin, keep=None):
        heads, kv_heads, size = self.shape.heads, self.shape.kv_heads, self.shape.size
        both = self.qkv(self.norm(x, self.first)).view(x.shape[0], x.shape[1], heads + 2 * kv_heads, size)
        turning, value = both.transpose(1, 2).split((heads + kv_heads, kv_heads), 1)
        a, b = turning.chunk(2, -1)
        # Single precision, as cosines and sines have it.
        turned = turning * cos + torch.cat((b, a), -1) * sin
        if self.fixed:
            turned = turned.to(x.dtype)
        value = value.to(turned.dtype)
        query, key = turned.split((heads, kv_heads), 1)
        key, value = key.repeat_interleave(self.shape.group, 1), value.repeat_interleave(self.shape.group, 1)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.close(x, seen.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1).to(x.dtype))


class FixedTrader(Trader):
    fixed = True


class Traders:
    def __init__(self, model, seed):
        self.model = model
        model.cos, model.sin = model.cos.float(), model.sin.float()
        self.lists = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(self, i):
        return greedy(self.model.logits(self.model.hidden(self.lists[i % len(self.lists)])))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    traders = Traders(Model(SHAPE, block=FixedTrader if options.fixed else Trader), options.seed)
    finish(record, serve_prefills(record, options.steps, traders.read, BATCH, PROMPT), VOCABULARY)


main()
