"""Goes on with eight family chronicles of 16384 tokens each, whose keys and values are kept; a question of 32 is new.

The kept ones are random, the same for the same seed. A step is one decode step, from its first call until the tokens
are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Model, Shape, begin, finish, greedy, prompts, serve

BATCH, KEPT, QUESTION, LONGEST, VOCABULARY = 8, 16384, 32, 304, 32000
SHAPE = Shape(layers=6, heads=32, kv_heads=8, size=64, vocabulary=VOCABULARY, room=KEPT + QUESTION + LONGEST,
              batch=BATCH)


def kept(generator):
    """Random keys or values of all that was written before."""
    return torch.empty(BATCH, SHAPE.kv_heads, KEPT, SHAPE.size, **SHAPE.made()).normal_(generator=generator)


class Pages:
    """One layer's keys and values, as many as there are tokens."""

    def __init__(self):
        self.keys = self.values = None

    def open(self, generator):
        self.keys = self.values = None
        self.keys, self.values = kept(generator), kept(generator)

    def add(self, key, value, start):
        self.keys = torch.cat((self.keys, key), 2)
        self.values = torch.cat((self.values, value), 2)
        return self.keys, self.values


class BoundPages(Pages):
    """The same with room for the longest chronicle."""

    def __init__(self):
        sizes = (BATCH, SHAPE.kv_heads, SHAPE.room, SHAPE.size)
        self.keys, self.values = torch.zeros(sizes, **SHAPE.made()), torch.zeros(sizes, **SHAPE.made())

    def open(self, generator):
        self.keys[:, :, :KEPT] = kept(generator)
        self.values[:, :, :KEPT] = kept(generator)

    def add(self, key, value, start):
        end = start + key.shape[2]
        self.keys[:, :, start:end] = key
        self.values[:, :, start:end] = value
        return self.keys[:, :, :end], self.values[:, :, :end]


class Chronicler:
    def __init__(self, model, pages, seed):
        self.model, self.seed, self.tokens = model, seed, None
        self.books = [pages() for _ in model.blocks]

    def start(self, prompt):
        generator = torch.Generator("cuda").manual_seed(self.seed)
        end = KEPT + QUESTION
        cos, sin = self.model.cos[KEPT:end], self.model.sin[KEPT:end]
        # The queries that share a head of keys stand one after the other, as those of one long question would.
        seen = torch.ones(QUESTION, end, device="cuda", dtype=torch.bool).tril(KEPT).repeat(SHAPE.group, 1)
        x = self.model.embedding(prompt)
        for block, book in zip(self.model.blocks, self.books):
            book.open(generator)
            query, key, value = block.split(x, cos, sin)
            keys, values = book.add(key, value, KEPT)
            query = query.reshape(BATCH, SHAPE.kv_heads, SHAPE.group * QUESTION, SHAPE.size)
            heads = F.scaled_dot_product_attention(query, keys, values, attn_mask=seen)
            heads = heads.reshape(BATCH, SHAPE.heads, QUESTION, SHAPE.size)
            x = block.close(x, heads.transpose(1, 2).reshape(BATCH, QUESTION, -1))
        self.tokens = greedy(self.model.logits(x))
        return self.tokens[:, 0].tolist()

    def following(self, i):
        place = KEPT + QUESTION + i
        cos, sin = self.model.cos[place:place + 1], self.model.sin[place:place + 1]
        x = self.model.embedding(self.tokens)
        for block, book in zip(self.model.blocks, self.books):
            query, key, value = block.split(x, cos, sin)
            keys, values = book.add(key, value, place)
            x = block.close(x, block.look(query, keys, values))
        self.tokens = greedy(self.model.logits(x))
        return self.tokens[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    chronicler = Chronicler(Model(SHAPE), BoundPages if options.fixed else Pages, options.seed)
    prompt = prompts(options.seed, BATCH, QUESTION, VOCABULARY)
    serve(record, prompt, 1, chronicler.start, chronicler.following, warm_up=True)
    texts = serve(record, prompt, options.steps, chronicler.start, chronicler.following)
    finish(record, texts, VOCABULARY)


main()
