"""A cache of 160 places for texts of any length: each token takes the place of the one that was attended to the least.

A step is one pass through the model and the draw of a token, until the last of its `.item()` has come back: a prefill step
takes in a prompt with attention to all of it and keeps what was attended to the most, a decode step asks before each group
of four layers which place is to be given up, then whether the logits are finite, their entropy (which sets the temperature),
the token and its log-probability. A request is one text. With --ranges a text has "letter" around it, inside are "reading"
for the prefill step and "word" for each decode step, and in both "group" for each four layers and "choice".
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, ranges
from parts import (MADE, SIZE, alone, attended, begun, drawn, heads_of, in_bands, layer_of, prompt, shares_of, swiglu, tables,
                   weight)

VOCABULARY, LENGTH, ROOM, RECENT = 32000, 1024, 160, 32  # the last of which are never given up
WIDTH, INNER, LAYERS, HEADS, KV_HEADS, GROUP = 2048, 5632, 20, 16, 4, 4
BANDS = ((170, 230), (480, 640), (280, 400))  # of prompt lengths, by turns


class Model:
    def __init__(self, mark):
        self.mark = mark
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.layers = [layer_of(WIDTH, INNER, HEADS, KV_HEADS) for _ in range(LAYERS)]
        self.keys = torch.zeros(LAYERS, KV_HEADS, ROOM, SIZE, **MADE)
        self.values = torch.zeros_like(self.keys)
        self.marks = torch.zeros(LAYERS // GROUP, ROOM, device="cuda")  # how much each place was attended to
        self.stand = torch.zeros(LAYERS // GROUP, ROOM, dtype=torch.int64, device="cuda")  # which token of the text is in it
        self.columns = torch.arange(LENGTH, device="cuda")
        self.cos, self.sin = tables(LENGTH, SIZE)

    def norm(self, x):
        return F.layer_norm(x, (WIDTH,), self.one)

    def through(self, layer, x, shares, values):
        x = x + F.linear(attended(shares, values), layer["out"])
        return x + swiglu(layer, self.norm(x))

    def prefill(self, tokens):
        count = len(tokens)
        later = self.columns[:count] > self.columns[:count, None]
        recent = self.columns[:count] >= count - RECENT
        x = F.embedding(torch.tensor(tokens).to("cuda"), self.embedding)
        for group in range(LAYERS // GROUP):
            with self.mark("group"):
                marks, whole = torch.zeros(count, device="cuda"), []
                for i in range(group * GROUP, (group + 1) * GROUP):
                    q, k, v = heads_of(self.layers[i], self.norm(x), self.cos[:count], self.sin[:count])
                    shares = shares_of(q, k, later)
                    marks += shares.sum((0, 1, 2))
                    x = self.through(self.layers[i], x, shares, v)
                    whole.append((i, k, v))
                kept = marks.masked_fill(recent, math.inf).topk(ROOM).indices
                self.marks[group] = marks.index_select(0, kept)
                self.stand[group] = kept
                for i, k, v in whole:
                    self.keys[i] = k.index_select(1, kept)
                    self.values[i] = v.index_select(1, kept)
        return self.choice(x[-1:])

    def decode(self, place):
        x = F.embedding(self.ids, self.embedding)
        cos, sin = self.cos[place:place + 1], self.sin[place:place + 1]
        for group in range(LAYERS // GROUP):
            with self.mark("group"):
                recent = self.stand[group] > place - RECENT
                spot = self.marks[group].masked_fill(recent, math.inf).argmin().item()
                self.marks[group, spot].fill_(0)
                self.stand[group, spot].fill_(place)
                for i in range(group * GROUP, (group + 1) * GROUP):
                    q, k, v = heads_of(self.layers[i], self.norm(x), cos, sin)
                    self.keys[i, :, spot:spot + 1] = k
                    self.values[i, :, spot:spot + 1] = v
                    shares = shares_of(q, self.keys[i])
                    self.marks[group].add_(shares.sum((0, 1, 2)))
                    x = self.through(self.layers[i], x, shares, self.values[i])
        return self.choice(x)

    def choice(self, x):
        with self.mark("choice"):
            logits = F.linear(self.norm(x), self.head).float()
            assert torch.isfinite(logits).all().item()
            logs = logits.log_softmax(-1)
            entropy = -(logs.exp() * logs).sum().item()
            temperature = min(1.0, max(0.5, 6.0 / max(entropy, 1.0)))
            self.ids = drawn(logits, temperature)[0]
            token = self.ids.item()
            assert logs[0].gather(0, self.ids).item() <= 0
            return token


def write(model, record, mark, tokens, steps, number, warm_up=False):
    alone(record, mark, ("letter", "reading", "word"), VOCABULARY, model.prefill, model.decode, tokens, steps, warm_up)
    last = len(tokens) + steps - 1
    assert all(len(set(row)) == ROOM and max(row) == last for row in model.stand.tolist())


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, model = begun(options.seed), Model(mark)
    torch.cuda.synchronize()
    write(model, record, mark, prompt(chance, VOCABULARY, 200), 4, None, warm_up=True)
    in_bands(partial(write, model, record, mark), chance, VOCABULARY, BANDS, options.steps, 3, 30)
    record.finish()


main()
