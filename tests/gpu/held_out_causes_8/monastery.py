"""Sixteen monks go on with chronicles of 512 tokens. Of each token the cache has 512 numbers a layer, from which a matrix
makes the keys and values of all heads; the model is not given places.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY, LATENT = 16, 512, 32000, 512
SHAPE = Shape(layers=10, kv_heads=16, vocabulary=VOCABULARY, room=PROMPT + 320, batch=BATCH)


class Monk(Block):
    def __init__(self, shape):
        super().__init__(shape)
        self.qkv = None
        self.ask = shape.linear(shape.width, shape.heads * shape.size)
        self.low = shape.linear(shape.width, LATENT)
        self.high = shape.linear(LATENT, 2 * shape.heads * shape.size)

    def split(self, x):
        """Queries, (batch, heads, count, size), and what the cache has, (batch, 1, count, LATENT)."""
        x = self.norm(x, self.first)
        query = self.ask(x).view(x.shape[0], x.shape[1], self.shape.heads, self.shape.size).transpose(1, 2)
        return query, F.layer_norm(self.low(x), (LATENT,)).unsqueeze(1)

    def raised(self, low):
        """Keys and values of all heads."""
        both = self.high(low[:, 0]).view(low.shape[0], low.shape[2], 2 * self.shape.heads, self.shape.size)
        return both.transpose(1, 2).chunk(2, 1)

    def whole(self, x, cos, sin, keep=None):
        query, low = self.split(x)
        keep(low, low)
        heads = F.scaled_dot_product_attention(query, *self.raised(low), is_causal=True)
        return self.close(x, heads.transpose(1, 2).reshape(x.shape))

    def remember(self, query, cache, mask):
        keys, values = self.raised(cache)
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)

    def next(self, x, position, places, cache, _):
        query, low = self.split(x)
        cache.index_copy_(2, position, low)
        return self.close(x, self.remember(query, cache, places[2]).reshape(x.shape))


class FixedMonk(Monk):
    def remember(self, query, cache, mask):
        """Queries go down to the numbers of the cache, and what comes of them goes up."""
        shape = self.shape
        key, value = self.high.weight.view(2, shape.heads, shape.size, LATENT)
        cache = cache[:, 0]
        # (heads, batch, LATENT), (batch, heads, LATENT) and (batch, heads, places)
        asked = torch.bmm(query[:, :, 0].transpose(0, 1), key).transpose(0, 1)
        points = torch.bmm(asked, cache.transpose(1, 2)) * shape.size ** -0.5 + mask[0]
        found = torch.bmm(points.softmax(-1, dtype=torch.float32).to(cache.dtype), cache)
        return torch.bmm(found.transpose(0, 1), value.transpose(1, 2)).transpose(0, 1)


class Monastery(Model):
    def cache(self):
        shape = self.shape
        cache = torch.zeros(shape.layers, shape.batch, 1, shape.room, LATENT, **shape.made())
        return cache, cache


def main():
    options, record = begin(__doc__)
    monks = Decoder(Monastery(SHAPE, block=FixedMonk if options.fixed else Monk))
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, monks.start, monks.following, warm_up=True)
    texts = serve(record, prompt, options.steps, monks.start, monks.following)
    finish(record, texts, VOCABULARY)


main()
