"""Tells two visitors about a painting each; every second layer looks at the painting by a cross attention of its own,
as in Llama 3.2 with pictures.

The painting goes through an encoder once, before the question is read. A step is one decode step, from its first call
until the tokens are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, greedy, prompts, serve
from encoder import Encoder

BATCH, PROMPT, VOCABULARY, PATCHES, PIXELS = 2, 64, 32000, 576, 14 * 14 * 3
SHAPE = Shape(width=1536, inner=4096, layers=20, heads=12, kv_heads=4, vocabulary=VOCABULARY, batch=BATCH)
EYE_LAYERS, EYE_HEADS = 8, 24


class Gaze(nn.Module):
    """Cross attention to the painting, added through gates."""

    def __init__(self):
        super().__init__()
        self.before, self.between = [nn.Parameter(torch.ones(SHAPE.width, **SHAPE.made())) for _ in range(2)]
        self.query = SHAPE.linear(SHAPE.width, SHAPE.heads * SHAPE.size)
        self.key_value = SHAPE.linear(SHAPE.width, 2 * SHAPE.kv_heads * SHAPE.size)
        self.out = SHAPE.linear(SHAPE.heads * SHAPE.size, SHAPE.width)
        self.for_query, self.for_key = [nn.LayerNorm(SHAPE.size, **SHAPE.made()) for _ in range(2)]
        self.wide, self.narrow = SHAPE.linear(SHAPE.width, SHAPE.width), SHAPE.linear(SHAPE.width, SHAPE.width)
        self.gates = nn.Parameter(torch.full((2,), 0.5, **SHAPE.made()))
        self.keys = torch.zeros(BATCH, SHAPE.kv_heads, PATCHES, SHAPE.size, **SHAPE.made())
        self.values = torch.zeros_like(self.keys)

    def take_in(self, painting):
        both = self.key_value(painting).view(BATCH, PATCHES, 2, SHAPE.kv_heads, SHAPE.size)
        key, value = both.permute(2, 0, 3, 1, 4).unbind(0)
        self.keys.copy_(self.for_key(key))
        self.values.copy_(value)

    def forward(self, x):
        count = x.shape[1]
        query = self.query(F.layer_norm(x, self.before.shape, self.before))
        query = self.for_query(query.view(BATCH, count, SHAPE.heads, SHAPE.size)).transpose(1, 2)
        query = query.reshape(BATCH, SHAPE.kv_heads, SHAPE.group * count, SHAPE.size)
        heads = F.scaled_dot_product_attention(query, self.keys, self.values)
        heads = heads.reshape(BATCH, SHAPE.heads, count, SHAPE.size).transpose(1, 2).reshape(BATCH, count, -1)
        first, second = self.gates.tanh().unbind(0)
        x = x + first * self.out(heads)
        wide = F.gelu(self.wide(F.layer_norm(x, self.between.shape, self.between)), approximate="tanh")
        return x + second * self.narrow(wide)


class Talk(Block):
    """A layer that looks up at the painting before anything else, if it has a gaze."""

    def __init__(self, shape):
        super().__init__(shape)
        self.gaze = None

    def whole(self, x, cos, sin, keep=None):
        return super().whole(self.gaze(x) if self.gaze else x, cos, sin, keep)

    def next(self, x, position, places, keys, values):
        return super().next(self.gaze(x) if self.gaze else x, position, places, keys, values)


class Guide(Decoder):
    def __init__(self, model, graphed, seed):
        self.eye = Encoder(SHAPE, PIXELS, PATCHES, EYE_LAYERS, EYE_HEADS).eval()
        self.gazes = [Gaze().eval() for _ in model.blocks[::2]]
        for block, gaze in zip(model.blocks[::2], self.gazes):
            block.gaze = gaze
        generator = torch.Generator().manual_seed(seed)
        self.paintings = torch.rand(BATCH, PATCHES, PIXELS, generator=generator).to("cuda", SHAPE.dtype)
        super().__init__(model, greedy, graphed)

    def start(self, prompt):
        seen = self.eye(self.paintings)
        for gaze in self.gazes:
            gaze.take_in(seen)
        return super().start(prompt)


def main():
    options, record = begin(__doc__)
    guide = Guide(Model(SHAPE, block=Talk), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, guide.start, guide.following, warm_up=True)
    texts = serve(record, prompt, options.steps, guide.start, guide.following)
    finish(record, texts, VOCABULARY)


main()
