"""Forty-eight stallholders at a jumble sale call out what they have; a board shows after each step what is called most.

Eight small things could be done better, and --fixed does them; none of them matters much by itself. The steps are CUDA
graphs. A step is one decode step, from its first call until the tokens are in a list on the host and the board is written.
"""
from collections import Counter

import torch
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, LARGEST = 48, 64, 32000, 60000.0
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Stallholder(Block):
    """A block with five small flaws."""

    def __init__(self, shape):
        super().__init__(shape)
        self.nothing = torch.zeros(shape.width, **shape.made())

    def close(self, x, heads):
        # 1: what is added has only zeros.
        x = x + (self.out(heads) + self.nothing)
        # 2: cut to the range of another type.
        return (x + self.mlp(self.norm(x, self.second))).clamp(-LARGEST, LARGEST)

    def mlp(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        # 3: one half copied before it is used.
        return self.down(F.silu(gate.contiguous()) * up)

    def split(self, x, cos, sin):
        query, key, value = super().split(x, cos, sin)
        # 4: keys and values put together and taken apart again.
        key, value = torch.stack((key, value)).unbind()
        return query, key, value

    def next(self, x, position, places, keys, values):
        # 5: the place becomes a shorter number and a longer one again.
        return super().next(x, position.int().long(), places, keys, values)


def tempered(logits):
    # 6: divided by a temperature of one.
    return greedy(logits.float() / 1.0)


class Sale(Decoder):
    def __init__(self, model, fixed):
        self.fixed, self.called, self.board = fixed, [], ""
        super().__init__(model, greedy if fixed else tempered)

    def most(self, tokens):
        return ", ".join(f"{token:05d} ({count})" for token, count in Counter(tokens).most_common(6))

    def words(self):
        if not self.fixed:
            # 7: waits before the copy is asked for, which waits as well.
            torch.cuda.synchronize()
        tokens = super().words()
        if self.fixed:
            self.called = tokens
        else:
            # 8: the board is written in each step rather than at the end.
            self.board = self.most(tokens)
        return tokens


def main():
    options, record = begin(__doc__)
    sale = Sale(Model(SHAPE, block=Block if options.fixed else Stallholder), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, sale.start, sale.following, warm_up=True)
    texts = serve(record, prompt, options.steps, sale.start, sale.following)
    print(f"called most at the end: {sale.board or sale.most(sale.called)}")
    finish(record, texts, VOCABULARY)


main()
