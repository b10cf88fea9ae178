"""Only the neurons that matter: in each layer a predictor says which, the host learns how many, and only their weights are read.

A step is one pass through the model and the draw of three tokens, until an event behind these, copied to pinned memory, has been
waited for: a prefill step takes in three prompts of one length with all neurons, a decode step waits in each layer for
`nonzero()`, then in each text's draw for `unique()` (the words that it has used), for `nonzero()` (the words that may come) and
for a choice by a boolean mask. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments
from parts import MADE, SIZE, begun, in_batches, on_gpu, served, tables, turned

VOCABULARY, LENGTH, BATCH = 32000, 512, 3
WIDTH, INNER, RANK, LAYERS, HEADS = 1792, 7168, 256, 22, 14
LIMIT, PENALTY, LEAST = 1.3, 0.7, 0.05  # of a neuron's score; on words used; of the likeliest word's chance
LENGTHS = (110, 260, 72, 180, 340)  # of prompts, by turns


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.guess = nn.Sequential(nn.Linear(WIDTH, RANK, bias=False), nn.Linear(RANK, INNER, bias=False))
        self.up, self.down = (nn.Parameter(torch.empty(INNER, WIDTH)) for _ in range(2))
        self.keys, self.values = (torch.zeros(BATCH, HEADS, LENGTH, SIZE, **MADE) for _ in range(2))

    def attend(self, x, start, cos, sin, hidden):
        count = x.shape[1]
        end = start + count
        q, k, v = self.qkv(x).view(BATCH, count, 3 * HEADS, SIZE).transpose(1, 2).split(HEADS, 1)
        self.keys[:, :, start:end] = turned(k, cos, sin)
        self.values[:, :, start:end] = v
        scores = (turned(q, cos, sin) @ self.keys[:, :, :end].transpose(2, 3)).float() * SIZE ** -0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        heads = scores.softmax(-1).to(x.dtype) @ self.values[:, :, :end]
        return self.out(heads.transpose(1, 2).reshape(BATCH, count, WIDTH))

    def forward(self, x, start, cos, sin, hidden, used):
        x = x + self.attend(self.first(x), start, cos, sin, hidden)
        h, up, down = self.second(x), self.up, self.down
        if hidden is None:
            active = torch.nonzero((self.guess(h) > LIMIT).flatten(0, 1).any(0)).flatten()
            used.append(active.shape[0])
            up, down = up.index_select(0, active), down.index_select(0, active)
        return x + F.relu(F.linear(h, up)) @ down


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(VOCABULARY, WIDTH), nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        for layer in self.layers:
            for matrix, columns in ((layer.up, WIDTH), (layer.down, INNER), (layer.guess[0].weight, WIDTH),
                                    (layer.guess[1].weight, RANK)):
                nn.init.normal_(matrix, std=columns ** -0.5)

    def forward(self, ids, start, cos, sin, hidden, used):
        """The logits behind the last of `ids`, the first of which stands at `start`. `used` gets how many neurons were."""
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, start, cos, sin, hidden, used)
        return self.head(self.norm(x[:, -1])).float()


class Engine:
    def __init__(self):
        self.model = on_gpu(Model)
        self.cos, self.sin = tables(LENGTH, SIZE)
        self.columns = torch.arange(LENGTH, device="cuda")
        self.texts = torch.zeros(BATCH, LENGTH, dtype=torch.int64, device="cuda")
        self.fetched = torch.zeros(BATCH, dtype=torch.int64, pin_memory=True)
        self.done, self.used = torch.cuda.Event(), []

    def word(self, start, end):
        """Draws a token for each text, whose places from `start` to `end` are new."""
        columns = self.columns[:end]
        hidden = columns > self.columns[start:end, None] if end - start > 1 else None
        logits = self.model(self.texts[:, start:end], start, self.cos[start:end], self.sin[start:end], hidden, self.used)
        self.last = logits
        for i in range(BATCH):
            words = torch.unique(self.texts[i, :end])
            row = logits[i].index_add(0, words, torch.full_like(words, -PENALTY, dtype=torch.float32))
            chances = row.softmax(-1)
            likely = chances >= LEAST * chances.max()
            left = chances[likely]
            chosen = torch.nonzero(likely).flatten().index_select(0, torch.multinomial(left, 1))
            self.texts[i, end:end + 1].copy_(chosen)
        self.count = end
        self.fetched.copy_(self.texts[:, end], non_blocking=True)
        self.done.record()
        self.done.synchronize()
        return self.fetched.tolist()

    def prefill(self, prompts):
        count = len(prompts[0])
        self.texts[:, :count].copy_(torch.tensor(prompts))
        return self.word(0, count)

    def decode(self):
        return self.word(self.count, self.count + 1)


def serve(engine, record, prompts, steps, warm_up=False):
    engine.used.clear()
    count = served(record, engine, prompts, VOCABULARY, steps, warm_up)
    assert bool(torch.isfinite(engine.last).all()) and engine.count == count + steps < LENGTH
    assert len(engine.used) == LAYERS * steps and 0 < max(engine.used) < INNER


def main():
    options = arguments(__doc__)
    record = Record()
    chance, engine = begun(options.seed), Engine()
    torch.cuda.synchronize()
    in_batches(partial(serve, engine, record), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(90, 4))
    record.finish()


main()
