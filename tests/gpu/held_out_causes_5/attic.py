"""Continues thirty-two family stories; the keys and values of the last three layers are kept on the host, in the attic,
to save memory of the GPU.

They are in pinned memory and come to the GPU before a layer needs them, and new ones are taken up again. Nothing is
captured. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, ABOVE = 32, 64, 32000, 3
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Shelf:
    """Keys or values of one layer on the GPU, (room, batch, kv_heads, size)."""

    def __init__(self):
        self.here = torch.zeros(SHAPE.room, BATCH, SHAPE.kv_heads, SHAPE.size, **SHAPE.made())

    def fetch(self):
        return self.here

    def put(self, place, new):
        """`new` is (count, batch, kv_heads, size) and goes to `place` and the ones behind it."""
        self.here[place:place + len(new)].copy_(new)


class HighShelf(Shelf):
    """The same on the host; all such shelves use one place on the GPU, in the order of its stream."""

    def __init__(self, guest):
        self.here = guest
        self.above = torch.zeros(guest.shape, dtype=SHAPE.dtype).pin_memory()

    def fetch(self):
        self.here.copy_(self.above, non_blocking=True)
        return self.here

    def put(self, place, new):
        super().put(place, new)
        self.above[place:place + len(new)].copy_(new.contiguous(), non_blocking=True)


class Stories(Decoder):
    def __init__(self, model, fixed):
        guests = Shelf().here, Shelf().here
        self.shelves = []
        for i in range(SHAPE.layers):
            high = not fixed and i >= SHAPE.layers - ABOVE
            self.shelves.append([HighShelf(guest) if high else Shelf() for guest in guests])
        self.place = 0
        super().__init__(model, greedy, graphed=False)
        self.cache = None  # the shelves take its place

    def step(self):
        model, place = self.model, self.place
        cos, sin, mask = model.places(self.position)
        x = model.embedding(self.tokens)
        for block, shelves in zip(model.blocks, self.shelves):
            query, key, value = block.split(x, cos, sin)
            kept = []
            for shelf, new in zip(shelves, (key, value)):
                found = shelf.fetch()
                shelf.put(place, new.permute(2, 0, 1, 3))
                kept.append(found.permute(1, 2, 0, 3))
            x = block.close(x, block.look(query, *kept, mask))
        self.tokens.copy_(greedy(model.logits(x)))
        self.position.add_(1)
        self.place += 1

    def start(self, prompt):
        model = self.model
        x = model.embedding(prompt)
        for block, shelves in zip(model.blocks, self.shelves):
            def keep(key, value, shelves=shelves):
                for shelf, new in zip(shelves, (key, value)):
                    shelf.put(0, new.permute(2, 0, 1, 3))
            x = block.whole(x, model.cos[:PROMPT], model.sin[:PROMPT], keep)
        self.tokens.copy_(greedy(model.logits(x)))
        self.position.fill_(PROMPT)
        self.place = PROMPT
        return self.words()


def main():
    options, record = begin(__doc__)
    stories = Stories(Model(SHAPE), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, stories.start, stories.following, warm_up=True)
    texts = serve(record, prompt, options.steps, stories.start, stories.following)
    finish(record, texts, VOCABULARY)


main()
