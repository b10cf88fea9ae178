"""Writes eight columns of a paper at once, each layer a CUDA graph of its own, and keeps a table of times.

A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import time

import torch

from shared_loop import begin, finish, prompts, serve
from shared_model import Model, Sizes, greedy, replayed

BATCH, PROMPT = 8, 128


class Columns:
    def __init__(self, model, fixed):
        self.model, self.fixed = model, fixed
        self.tokens = torch.zeros(BATCH, 1, device="cuda", dtype=torch.long)
        self.position = torch.zeros(1, device="cuda", dtype=torch.long)
        self.x = torch.zeros(BATCH, 1, model.sizes.width, device="cuda", dtype=model.sizes.dtype)
        self.known = [part.clone() for part in model.places(self.position)]
        self.first = replayed(self.look_up)
        self.layers = [replayed(lambda layer=layer: self.pass_through(layer)) for layer in model.layers]
        self.last = replayed(self.choose)
        self.times = [0.0] * len(self.layers)

    def look_up(self):
        for kept, part in zip(self.known, self.model.places(self.position)):
            kept.copy_(part)
        self.x.copy_(self.model.embedding(self.tokens))

    def pass_through(self, layer):
        self.x.copy_(layer.decode(self.x, self.position, *self.known))

    def choose(self):
        self.tokens.copy_(greedy(self.model.logits(self.x)))
        self.position.add_(1)

    def run_layers(self):
        for i, layer in enumerate(self.layers):
            before = time.perf_counter()
            layer()
            if not self.fixed:
                torch.cuda.synchronize()
            self.times[i] += time.perf_counter() - before

    def start(self, prompt):
        self.tokens.copy_(greedy(self.model.prefill(prompt)))
        self.position.fill_(PROMPT)
        return self.tokens[:, 0].tolist()

    def following(self, i):
        self.first()
        self.run_layers()
        self.last()
        return self.tokens[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    model = Model(Sizes(layers=20, batch=BATCH))
    columns = Columns(model, options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, model.sizes.vocabulary)
    serve(record, prompt, 1, columns.start, columns.following, warm_up=True)
    texts = serve(record, prompt, options.steps, columns.start, columns.following)
    assert all(spent > 0 for spent in columns.times)
    finish(record, texts, model.sizes.vocabulary)


main()
