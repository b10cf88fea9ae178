"""A small model answers, and where it was in doubt, a large one takes over in the middle: it reads all there is, and goes on.

A step is one pass through one of the models, the draw of a token and its log-probability, until `.tolist()` has both: a prefill
step takes in a prompt by the small model, or prompt and answer so far by the large one, a decode step one token. A request is
one text. With --ranges "small" is around all that the small model does for a text, "large" around all of the large one.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import statistics
from collections import deque
from functools import partial

import torch

from contract import Record, arguments, now, ranges
from parts import Reader, begun, in_bands, prompt

VOCABULARY, LENGTH = 32000, 512
SMALL = (1024, 2816, 12, 8, 2)  # width, inner width, layers, heads, key heads
LARGE = (2048, 5632, 18, 16, 4)
BANDS = ((100, 160), (260, 360), (50, 90), (180, 240))  # of prompts' lengths, by turns


class Model(Reader):
    def __init__(self, sizes):
        super().__init__(VOCABULARY, *sizes, LENGTH)

    def word(self, ids, start):
        """A token and its log-probability."""
        self.run(ids, start)
        sure = self.last.log_softmax(-1).gather(-1, self.ids[:, None])[0]
        token, sure = torch.cat((self.ids.double(), sure.double())).tolist()
        return int(token), sure

    def prefill(self, tokens):
        return self.word(torch.tensor(tokens).to("cuda"), 0)

    def decode(self, place):
        return self.word(self.ids, place)


class Answer:
    def __init__(self, record, tokens, warm_up):
        self.record, self.tokens, self.warm_up, self.text, self.sures = record, tokens, warm_up, [], []

    def gets(self, kind, count, call):
        begin = now()
        token, sure = call()
        self.end = now()
        self.record.step(kind, begin, self.end, count, 1, self.warm_up)
        self.text.append(token)
        self.sures.append(sure)

    def by(self, model, steps):
        """A prefill step and so many decode steps."""
        known = self.tokens + self.text
        self.gets("prefill", len(known), partial(model.prefill, known))
        for i in range(steps):
            self.gets("decode", 1, partial(model.decode, len(known) + i))


def write(models, record, mark, past, tokens, steps, number, warm_up=False):
    """`past` are the mean log-probabilities of earlier answers' first halves."""
    answer, half = Answer(record, tokens, warm_up), (steps + 1) // 2
    start = now()
    with mark("small"):
        answer.by(models[0], half)
        first, sure = record.steps[-1 - half]["end_ns"], statistics.fmean(answer.sures)
        over = not past or sure < statistics.median(past)
        past.append(sure)
        if not over:
            for i in range(half, steps):
                answer.gets("decode", 1, partial(models[0].decode, len(tokens) + i))
    if over:
        with mark("large"):
            answer.by(models[1], steps - half)
    record.request(start, first, answer.end, len(tokens), len(answer.text), warm_up)
    assert all(0 <= token < VOCABULARY for token in answer.text) and len(tokens) + len(answer.text) <= LENGTH
    assert all(bool(torch.isfinite(model.last).all()) for model in (models if over else models[:1]))


def main():
    options = arguments(__doc__)
    mark, record, past = ranges(options.ranges), Record(), deque(maxlen=30)
    chance, models = begun(options.seed), (Model(SMALL), Model(LARGE))
    torch.cuda.synchronize()
    write(models, record, mark, past, prompt(chance, VOCABULARY, 120), 6, 0, warm_up=True)
    in_bands(partial(write, models, record, mark, past), chance, VOCABULARY, BANDS, options.steps, 3, 25)
    record.finish()


main()
