"""A second model reads what three texts say behind each fourth word, and says how boldly the next four are to be drawn.

A step is one pass through one of the models until `.tolist()` has what comes of it: a prefill step takes in three prompts of one
length, a decode step a token of each, and a step of kind other has the judge read the end of each text, without a cache, behind
each fourth token and behind the last. A request is one text, up to its last token. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))

import torch
from torch.nn import functional as F

from contract import Record, arguments, now
from parts import Plain, Reader, attended, begun, in_batches, shares_of, weight

VOCABULARY, LENGTH, BATCH, SEEN, EACH = 32000, 512, 3, 160, 4  # SEEN: tokens of a text's end that the judge reads
WRITER = (2048, 5632, 18, 16, 4)  # width, inner width, layers, heads, heads of keys and values
JUDGE = (1024, 2816, 12, 8, 2)
COLDEST, HOTTEST = 0.5, 1.3
LENGTHS = (140, 300, 60, 400, 210)  # of prompts, by turns


class Judge(Plain):
    def __init__(self):
        super().__init__(VOCABULARY, *JUDGE, SEEN)
        self.verdict = weight(1, JUDGE[0])

    def look(self, texts):
        """From 0 to 1 for each of these texts, which are all as long."""
        ids = torch.tensor(texts).to("cuda")
        count = ids.shape[1]
        hidden = self.columns[:count] > self.columns[:count, None]
        x = self.through(ids, self.cos[:count], self.sin[:count], lambda i, q, k, v: attended(shares_of(q, k, hidden), v))
        return F.linear(x[:, -1], self.verdict).float().sigmoid()[:, 0].tolist()


class Writer(Reader):
    def __init__(self):
        super().__init__(VOCABULARY, *WRITER, LENGTH, rows=(BATCH,))
        self.set([0.8] * BATCH)

    def set(self, heats):
        self.heats = torch.tensor(heats)[:, None].to("cuda")

    def logits(self, x):
        # What draws divides by 0.8, so these make that each text's own temperature.
        return super().logits(x) * (0.8 / self.heats)

    def prefill(self, prompts):
        self.run(torch.tensor(prompts).to("cuda"), 0)
        return self.ids[:, 0].tolist()

    def decode(self, place):
        self.run(self.ids, place)
        return self.ids[:, 0].tolist()


class Desk:
    def __init__(self, record):
        self.record, self.judge, self.writer, self.verdicts = record, Judge(), Writer(), []

    def timed(self, kind, tokens, call, *given):
        """What the call gives, and when it began and ended."""
        begin = now()
        result = call(*given)
        end = now()
        self.record.step(kind, begin, end, tokens, BATCH, self.warm_up)
        return result, begin, end

    def judged(self, texts):
        ends = [text[-SEEN:] for text in texts]
        scores, _, _ = self.timed("other", BATCH * len(ends[0]), self.judge.look, ends)
        self.verdicts += scores
        return scores

    def write(self, prompts, steps, warm_up=False):
        self.warm_up, count = warm_up, len(prompts[0])
        self.writer.set([0.8] * BATCH)
        tokens, start, first = self.timed("prefill", BATCH * count, self.writer.prefill, prompts)
        texts, end = [text + [token] for text, token in zip(prompts, tokens)], first
        for i in range(steps):
            if i % EACH == EACH - 1:  # each text has a multiple of four tokens
                scores = self.judged(texts)
                self.writer.set([HOTTEST + (COLDEST - HOTTEST) * score for score in scores])
            tokens, _, end = self.timed("decode", BATCH, self.writer.decode, count + i)
            for text, token in zip(texts, tokens):
                text.append(token)
        self.judged(texts)
        for text in texts:
            self.record.request(start, first, end, count, steps + 1, warm_up)
            assert len(text) == count + steps + 1 <= LENGTH and all(0 <= token < VOCABULARY for token in text)
        assert bool(torch.isfinite(self.writer.last).all()) and all(0 <= verdict <= 1 for verdict in self.verdicts)


def main():
    options = arguments(__doc__)
    record, chance = Record(), begun(options.seed)
    desk = Desk(record)
    torch.cuda.synchronize()
    in_batches(desk.write, chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(100, 6))
    record.finish()


main()
