"""Captions for sixty-four listeners of one play: each sees the last 1024 tokens, the first 1024 are the same for all.

Keys are turned by their places before they are kept, so that their order in the window does not matter. A step is one
decode step, from its first call until the tokens are in a list on the host.
"""
import torch

from common_loop import begin, finish, prompts, serve
from common_model import Model, Shape

BATCH, WINDOW, LONGEST, VOCABULARY = 64, 1024, 304, 32000
SHAPE = Shape(layers=8, kv_heads=16, vocabulary=VOCABULARY, room=WINDOW + LONGEST, batch=BATCH)


class Sliding:
    """One layer's window, its oldest entry first."""

    def fill(self, key, value):
        self.keys, self.values = key.repeat(BATCH, 1, 1, 1), value.repeat(BATCH, 1, 1, 1)

    def push(self, key, value, count):
        self.keys = torch.cat((self.keys[:, :, 1:], key), 2)
        self.values = torch.cat((self.values[:, :, 1:], value), 2)


class Ring(Sliding):
    """The same as a ring: the newest entry takes the place of the oldest."""

    def push(self, key, value, count):
        place = count % WINDOW
        self.keys[:, :, place:place + 1] = key
        self.values[:, :, place:place + 1] = value


class Captions:
    def __init__(self, model, window):
        self.model, self.tokens = model, None
        self.windows = [window() for _ in model.blocks]

    def start(self, prompt):
        x = self.model.embedding(prompt)
        cos, sin = self.model.cos[:WINDOW], self.model.sin[:WINDOW]
        for block, window in zip(self.model.blocks, self.windows):
            x = block.whole(x, cos, sin, window.fill)
        self.tokens = self.model.logits(x).topk(BATCH, -1).indices.view(BATCH, 1)
        return self.tokens[:, 0].tolist()

    def following(self, i):
        count = WINDOW + i
        cos, sin = self.model.cos[count:count + 1], self.model.sin[count:count + 1]
        x = self.model.embedding(self.tokens)
        for block, window in zip(self.model.blocks, self.windows):
            query, key, value = block.split(x, cos, sin)
            window.push(key, value, count)
            x = block.close(x, block.look(query, window.keys, window.values))
        self.tokens = self.model.logits(x).argmax(-1, keepdim=True)
        return self.tokens[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    captions = Captions(Model(SHAPE), Ring if options.fixed else Sliding)
    prompt = prompts(options.seed, 1, WINDOW, VOCABULARY)
    serve(record, prompt, 1, captions.start, captions.following, warm_up=True)
    texts = serve(record, prompt, options.steps, captions.start, captions.following)
    finish(record, texts, VOCABULARY)


main()
