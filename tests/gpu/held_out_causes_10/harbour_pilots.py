"""Judges sixteen recordings of harbour pilots at a time, 1024 frames each, and names the ship of each by one token. While the
GPU works, the next frames come from pinned memory on a stream of their own, and Python writes the log of the step before.

A step is one prefill, from its first call until the names are in a list on the host. --fixed is accepted and changes nothing.
"""
import json
import re
import zlib

import torch

from base_loop import Model, Shape, begin, finish, greedy, serve_prefills

BATCH, FRAMES, VOCABULARY, STORED, PHRASES = 16, 1024, 32000, 3, 400
SHAPE = Shape(layers=12, vocabulary=VOCABULARY, room=FRAMES, batch=BATCH)


def spelled(number):
    letters = ""
    while number:
        number, letter = divmod(number, 26)
        letters += chr(97 + letter)
    return letters


class Pilots:
    def __init__(self, model):
        self.model, self.copies, self.names, self.logged = model, torch.cuda.Stream(), [], 0
        sizes = BATCH, FRAMES, SHAPE.width
        self.stored = [torch.randn(sizes, **SHAPE.made()).cpu().pin_memory() for _ in range(STORED)]
        self.places = [torch.zeros(sizes, **SHAPE.made()) for _ in range(2)]
        self.there = [torch.cuda.Event() for _ in self.places]
        torch.cuda.synchronize()
        self.fetch(0)

    def fetch(self, i):
        """The frames of step i, to the place that step i - 2 has done with."""
        with torch.cuda.stream(self.copies):
            self.places[i % 2].copy_(self.stored[i % STORED], non_blocking=True)
            self.there[i % 2].record()

    def log(self):
        for pilot, name in enumerate(self.names):
            phrases = " ".join(spelled(name * 7919 + phrase) for phrase in range(PHRASES))
            line = json.dumps({"pilot": pilot, "phrases": re.findall("[a-z]{3,}", phrases)})
            self.logged += len(zlib.compress(line.encode(), 1))

    def read(self, i):
        model = self.model
        torch.cuda.current_stream().wait_event(self.there[i % 2])
        x = self.places[i % 2]
        for block in model.blocks:
            x = block.whole(x, model.cos, model.sin)
        chosen = greedy(model.logits(x))
        self.fetch(i + 1)
        self.log()
        self.names = chosen[:, 0].tolist()
        return self.names


def main():
    options, record = begin(__doc__)
    pilots = Pilots(Model(SHAPE))
    texts = serve_prefills(record, options.steps, pilots.read, BATCH, FRAMES)
    print(f"logged {pilots.logged} bytes")
    finish(record, texts, VOCABULARY)


main()
