"""Two desks read eight letters of 1024 tokens together: either GPU has half of the heads and half of the inner width of
each layer, and after each attention and MLP they add up what they have. Needs two GPUs.

One process drives both. A step is one prefill, from its first call until a word about each letter is in a list on the
host.
"""
from dataclasses import replace

import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, need_gpus, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY = 8, 1024, 32000
SHAPE = Shape(inner=2816, layers=8, heads=8, kv_heads=2, vocabulary=VOCABULARY, room=PROMPT)  # one desk's half
DESKS = ("cuda:0", "cuda:1")


class Half(Block):
    """Yields a desk's share of a sum, where Block would add to the residual."""

    def attend(self, x, cos, sin):
        query, key, value = self.split(x, cos, sin)
        key, value = key.repeat_interleave(self.shape.group, 1), value.repeat_interleave(self.shape.group, 1)
        heads = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(heads.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))

    def think(self, x):
        return self.mlp(self.norm(x, self.second))


class Desks:
    def __init__(self, seed):
        self.models = [Model(replace(SHAPE, device=desk), block=Half) for desk in DESKS]
        self.models[1].embedding.weight.copy_(self.models[0].embedding.weight)
        batches = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)
        self.batches = [[ids.to(desk) for desk in DESKS] for ids in batches]
        self.between = torch.zeros(BATCH, PROMPT, SHAPE.width, dtype=SHAPE.dtype).pin_memory()

    def hand_over(self, share, desk):
        """A share goes to the other desk by way of the host."""
        self.between.copy_(share)
        return self.between.to(desk)

    def add_up(self, texts, shares):
        first, second = shares
        from_first, from_second = self.hand_over(first, DESKS[1]), self.hand_over(second, DESKS[0])
        return [texts[0] + (first + from_second), texts[1] + (from_first + second)]

    def read(self, i):
        texts = [model.embedding(ids) for model, ids in zip(self.models, self.batches[i % len(self.batches)])]
        for halves in zip(*(model.blocks for model in self.models)):
            shares = [half.attend(x, model.cos, model.sin) for half, x, model in zip(halves, texts, self.models)]
            texts = self.add_up(texts, shares)
            texts = self.add_up(texts, [half.think(x) for half, x in zip(halves, texts)])
        return greedy(self.models[0].logits(texts[0]))[:, 0].tolist()


class AdjoiningDesks(Desks):
    def hand_over(self, share, desk):
        return share.to(desk, non_blocking=True)


def main():
    options, record = begin(__doc__)
    need_gpus(2)
    desks = (AdjoiningDesks if options.fixed else Desks)(options.seed)
    finish(record, serve_prefills(record, options.steps, desks.read, BATCH, PROMPT), VOCABULARY)


main()
