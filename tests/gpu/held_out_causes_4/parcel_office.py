"""Answers sixty-four questions about parcels at once; keys and values are kept in blocks of sixteen tokens, of which a
scheduler on the host gives a text a new one when it needs it.

The decode step is a CUDA graph that finds the blocks by a table. A step is one decode step, from its first call until
the tokens are in a list on the host.
"""
import random

import torch

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, BLOCK, MOST = 64, 64, 32000, 16, 24
ROOM = BLOCK * MOST
SHAPE = Shape(layers=8, kv_heads=2, vocabulary=VOCABULARY, room=ROOM, batch=BATCH)


class Office(Decoder):
    def __init__(self, model, seed):
        sizes = (SHAPE.layers, BATCH * MOST, BLOCK, SHAPE.kv_heads, SHAPE.size)
        self.keys, self.values = torch.zeros(sizes, **SHAPE.made()), torch.zeros(sizes, **SHAPE.made())
        self.order = list(range(BATCH * MOST))
        random.Random(seed).shuffle(self.order)
        self.free, self.blocks = [], []
        # For each text its blocks, where its newest token goes, and at what place of the text that token stands.
        self.plan = torch.zeros(BATCH, MOST + 2, device="cuda", dtype=torch.long)
        super().__init__(model)

    def cut(self):
        return self.plan[:, :MOST], self.plan[:, MOST], self.plan[:, MOST + 1]

    def step(self):
        model = self.model
        table, slot, place = [part.contiguous() for part in self.cut()]
        cos, sin = [part[place].view(BATCH, 1, 1, -1) for part in (model.cos, model.sin)]
        mask = torch.zeros(BATCH, 1, 1, ROOM, **SHAPE.made())
        mask = mask.masked_fill(model.columns > place.view(BATCH, 1, 1, 1), float("-inf"))
        mask = mask.expand(-1, -1, SHAPE.group, -1)
        x = model.embedding(self.tokens)
        for block, keys, values in zip(model.blocks, self.keys, self.values):
            query, key, value = block.split(x, cos, sin)
            found = []
            for pool, new in ((keys, key), (values, value)):
                pool.view(-1, SHAPE.kv_heads, SHAPE.size).index_copy_(0, slot, new[:, :, 0])
                found.append(pool[table].view(BATCH, ROOM, SHAPE.kv_heads, SHAPE.size).transpose(1, 2))
            x = block.close(x, block.look(query, *found, mask))
        self.tokens.copy_(greedy(model.logits(x)))

    def send(self, place):
        """What the scheduler knows goes to the GPU, text by text."""
        table, slots, places = self.cut()
        for row, blocks in enumerate(self.blocks):
            slot = blocks[place // BLOCK] * BLOCK + place % BLOCK
            table[row, :len(blocks)].copy_(torch.tensor(blocks))
            slots[row].copy_(torch.tensor(slot))
            places[row].copy_(torch.tensor(place))

    def schedule(self, place):
        """Sees to it that each text has a block for the token at `place`."""
        if place // BLOCK == len(self.blocks[0]):
            for blocks in self.blocks:
                blocks.append(self.free.pop())

    def start(self, prompt):
        model, count = self.model, PROMPT // BLOCK
        self.free = self.order.copy()
        self.blocks = [[self.free.pop() for _ in range(count)] for _ in range(BATCH)]
        self.plan.zero_()
        self.send(0)
        table = self.plan[:, :count].contiguous()
        x = model.embedding(prompt)
        for block, keys, values in zip(model.blocks, self.keys, self.values):
            def keep(key, value, keys=keys, values=values):
                for pool, new in ((keys, key), (values, value)):
                    pool[table] = new.transpose(1, 2).reshape(BATCH, count, BLOCK, SHAPE.kv_heads, SHAPE.size)
            x = block.whole(x, model.cos[:PROMPT], model.sin[:PROMPT], keep)
        self.tokens.copy_(greedy(model.logits(x)))
        return self.words()

    def following(self, i):
        self.schedule(PROMPT + i)
        self.send(PROMPT + i)
        return super().following(i)


class OneBag(Office):
    def __init__(self, model, seed):
        self.bag = torch.zeros(BATCH, MOST + 2, dtype=torch.long).pin_memory()
        super().__init__(model, seed)

    def send(self, place):
        """All of it at once, from pinned memory."""
        rows = []
        for blocks in self.blocks:
            slot = blocks[place // BLOCK] * BLOCK + place % BLOCK
            rows.append(blocks + [0] * (MOST - len(blocks)) + [slot, place])
        self.bag.copy_(torch.tensor(rows))
        self.plan.copy_(self.bag, non_blocking=True)


def main():
    options, record = begin(__doc__)
    office = (OneBag if options.fixed else Office)(Model(SHAPE), options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, office.start, office.following, warm_up=True)
    texts = serve(record, prompt, options.steps, office.start, office.following)
    finish(record, texts, VOCABULARY)


main()
