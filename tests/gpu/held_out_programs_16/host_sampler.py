"""All logits come down to the host, which remembers what was said: penalties for words and for runs of words, then the draw.

A step is one pass through the model, two `.item()` about its logits, the copy of all of them, and the host's choice among them,
until the token is chosen: a prefill step takes in one prompt, a decode step one token, which is sent up first. A request is one
text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
import random
from functools import partial

import torch

from contract import Record, arguments, ranges
from parts import Reader, attended, begun, in_bands, one_text, prompt, shares_of

VOCABULARY, LENGTH = 32000, 512
SIZES = (2048, 5632, 20, 16, 4)  # width, inner width, layers, heads, heads of keys and values
BANDS = ((110, 170), (40, 80), (280, 400), (180, 260))  # of prompts' lengths, by turns
PENALTY, LONGEST, RUN, CANDIDATES, LEAST = 1.15, 12, 2, 60, 0.05  # RUN: how long a run may come again without a penalty


def continued(text):
    """The words that would go on with a run of words as before, with how long the longest such run is."""
    found = {}
    for at in range(len(text) - 1):
        if text[at] == text[-1]:
            length = 1
            while length < min(LONGEST, at + 1) and text[at - length] == text[-1 - length]:
                length += 1
            found[text[at + 1]] = max(length, found.get(text[at + 1], 0))
    return found


class Engine(Reader):
    def __init__(self, seed):
        super().__init__(VOCABULARY, *SIZES, LENGTH)
        self.dice, self.text = random.Random(seed), []
        self.row = torch.zeros(VOCABULARY, pin_memory=True)

    def chosen(self, doubt):
        """In doubt the draw is hotter. Changes the row of logits."""
        said = torch.tensor(sorted(set(self.text)))
        logits = self.row[said]
        self.row[said] = torch.where(logits > 0, logits / PENALTY, logits * PENALTY)
        for token, length in continued(self.text).items():
            if length > RUN:
                self.row[token] -= 0.8 * 1.75 ** (length - RUN)
        top = self.row.topk(CANDIDATES)
        values, numbers = top.values.tolist(), top.indices.tolist()
        heat = 0.6 + 0.6 * doubt / math.log(VOCABULARY)
        chances = [math.exp((value - values[0]) / heat) for value in values]
        kept = [chance for chance in chances if chance >= LEAST]
        return self.dice.choices(numbers[:len(kept)], kept)[0]

    def word(self, tokens, start):
        self.text += tokens
        self.run(torch.tensor(tokens).to("cuda"), start)
        if not torch.isfinite(self.last).all().item():
            raise SystemExit("not a number")
        logs = self.last.log_softmax(-1)
        doubt = -(logs.exp() * logs).sum().item()
        self.row.copy_(self.last[0])
        return self.chosen(doubt)

    def run(self, ids, start):
        """As in Reader, but nothing is drawn on the GPU."""
        end = start + len(ids)
        hidden = self.columns[:end] > self.columns[start:end, None] if len(ids) > 1 else None
        self.last = self.logits(self.through(ids, self.cos[start:end], self.sin[start:end],
                                             partial(self.attend, start, end, hidden)))

    def attend(self, start, end, hidden, i, q, k, v):
        keys, values = self.cache[0, i], self.cache[1, i]
        keys[:, start:end] = k
        values[:, start:end] = v
        return attended(shares_of(q, keys[:, :end], hidden), values[:, :end])

    def prefill(self, tokens):
        self.text = []
        self.token = self.word(tokens, 0)
        return self.token

    def decode(self, place):
        self.token = self.word([self.token], place)
        return self.token


def write(engine, record, mark, tokens, steps, number, warm_up=False):
    """Half of the prompt says again what its beginning says, so that there are runs of words."""
    tokens = (tokens[:len(tokens) // 2] * 3)[:len(tokens)]
    one_text(record, mark, ("", "", ""), VOCABULARY, engine.prefill, engine.decode, tokens, steps, warm_up)
    assert len(engine.text) == len(tokens) + steps <= LENGTH


def main():
    options = arguments(__doc__)
    mark, record = ranges(False), Record()
    chance, engine = begun(options.seed), Engine(options.seed)
    torch.cuda.synchronize()
    write(engine, record, mark, prompt(chance, VOCABULARY, 140), 4, 0, warm_up=True)
    in_bands(partial(write, engine, record, mark), chance, VOCABULARY, BANDS, options.steps, 3, 25)
    record.finish()


main()
