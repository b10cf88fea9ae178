"""Indexes letters: four of 640 tokens at a time get a keyword each, and a table of times tells how the work went.

A step is one prefill, from its first call until the keywords are in a list on the host.
"""
import time

import torch

from shared_loop import begin, finish, prompts, serve_prefills
from shared_model import Model, Sizes, greedy

BATCH, PROMPT, VOCABULARY = 4, 640, 32000


class Indexer:
    def __init__(self, model, fixed):
        self.model, self.fixed = model, fixed
        self.times = [0.0] * len(model.layers)

    def layers(self, ids):
        cos, sin = self.model.cos[:PROMPT], self.model.sin[:PROMPT]
        x = self.model.embedding(ids)
        for i, layer in enumerate(self.model.layers):
            before = time.perf_counter()
            x = layer.prefill(x, cos, sin)
            if not self.fixed:
                torch.cuda.synchronize()
            self.times[i] += time.perf_counter() - before
        return x

    def read(self, ids):
        return greedy(self.model.logits(self.layers(ids)))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    model = Model(Sizes(length=PROMPT))
    indexer = Indexer(model, options.fixed)
    batches = prompts(options.seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)
    texts = serve_prefills(record, batches, options.steps, indexer.read)
    assert all(spent > 0 for spent in indexer.times)
    finish(record, texts, VOCABULARY)


main()
