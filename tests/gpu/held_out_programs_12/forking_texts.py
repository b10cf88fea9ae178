"""Trains of thought: a text that is in doubt about its next word forks, and when there are too many, the best three go on.

A step is one pass through the model with all trains that are alive, and two words drawn for each, until `.cpu()` has these, their
log-probabilities and the doubt: a prefill step takes in one problem, a decode step brings the cache's rows into the order that
the host has made of them, if they have changed, and takes in a token of each. So the batch has one to eight rows and changes
every few steps. A request is one problem. With --ranges a problem has "problem" around it, inside are "statement" for the prefill
step and for each decode step "thought" with the number of trains.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch

from contract import Record, arguments, now, ranges
from parts import MADE, Decoder, begun, in_bands, prompt, word

VOCABULARY, LENGTH, MOST, BEST = 32000, 640, 8, 3
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 1792, 4864, 26, 14, 2
BANDS = ((120, 180), (400, 560), (220, 320), (60, 100))  # of problems' lengths, by turns


class Model(Decoder):
    def caches(self, length):
        self.cache = torch.zeros(2, self.count, self.batch, self.kv_heads, length, self.size, **MADE)
        self.keys, self.values = list(self.cache[0]), list(self.cache[1])

    def words(self, ids, places, span):
        """For each row: how much it is in doubt, two tokens of different chance, and their log-probabilities, on the host."""
        logs = (self.logits(ids, places, span) / 0.8).log_softmax(-1)
        chances = logs.exp()
        doubt = -(chances * logs).sum(-1, keepdim=True)
        tokens = (chances / torch.empty_like(chances).exponential_().clamp_(min=1e-20)).topk(2, -1).indices
        return torch.cat((doubt, logs.gather(-1, tokens), tokens.float()), -1).cpu()


class Train:
    """A train of thought; `row` is that of the cache which has its tokens but the last."""

    def __init__(self, row, text, score):
        self.row, self.text, self.score = row, text, score
        self.written = "".join(map(word, text))


class Thinker:
    def __init__(self):
        self.model = Model(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, MOST, LENGTH)
        self.doubts = []

    def statement(self, tokens):
        count = len(tokens)
        return self.model.words(torch.tensor([tokens]).to("cuda"), self.model.columns[None, :count], count)

    def thought(self, trains, place):
        """`place` is that of the tokens that are new."""
        model, rows = self.model, [train.row for train in trains]
        ids, order = torch.tensor([[train.text[-1] for train in trains], rows]).to("cuda")
        if rows != list(range(len(rows))):
            model.cache[:, :, :len(rows), :, :place].copy_(model.cache[:, :, :, :, :place].index_select(2, order))
        places = model.columns[None, place:place + 1].expand(len(rows), 1)
        return model.words(ids[:, None], places, place + 1)

    def onward(self, trains, words):
        """The trains of the next step; `trains` stood in the rows of this one in their order."""
        new = []
        for row, (train, (doubt, first, second, one, two)) in enumerate(zip(trains, words.tolist())):
            before = sorted(self.doubts[-64:])
            self.doubts.append(doubt)
            new.append(Train(row, train.text + [int(one)], train.score + first))
            if before and doubt > before[len(before) * 3 // 5]:
                new.append(Train(row, train.text + [int(two)], train.score + second))
        if len(new) > MOST:
            new = sorted(sorted(new, key=lambda train: -train.score)[:BEST], key=lambda train: train.row)
        return new


def think(thinker, record, mark, tokens, steps, number, warm_up=False):
    count = len(tokens)
    with mark("problem"):
        start = now()
        with mark("statement"):
            words = thinker.statement(tokens)
        first = end = now()
        record.step("prefill", start, first, count, 1, warm_up)
        trains = thinker.onward([Train(0, [], 0.0)], words)
        for i in range(steps):
            begin = now()
            with mark("thought %d" % len(trains)):
                words = thinker.thought(trains, count + i)
            end = now()
            record.step("decode", begin, end, len(trains), len(trains), warm_up)
            trains = thinker.onward(trains, words)
    best = max(trains, key=lambda train: train.score)
    record.request(start, first, end, count, len(best.text), warm_up)
    assert all(0 <= token < VOCABULARY for train in trains for token in train.text) and best.score < 0
    assert all(len(train.text) == steps + 1 for train in trains) and count + steps <= LENGTH


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, thinker = begun(options.seed), Thinker()
    torch.cuda.synchronize()
    think(thinker, record, mark, prompt(chance, VOCABULARY, 130), 6, None, warm_up=True)
    in_bands(partial(think, thinker, record, mark), chance, VOCABULARY, BANDS, options.steps, 3, 20)
    record.finish()


main()
