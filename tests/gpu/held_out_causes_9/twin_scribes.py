"""Thirty-two scribes go on with scrolls of 640 tokens, with words of a large vocabulary and 64 signs that were added to it
later. A step can be taken back.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, WORDS, SIGNS = 32, 640, 96000, 64
SHAPE = Shape(layers=8, vocabulary=WORDS + SIGNS, room=PROMPT + 320, batch=BATCH)


class Scribe(Model):
    def __init__(self, shape, fixed):
        super().__init__(shape)
        self.head = shape.linear(shape.width, WORDS)
        self.signs = nn.Parameter(torch.randn(SIGNS, shape.width, **shape.made()) / shape.width ** 0.5)
        self.joined = self.join() if fixed else None

    def join(self):
        return torch.cat((self.head.weight, self.signs))

    def logits(self, x):
        last = self.blocks[0].norm(x[:, -1], self.last)
        return F.linear(last, self.join() if self.joined is None else self.joined)


class Scribes(Decoder):
    def __init__(self, model, fixed):
        super().__init__(model)
        self.safe = None if fixed else model.cache()
        self.safe_position, self.safe_tokens = self.position.clone(), self.tokens.clone()

    def save(self):
        self.safe_position.copy_(self.position)
        self.safe_tokens.copy_(self.tokens)
        if self.safe is not None:
            for safe, cache in zip(self.safe, self.cache):
                safe.copy_(cache)

    def undo(self):
        """What stands behind the position is written again before it is read."""
        self.position.copy_(self.safe_position)
        self.tokens.copy_(self.safe_tokens)
        if self.safe is not None:
            for safe, cache in zip(self.safe, self.cache):
                cache.copy_(safe)

    def following(self, i):
        self.save()
        return super().following(i)


def main():
    options, record = begin(__doc__)
    scribes = Scribes(Scribe(SHAPE, options.fixed), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, WORDS)
    serve(record, prompt, 1, scribes.start, scribes.following, warm_up=True)
    texts = serve(record, prompt, options.steps, scribes.start, scribes.following)
    finish(record, texts, WORDS + SIGNS)


main()
