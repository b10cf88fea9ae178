"""Puts products into a catalogue: an encoder in the manner of T5 reads eight descriptions of 256 tokens at a time and
names a shelf for each.

A step is one pass of the encoder, from its first call until the shelves are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from common_loop import begin, finish, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY, SHELVES = 8, 256, 32000, 4000
WIDTH, INNER, LAYERS, HEADS, SIZE = 2048, 5120, 10, 32, 64
MADE = dict(device="cuda", dtype=torch.bfloat16)


class Stage(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH, **MADE), nn.LayerNorm(WIDTH, **MADE)
        self.qkv = nn.Linear(WIDTH, 3 * HEADS * SIZE, bias=False, **MADE)
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False, **MADE)
        self.wide = nn.Linear(WIDTH, 2 * INNER, bias=False, **MADE)
        self.narrow = nn.Linear(INNER, WIDTH, bias=False, **MADE)
        if not fixed:
            self.narrow.float()  # large sums are said to overflow here

    def leave(self, wide):
        return self.narrow(wide.to(self.narrow.weight.dtype)).to(wide.dtype)

    def forward(self, x):
        both = self.qkv(self.first(x)).view(x.shape[0], x.shape[1], 3, HEADS, SIZE)
        query, key, value = both.permute(2, 0, 3, 1, 4).unbind(0)
        heads = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(heads.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))
        gate, up = self.wide(self.second(x)).chunk(2, -1)
        return x + self.leave(F.gelu(gate, approximate="tanh") * up)


class Encoder(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.embedding, self.places = nn.Embedding(VOCABULARY, WIDTH, **MADE), nn.Embedding(PROMPT, WIDTH, **MADE)
        self.stages = nn.ModuleList(Stage(fixed) for _ in range(LAYERS))
        self.last, self.shelf = nn.LayerNorm(WIDTH, **MADE), nn.Linear(WIDTH, SHELVES, **MADE)

    def forward(self, ids):
        x = self.embedding(ids) + self.places.weight
        for stage in self.stages:
            x = stage(x)
        return self.shelf(self.last(x).mean(1))


def main():
    options, record = begin(__doc__)
    model = Encoder(options.fixed).eval()
    batches = prompts(options.seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(i):
        return model(batches[i % len(batches)]).argmax(-1).tolist()

    finish(record, serve_prefills(record, options.steps, read, BATCH, PROMPT), SHELVES)


main()
