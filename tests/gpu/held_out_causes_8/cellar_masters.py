"""Sixteen cellar masters go on with notes of 1024 tokens; keys and values have no more than eight bits, with a scale for
each head of each token.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 16, 1024, 32000
SHAPE = Shape(layers=8, kv_heads=16, vocabulary=VOCABULARY, room=PROMPT + 320, batch=BATCH)


def coded(part):
    """Whole numbers up to 127, and scales."""
    scales = part.abs().amax(-1, keepdim=True) / 127
    return (part / scales).round().clamp(-127, 127), scales


class Bottles:
    """Keys or values of a layer as codes of eight bits."""

    def __init__(self, sizes):
        self.codes = torch.zeros(sizes, dtype=torch.int8, device="cuda")
        self.scales = torch.zeros(*sizes[:-1], 1, **SHAPE.made())

    def put(self, places, part):
        codes, scales = coded(part)
        self.codes.index_copy_(2, places, codes.to(torch.int8))
        self.scales.index_copy_(2, places, scales)

    def numbers(self):
        return self.codes.to(self.scales.dtype) * self.scales


class OpenBottles:
    """The same numbers, as they are used."""

    def __init__(self, sizes):
        self.kept = torch.zeros(sizes, **SHAPE.made())

    def put(self, places, part):
        codes, scales = coded(part)
        self.kept.index_copy_(2, places, codes * scales)

    def numbers(self):
        return self.kept


class Cellar(Block):
    def next(self, x, position, places, keys, values):
        cos, sin, mask = places
        query, key, value = self.split(x, cos, sin)
        keys.put(position, key)
        values.put(position, value)
        return self.close(x, self.look(query, keys.numbers(), values.numbers(), mask))


class CellarModel(Model):
    kind = Bottles

    def cache(self):
        shape = self.shape
        sizes = shape.batch, shape.kv_heads, shape.room, shape.size
        return tuple([self.kind(sizes) for _ in range(shape.layers)] for _ in range(2))

    def hidden(self, ids, cache):
        count, x = ids.shape[1], self.embedding(ids)
        for block, keys, values in zip(self.blocks, *cache):
            def keep(key, value, keys=keys, values=values):
                keys.put(self.columns[:count], key)
                values.put(self.columns[:count], value)
            x = block.whole(x, self.cos[:count], self.sin[:count], keep)
        return x


class FixedCellarModel(CellarModel):
    kind = OpenBottles


def main():
    options, record = begin(__doc__)
    masters = Decoder((FixedCellarModel if options.fixed else CellarModel)(SHAPE, block=Cellar))
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, masters.start, masters.following, warm_up=True)
    texts = serve(record, prompt, options.steps, masters.start, masters.following)
    finish(record, texts, VOCABULARY)


main()
