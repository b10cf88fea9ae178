"""Writes down eight radio talks with a model in the manner of Whisper: an encoder takes in 1500 frames of each, and
each layer of the decoder looks at what it made of them by a cross attention.

The decode step is a CUDA graph. A step is one decode step, from its first call until the tokens are in a list on the
host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve
from encoder import Encoder

BATCH, PROMPT, FRAMES, BANDS, VOCABULARY, EAR_LAYERS = 8, 4, 1500, 128, 51968, 4
SHAPE = Shape(width=1280, inner=3456, layers=12, heads=20, kv_heads=20, size=64, vocabulary=VOCABULARY, batch=BATCH)


class Scribe(Block):
    """A layer of the decoder with cross attention after its own."""

    def __init__(self, shape):
        super().__init__(shape)
        self.third = nn.Parameter(torch.ones(shape.width, **shape.made()))
        self.query, self.cross_out = shape.linear(shape.width, shape.width), shape.linear(shape.width, shape.width)
        self.key_value = shape.linear(shape.width, 2 * shape.width)
        self.heard = None  # what the encoder made of the talks, the same tensor for all layers

    def hear(self):
        """Makes ready what the encoder has put in `heard`."""

    def sound(self):
        """Keys and values of all frames, side by side."""
        return self.key_value(self.heard)

    def close(self, x, heads):
        x = x + self.out(heads)
        query = self.query(self.norm(x, self.third)).view(BATCH, x.shape[1], SHAPE.heads, SHAPE.size).transpose(1, 2)
        both = self.sound().view(BATCH, FRAMES, 2, SHAPE.heads, SHAPE.size)
        key, value = both.permute(2, 0, 3, 1, 4).unbind(0)
        found = F.scaled_dot_product_attention(query, key, value)
        x = x + self.cross_out(found.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norm(x, self.second))


class MindfulScribe(Scribe):
    """Keeps them for as long as a talk lasts."""

    def __init__(self, shape):
        super().__init__(shape)
        self.minded = torch.zeros(BATCH, FRAMES, 2 * shape.width, **shape.made())

    def hear(self):
        self.minded.copy_(self.key_value(self.heard))

    def sound(self):
        return self.minded


class Radio(Decoder):
    def __init__(self, model, seed):
        self.ear = Encoder(SHAPE, BANDS, FRAMES, EAR_LAYERS, SHAPE.heads).eval()
        self.heard = torch.zeros(BATCH, FRAMES, SHAPE.width, **SHAPE.made())
        for block in model.blocks:
            block.heard = self.heard
        generator = torch.Generator().manual_seed(seed)
        self.talks = torch.rand(BATCH, FRAMES, BANDS, generator=generator).to("cuda", SHAPE.dtype)
        super().__init__(model)

    def start(self, prompt):
        self.heard.copy_(self.ear(self.talks))
        for block in self.model.blocks:
            block.hear()
        return super().start(prompt)


def main():
    options, record = begin(__doc__)
    radio = Radio(Model(SHAPE, block=MindfulScribe if options.fixed else Scribe), options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, radio.start, radio.following, warm_up=True)
    texts = serve(record, prompt, options.steps, radio.start, radio.following)
    finish(record, texts, VOCABULARY)


main()
