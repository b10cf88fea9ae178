"""One graph of five layers, replayed three to six times for each token, as often as the host finds that it still changes.

A step is one token: a prefill step takes in a prompt, eagerly, through the five layers four times; a decode step replays
a graph for the token's vector, then the five layers' graph three times, then asks by `.item()` how much the state has
changed and replays it again or not, and last replays a graph for the logits and the choice, which `.item()` fetches.
Keys and values of a place are those of its last round. A request is one text. With --ranges a text has "essay" around it,
a prefill step "read", a decode step "word" and inside that "round" for each replay of the five layers.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split
from parts import MADE, begun, captured, prompt, tables, turned, weight

VOCABULARY, LENGTH = 32000, 512
WIDTH, INNER, LAYERS, HEADS, SIZE = 3072, 8192, 5, 24, 128
LEAST, MOST, READING = 3, 6, 4  # rounds of a decode step, and of a prefill step
BANDS = ((60, 110), (240, 330), (140, 200))  # of prompt lengths, by turns


class Engine:
    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.layers = [dict(qkv=weight(3 * WIDTH, WIDTH), out=weight(WIDTH, WIDTH), gate=weight(INNER, WIDTH),
                            up=weight(INNER, WIDTH), down=weight(WIDTH, INNER)) for _ in range(LAYERS)]
        self.keys = torch.zeros(LAYERS, HEADS, LENGTH, SIZE, **MADE)
        self.values = torch.zeros_like(self.keys)
        self.columns = torch.arange(LENGTH, device="cuda")
        self.cos, self.sin = tables(LENGTH, SIZE)
        # What the graphs read and write.
        self.ids = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.place = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.word, self.state = torch.zeros(1, WIDTH, **MADE), torch.zeros(1, WIDTH, **MADE)
        self.change = torch.zeros(1, device="cuda")
        self.seen = []  # changes, as the host has read them

    def norm(self, x):
        return F.layer_norm(x, (WIDTH,), self.one)

    def round(self, x, word, places, span):
        count = x.shape[0]
        later = self.columns[:span] > places[:, None]
        cos, sin = self.cos.index_select(0, places)[:, None], self.sin.index_select(0, places)[:, None]
        x = self.norm(x) + word
        for i, layer in enumerate(self.layers):
            q, k, v = F.linear(self.norm(x), layer["qkv"]).view(count, 3, HEADS, SIZE).unbind(1)
            self.keys[i].index_copy_(1, places, turned(k, cos, sin).transpose(0, 1).contiguous())
            self.values[i].index_copy_(1, places, v.transpose(0, 1).contiguous())
            scores = (turned(q, cos, sin).transpose(0, 1) @ self.keys[i, :, :span].transpose(1, 2)).float() * SIZE ** -0.5
            shares = scores.masked_fill(later, -math.inf).softmax(-1).to(torch.bfloat16)
            x = x + F.linear((shares @ self.values[i, :, :span]).transpose(0, 1).reshape(count, WIDTH), layer["out"])
            h = self.norm(x)
            x = x + F.linear(F.silu(F.linear(h, layer["gate"])) * F.linear(h, layer["up"]), layer["down"])
        return x

    def choose(self, x):
        self.logits = F.linear(self.norm(x[-1:]), self.head).float()
        self.ids.copy_(self.logits.argmax(-1))

    def begin_word(self):
        self.word.copy_(F.embedding(self.ids, self.embedding))
        self.state.copy_(self.word)

    def go_round(self):
        x = self.round(self.state, self.word, self.place, LENGTH)
        self.change.copy_((self.norm(x).float() - self.norm(self.state).float()).square().mean(-1))
        self.state.copy_(x)

    def end_word(self):
        self.choose(self.state)
        self.place.add_(1)

    def capture(self):
        self.beginning, self.rounds, self.ending = captured(self.begin_word), captured(self.go_round), captured(self.end_word)

    def prefill(self, tokens):
        count = len(tokens)
        word = F.embedding(torch.tensor(tokens).to("cuda"), self.embedding)
        x = word
        for _ in range(READING):
            x = self.round(x, word, self.columns[:count], count)
        self.choose(x)
        self.place.fill_(count)
        return int(self.ids.item())

    def decode(self, mark):
        self.beginning.replay()
        for i in range(MOST):
            with mark("round"):
                self.rounds.replay()
            if LEAST <= i + 1 < MOST:
                change = self.change.item()
                recent = self.seen[-30:]
                self.seen.append(change)
                if not recent or change <= sum(recent) / len(recent):
                    break
        self.ending.replay()
        return int(self.ids.item())


def serve(engine, record, mark, tokens, steps, warm_up=False):
    with mark("essay"):
        start = now()
        with mark("read"):
            text = [engine.prefill(tokens)]
        first = end = now()
        record.step("prefill", start, first, len(tokens), 1, warm_up)
        for _ in range(steps):
            begin = now()
            with mark("word"):
                text.append(engine.decode(mark))
            end = now()
            record.step("decode", begin, end, 1, 1, warm_up)
    record.request(start, first, end, len(tokens), len(text), warm_up)
    assert all(0 <= token < VOCABULARY for token in text) and bool(torch.isfinite(engine.logits).all())
    assert int(engine.place) == len(tokens) + steps <= LENGTH


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, engine = begun(options.seed), Engine()
    engine.capture()
    serve(engine, record, mark, prompt(chance, VOCABULARY, 120), 4, warm_up=True)
    for number, steps in enumerate(split(options.steps, max(3, min(30, options.steps // 7)))):
        length = chance.randrange(*BANDS[number % len(BANDS)])
        serve(engine, record, mark, prompt(chance, VOCABULARY, length), steps)
    record.finish()


main()
