"""A small model drafts by a CUDA graph, replayed five times in a row; a large one checks four guesses in one eager pass.

A step lasts until the host has its tokens: a prefill step takes in one prompt by both models, a decode step is one round of
guesses with their check, and yields one to five tokens. A request is one text. With --ranges a text has "request" around it,
inside are "prefill" and "round", and in the latter "draft" and "verify".
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges
from parts import MADE, SIZE, Plain, attended, begun, captured, drawn, evened, in_bands, prompt, shares_of

VOCABULARY, LENGTH, GUESSES = 32000, 512, 4
SMALL = (768, 2048, 8, 6, 2)  # width, inner width, layers, heads, heads of keys and values
LARGE = (2048, 5632, 18, 16, 4)
BANDS = ((100, 180), (24, 70), (260, 360), (60, 120))  # of prompts' lengths, by turns


class Draft(Plain):
    def __init__(self):
        super().__init__(VOCABULARY, *SMALL, LENGTH)
        self.cache = torch.zeros(2, SMALL[2], SMALL[4], LENGTH, SIZE, **MADE)
        self.token, self.place, self.slot = (torch.zeros(1, dtype=torch.int64, device="cuda") for _ in range(3))
        self.line = torch.zeros(GUESSES + 2, dtype=torch.int64, device="cuda")
        self.graph = captured(self.word)

    def read(self, ids):
        """Puts a prompt into the cache."""
        count = ids.shape[0]
        hidden = self.columns[:count] > self.columns[:count, None]

        def attend(i, q, k, v):
            self.cache[0, i, :, :count] = k
            self.cache[1, i, :, :count] = v
            return attended(shares_of(q, k, hidden), v)

        self.through(ids, self.cos[:count], self.sin[:count], attend)

    def word(self):
        hidden = self.columns > self.place[:, None]

        def attend(i, q, k, v):
            keys, values = self.cache[0, i], self.cache[1, i]
            keys.index_copy_(1, self.place, k)
            values.index_copy_(1, self.place, v)
            return attended(shares_of(q, keys, hidden), values)

        cos, sin = self.cos.index_select(0, self.place), self.sin.index_select(0, self.place)
        self.token.copy_(drawn(self.logits(self.through(self.token, cos, sin, attend)), 0.8)[0])
        self.line.index_copy_(0, self.slot, self.token)
        self.place.add_(1)
        self.slot.add_(1)

    def guess(self, last, place):
        """The last token and the guesses behind it. The last replay's guess is of no use, but it puts the one before it into the
        cache."""
        self.token.copy_(last)
        self.line[:1].copy_(last)
        self.place.fill_(place)
        self.slot.fill_(1)
        for _ in range(GUESSES + 1):
            self.graph.replay()
        return self.line[:GUESSES + 1]


class Engine(Plain):
    def __init__(self, mark):
        super().__init__(VOCABULARY, *LARGE, LENGTH)
        self.cache = torch.zeros(2, LARGE[2], LARGE[4], LENGTH, SIZE, **MADE)
        self.mark, self.draft = mark, Draft()

    def states(self, ids, start):
        end = start + ids.shape[0]
        hidden = self.columns[:end] > self.columns[start:end, None]

        def attend(i, q, k, v):
            self.cache[0, i, :, start:end] = k
            self.cache[1, i, :, start:end] = v
            return attended(shares_of(q, self.cache[0, i, :, :end], hidden), self.cache[1, i, :, :end])

        return self.through(ids, self.cos[start:end], self.sin[start:end], attend)

    def prefill(self, tokens):
        ids = torch.tensor(tokens).to("cuda")
        self.draft.read(ids)
        self.last = drawn(self.logits(self.states(ids, 0)), 0.8)[0]
        self.count = len(tokens)
        return self.last.item()

    def verify(self, line):
        """How many guesses hold, all of them, and the token behind those that hold. A guess holds when its chance is above three
        tenths, or above what the doubt of all chances asks for."""
        self.seen = F.linear(evened(self.states(line, self.count)), self.head).float()
        logs = self.seen.log_softmax(-1)
        chances = logs.exp()
        asked = (0.3 * (chances * logs).sum(-1).exp()).clamp_(max=0.3)[:GUESSES]
        good = chances[:GUESSES].gather(-1, line[1:, None])[:, 0] > asked
        held = good.long().cumprod(0).sum(0, keepdim=True)
        self.last = drawn(self.seen, 0.8)[:, 0].index_select(0, held)
        return torch.cat((held, line[1:], self.last))

    def round(self):
        with self.mark("draft"):
            line = self.draft.guess(self.last, self.count)
        with self.mark("verify"):
            held, *tokens = self.verify(line).tolist()
        self.count += held + 1
        return tokens[:held] + tokens[-1:]


def write(engine, record, tokens, rounds, number, warm_up=False):
    with engine.mark("request"):
        start = now()
        with engine.mark("prefill"):
            text = [engine.prefill(tokens)]
        first = end = now()
        record.step("prefill", start, first, len(tokens), 1, warm_up)
        for _ in range(rounds):
            begin = now()
            with engine.mark("round"):
                new = engine.round()
            end = now()
            record.step("decode", begin, end, len(new), 1, warm_up)
            text += new
    record.request(start, first, end, len(tokens), len(text), warm_up)
    assert all(0 <= token < VOCABULARY for token in text) and bool(torch.isfinite(engine.seen).all())
    assert engine.count == len(tokens) + len(text) - 1 and len(tokens) + (GUESSES + 1) * rounds <= LENGTH


def main():
    options = arguments(__doc__)
    record, chance, engine = Record(), begun(options.seed), Engine(ranges(options.ranges))
    write(engine, record, prompt(chance, VOCABULARY, 140), 4, 0, warm_up=True)
    in_bands(partial(write, engine, record), chance, VOCABULARY, BANDS, options.steps, 3, 25)
    record.finish()


main()
