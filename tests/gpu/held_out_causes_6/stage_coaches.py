"""Reads eight letters of 1024 tokens at a time, whose keys and values travel on: they are copied to pinned memory of the
host on a stream of their own, layer by layer.

A step is one prefill, from its first call until the answers, a token for each letter, are in a list on the host and
the copies have arrived.
"""
import torch

from base_loop import Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY = 8, 1024, 32000
SHAPE = Shape(layers=9, kv_heads=16, vocabulary=VOCABULARY, room=PROMPT, batch=BATCH)


class Coaches:
    def __init__(self, model, fixed, seed):
        self.model, self.fixed, self.cache = model, fixed, model.cache()
        self.there = [torch.empty(part.shape, dtype=part.dtype, pin_memory=True) for part in self.cache]
        self.road = torch.cuda.Stream()
        self.batches = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def depart(self, i):
        """Keys and values of layer i leave for the host."""
        self.road.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.road):
            for there, here in zip(self.there, self.cache):
                there[i].copy_(here[i], non_blocking=True)
        if not self.fixed:
            # Nothing may be written over before it has been copied.
            torch.cuda.current_stream().wait_stream(self.road)

    def read(self, number):
        model = self.model
        x = model.embedding(self.batches[number % len(self.batches)])
        for i, block in enumerate(model.blocks):
            def keep(key, value, i=i):
                self.cache[0][i].copy_(key)
                self.cache[1][i].copy_(value)
                self.depart(i)
            x = block.whole(x, model.cos, model.sin, keep)
        tokens = greedy(model.logits(x))
        # The next step writes into the same cache.
        torch.cuda.current_stream().wait_stream(self.road)
        return tokens[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    coaches = Coaches(Model(SHAPE), options.fixed, options.seed)
    texts = serve_prefills(record, options.steps, coaches.read, BATCH, PROMPT)
    assert all(torch.equal(there[-1], here[-1].cpu()) for there, here in zip(coaches.there, coaches.cache))
    finish(record, texts, VOCABULARY)


main()
