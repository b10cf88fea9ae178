"""Sixteen stalls of a summer fete are described by 512 tokens each, and the prize of each is named by one token.

Eight small things could be done better, and --fixed does them; none of them matters much by itself. A step is one prefill, from
its first call until the prizes are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY = 16, 512, 32000
SHAPE = Shape(layers=12, vocabulary=VOCABULARY, room=PROMPT, batch=BATCH)


class Stall(Block):
    """A block with six small flaws."""

    def whole(self, x, cos, sin, keep=None):
        # 1: copied for safety, though nothing writes to it.
        query, key, value = self.split(x.clone(), cos, sin)
        key, value = key.repeat_interleave(self.shape.group, 1), value.repeat_interleave(self.shape.group, 1)
        # 2: queries scaled by a kernel of their own, which the attention would do on its way.
        heads = F.scaled_dot_product_attention(query * self.shape.size ** -0.5, key, value, is_causal=True, scale=1.0)
        # 3: a strength that is one.
        return self.close(x, heads.transpose(1, 2).reshape(x.shape) * 1.0)

    def close(self, x, heads):
        # 4: to single precision and back.
        x = (x + self.out(heads)).float().to(x.dtype)
        # 5: looked through for numbers that are none.
        return torch.nan_to_num(x + self.mlp(self.norm(x, self.second)))

    def mlp(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        # 6: one half copied before it is used.
        return self.down(F.silu(gate.contiguous()) * up)


class Fete:
    def __init__(self, model, fixed, seed):
        self.model, self.fixed = model, fixed
        self.stored = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)
        self.lists = [ids.tolist() for ids in self.stored]

    def read(self, i):
        i %= len(self.stored)
        # 7: tokens made a tensor again from lists.
        ids = self.stored[i] if self.fixed else torch.tensor(self.lists[i], device="cuda")
        x = self.model.hidden(ids)
        if not self.fixed:
            # 8: all places made three times as long, and longer by nought, before the last is taken.
            x = (x * 3.0) + 0.0
        return greedy(self.model.logits(x))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    fete = Fete(Model(SHAPE, block=Block if options.fixed else Stall), options.fixed, options.seed)
    finish(record, serve_prefills(record, options.steps, fete.read, BATCH, PROMPT), VOCABULARY)


main()
