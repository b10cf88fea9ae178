"""Where a model was unsure of a word, an embedder reads its last ones, and the nearest passage of a shelf goes into the text.

A step is one pass until `.tolist()` has what comes of it: a prefill step takes in a question or, in the middle of an answer, a
passage with the token before it; a decode step yields one token and how likely it was; a step of kind other embeds the last
tokens and has the number of the nearest passage. A request is one question, and each of its prefill and decode steps yields a
token. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import collections
import math
import statistics
import zlib

import torch
from torch.nn import functional as F

from contract import Record, arguments, now
from parts import MADE, Plain, Reader, attended, begun, in_bands, prompt, shares_of

VOCABULARY, LENGTH = 32000, 640
LARGE = (2048, 5632, 18, 16, 4)  # width, inner width, layers, heads, heads of keys and values
SMALL, SEEN = (1024, 2816, 10, 8, 2), 64  # SEEN: how many of the last tokens the embedder reads
SHELF = 131072  # passages, each of which has a vector
APART, AT_MOST, REMEMBERED = 4, 3, 40  # decode steps between two searches, searches for a question, chances looked back on
BANDS = ((90, 150), (260, 330), (40, 70), (160, 220))  # of questions' lengths, by turns


def passage(number):
    """The tokens of a passage, 24 to 63, which the shelf has on the host."""
    return [zlib.crc32(b"%d/%d" % (number, i)) % VOCABULARY for i in range(24 + number % 40)]


class Librarian(Plain):
    """All places of what is embedded see each other."""

    def __init__(self):
        super().__init__(VOCABULARY, *SMALL, SEEN)
        self.shelf = F.normalize(torch.empty(SHELF, SMALL[0], **MADE).normal_(), dim=-1)

    def nearest(self, tokens):
        """The nearest passage's number, and how near it is."""
        count = len(tokens)
        ids = torch.tensor(tokens).to("cuda")
        x = self.through(ids, self.cos[:count], self.sin[:count], lambda i, q, k, v: attended(shares_of(q, k), v))
        vector = F.normalize(x.float().mean(0), dim=0).to(torch.bfloat16)
        best = (self.shelf @ vector).float().topk(1)
        number, near = torch.cat((best.indices.double(), best.values.double())).tolist()
        return int(number), near


class Writer(Reader):
    def __init__(self):
        super().__init__(VOCABULARY, *LARGE, LENGTH)
        self.length = 0

    def words(self, ids):
        """The token behind these, which go on top of what is in the cache, and the logarithm of its chance."""
        self.run(ids, self.length)
        self.length += ids.shape[0]
        chance = self.last.log_softmax(-1)[0].gather(0, self.ids)
        token, sure = torch.cat((self.ids.double(), chance.double())).tolist()
        return int(token), sure

    def read(self, tokens):
        return self.words(torch.tensor(tokens).to("cuda"))

    def decode(self):
        return self.words(self.ids)


class Desk:
    def __init__(self, record):
        self.record, self.librarian, self.writer = record, Librarian(), Writer()
        self.chances = collections.deque(maxlen=REMEMBERED)  # of the last tokens' logarithms, also of earlier questions

    def timed(self, kind, tokens, call, *given):
        """What the call gives, and when it began and ended."""
        begin = now()
        result = call(*given)
        end = now()
        self.record.step(kind, begin, end, tokens, 1, self.warm_up)
        return result, begin, end

    def unsure(self, sure):
        """Whether a token was less likely than three quarters of those before it."""
        self.chances.append(sure)
        return len(self.chances) >= 4 and sure < statistics.quantiles(self.chances, n=4)[0]

    def looked_up(self, text):
        """A passage is read behind the text's last token, which is not in the cache yet; returns the token behind it."""
        seen = text[-SEEN:]
        (number, near), _, _ = self.timed("other", len(seen), self.librarian.nearest, seen)
        assert 0 <= number < SHELF and math.isfinite(near)
        more = text[-1:] + passage(number)
        (token, _), _, end = self.timed("prefill", len(more), self.writer.read, more)
        return token, end

    def answer(self, question, steps, number, warm_up=False):
        self.warm_up, self.writer.length = warm_up, 0
        (token, sure), start, first = self.timed("prefill", len(question), self.writer.read, question)
        text, end, searches, since = question + [token], first, 0, 0
        for i in range(steps):
            (token, sure), _, end = self.timed("decode", 1, self.writer.decode)
            text.append(token)
            since += 1
            wanted = self.unsure(sure) or warm_up and i == 2  # the warm-up looks up once in any case
            if wanted and searches < AT_MOST and (since >= APART or warm_up):
                token, end = self.looked_up(text)
                text.append(token)
                searches, since = searches + 1, 0
        said = len(text) - len(question)
        self.record.request(start, first, end, len(question), said, warm_up)
        assert said == 1 + steps + searches and all(0 <= token < VOCABULARY for token in text)
        assert self.writer.length <= LENGTH and bool(torch.isfinite(self.writer.last).all())


def main():
    options = arguments(__doc__)
    record, chance = Record(), begun(options.seed)
    desk = Desk(record)
    torch.cuda.synchronize()
    desk.answer(prompt(chance, VOCABULARY, 120), 8, 0, warm_up=True)
    in_bands(desk.answer, chance, VOCABULARY, BANDS, options.steps, 3, 25)
    record.finish()


main()
