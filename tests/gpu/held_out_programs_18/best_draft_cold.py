"""Starts cold: each turn of a chat is answered three times at once, and goes on with the answer that a reward model likes best.

A step is one pass through one of the models until `.tolist()` has what comes of it: a prefill step takes in a question, in three
rows, on top of what was said before; a decode step yields a token of each draft; a step of kind other is the reward model's, once
behind each turn. What the best draft left in the cache is then copied over that of the others. A request is one draft, from the
question on until the best of the three is known. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math

import torch
from torch.nn import functional as F

from contract import Record, arguments, now
from parts import Plain, Reader, attended, begun, in_bands, shares_of, weight

VOCABULARY, LENGTH, DRAFTS, TURNS, SEEN = 32000, 768, 3, 4, 256  # TURNS of a chat; SEEN: tokens that the reward model reads
WRITER = (2048, 5632, 18, 16, 4)  # width, inner width, layers, heads, heads of keys and values
REWARD = (1024, 2816, 14, 8, 2)
BANDS = ((60, 100), (20, 40), (110, 150), (12, 24), (70, 90))  # of questions' lengths, by turns


class Reward(Plain):
    """Without a cache: each look is at the end of the chat as each draft would have it."""

    def __init__(self):
        super().__init__(VOCABULARY, *REWARD, SEEN)
        self.verdict = weight(1, REWARD[0])

    def look(self, texts):
        ids = torch.tensor(texts).to("cuda")
        count = ids.shape[1]
        hidden = self.columns[:count] > self.columns[:count, None]
        x = self.through(ids, self.cos[:count], self.sin[:count], lambda i, q, k, v: attended(shares_of(q, k, hidden), v))
        return F.linear(x[:, -1], self.verdict).float()[:, 0].tolist()


class Writer(Reader):
    def __init__(self):
        super().__init__(VOCABULARY, *WRITER, LENGTH, rows=(DRAFTS,))
        self.length = 0

    def words(self, ids):
        self.run(ids, self.length)
        self.length += ids.shape[1]
        return self.ids[:, 0].tolist()

    def read(self, tokens):
        return self.words(torch.tensor(tokens).to("cuda").expand(DRAFTS, -1))

    def decode(self):
        return self.words(self.ids)

    def keep(self, best, start):
        """All rows of the cache get what the best one has from place `start` on."""
        kept = self.cache[:, :, best:best + 1, :, start:self.length].clone()
        self.cache[:, :, :, :, start:self.length] = kept


class Chat:
    def __init__(self, record):
        self.record, self.reward, self.writer, self.said = record, Reward(), Writer(), []

    def timed(self, kind, tokens, cold, call, *given):
        """What the call gives, and when it began and ended."""
        begin = now()
        result = call(*given)
        end = now()
        self.record.step(kind, begin, end, DRAFTS * tokens, DRAFTS, cold)
        return result, begin, end

    def turn(self, question, steps, number):
        """`number` 0 is the process's first, so its requests, and the first step of each kind, count as warm-up."""
        cold, writer = number == 0, self.writer
        if number % TURNS == 0:
            self.said, writer.length = [], 0
        more = self.said[-1:] + question  # the last token of the answer before is not in the cache yet
        tokens, start, first = self.timed("prefill", len(more), cold, writer.read, more)
        answered, drafts = writer.length, [[token] for token in tokens]
        for i in range(steps):
            tokens, _, _ = self.timed("decode", 1, cold and i == 0, writer.decode)
            for draft, token in zip(drafts, tokens):
                draft.append(token)
        ends = [(self.said + question + draft)[-SEEN:] for draft in drafts]
        scores, _, end = self.timed("other", len(ends[0]), cold, self.reward.look, ends)
        for _ in drafts:
            self.record.request(start, first, end, len(more), steps + 1, cold)
        best = max(range(DRAFTS), key=scores.__getitem__)
        writer.keep(best, answered)
        self.said = self.said + question + drafts[best]
        assert all(map(math.isfinite, scores)) and len(self.said) == writer.length + 1 <= LENGTH
        assert all(0 <= token < VOCABULARY for draft in drafts for token in draft) and bool(torch.isfinite(writer.last).all())


def main():
    options = arguments(__doc__)
    record, chance = Record(), begun(options.seed)
    chat = Chat(record)
    torch.cuda.synchronize()
    in_bands(chat.turn, chance, VOCABULARY, BANDS, options.steps, 4, 30)
    record.finish()


main()
