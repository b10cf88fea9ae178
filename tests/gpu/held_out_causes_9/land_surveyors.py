"""Reads four deeds of 4096 tokens and names the owner of each by one token.

A step is one prefill, from its first call until the names are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY = 4, 4096, 32000
SHAPE = Shape(layers=8, vocabulary=VOCABULARY, room=PROMPT, batch=BATCH)


class Surveyor(Block):
    mask = None  # what each token may see, where it is not told otherwise

    def whole(self, x, cos, sin, keep=None):
        query, key, value = self.split(x, cos, sin)
        key, value = key.repeat_interleave(self.shape.group, 1), value.repeat_interleave(self.shape.group, 1)
        heads = F.scaled_dot_product_attention(query, key, value, attn_mask=self.mask, is_causal=self.mask is None)
        return self.close(x, heads.transpose(1, 2).reshape(x.shape))


class Deeds:
    def __init__(self, model, fixed, seed):
        self.model = model
        self.stored = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)
        if not fixed:
            Surveyor.mask = torch.full((PROMPT, PROMPT), float("-inf"), **SHAPE.made()).triu(1)

    def read(self, i):
        return greedy(self.model.logits(self.model.hidden(self.stored[i % len(self.stored)])))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    deeds = Deeds(Model(SHAPE, block=Surveyor), options.fixed, options.seed)
    finish(record, serve_prefills(record, options.steps, deeds.read, BATCH, PROMPT), VOCABULARY)


main()
