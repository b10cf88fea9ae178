"""A chat between two looks of a guard: a small model reads each question first, a large one answers, the small one reads that.

Between the text and the first call on the GPU, the host makes tokens of it by pairs of pieces, in plain Python. A step is one
pass through a model until `.item()` has what comes of it: of kind other for the guard's verdict, a prefill step takes in a
question, on top of what was said before in its session, a decode step one token. A request is one turn, from its text on until
the guard has seen the answer. With --ranges a session has its number and a name around it, inside is each turn with the user's
first words, and in that "tokenize" and, around each pass of whatever kind, "forward".
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import itertools

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split
from parts import Plain, Reader, attended, begun, shares_of, weight

VOCABULARY, LENGTH, TURNS = 32000, 2048, 3  # TURNS of a session
GUARD = (768, 2048, 12, 6, 2)  # width, inner width, layers, heads, heads of keys and values
LARGE = (2048, 5632, 18, 16, 4)
BANDS = ((50, 80), (16, 40), (70, 91), (30, 60))  # words of a question, by turns
NAMES, ASKED = ("Ada", "Bo", "Cleo", "Dan"), ("decode this image:", "encode", "step 1: generate", "prefill my form with")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SYLLABLES = [a + b for a in LETTERS for b in "aeiou" if a not in "aeiou"]


class Tokenizer:
    """Pieces are the space, letters, syllables, and about half of all pairs of syllables; the lowest number merges first."""

    def __init__(self, chance):
        pairs = [a + b for a in SYLLABLES for b in SYLLABLES if chance.random() < 0.5]
        chance.shuffle(pairs)
        self.pieces = [" "] + list(LETTERS) + SYLLABLES + pairs
        self.numbers = {piece: number for number, piece in enumerate(self.pieces)}

    def encode(self, text):
        tokens = []
        for word in text.split():
            parts = list(word)
            while True:
                ranks = [self.numbers.get(a + b, VOCABULARY) for a, b in zip(parts, parts[1:])]
                best = min(ranks, default=VOCABULARY)
                if best == VOCABULARY:
                    break
                at = ranks.index(best)
                parts[at:at + 2] = [parts[at] + parts[at + 1]]
            tokens += [0] + [self.numbers[part] for part in parts]
        return tokens

    def piece(self, token):
        return self.pieces[token % len(self.pieces)]


class Guard(Plain):
    """Without a cache: each look is at a whole text."""

    def __init__(self):
        super().__init__(VOCABULARY, *GUARD, LENGTH)
        self.verdict = weight(1, GUARD[0])

    def look(self, tokens):
        count = len(tokens)
        hidden = self.columns[:count] > self.columns[:count, None]
        x = self.through(torch.tensor(tokens).to("cuda"), self.cos[:count], self.sin[:count],
                         lambda i, q, k, v: attended(shares_of(q, k, hidden), v))
        return F.linear(x[-1], self.verdict).float().sigmoid().item()


class Desk:
    def __init__(self, record, mark, chance):
        self.record, self.mark, self.chance, self.turns = record, mark, chance, itertools.count()
        self.tokenizer, self.guard, self.model = Tokenizer(chance), Guard(), Reader(VOCABULARY, *LARGE, LENGTH)

    def asked(self, number):
        count = self.chance.randrange(*BANDS[number % len(BANDS)])
        return " ".join("".join(self.chance.choices(SYLLABLES, k=self.chance.randrange(2, 5))) for _ in range(count))

    def timed(self, kind, count, call, *arguments):
        """What the call gives, and when it began and ended."""
        begin = now()
        with self.mark("forward"):
            given = call(*arguments)
        end = now()
        self.record.step(kind, begin, end, count, 1, self.warm_up)
        return given, begin, end

    def looked(self, tokens):
        verdict, _, end = self.timed("other", len(tokens), self.guard.look, tokens)
        assert 0 <= verdict <= 1
        return end

    def read(self, tokens, start):
        self.model.run(torch.tensor(tokens).to("cuda"), start)
        return self.model.ids.item()

    def turn(self, said, text, steps):
        """`said` are the session's tokens so far, of which the cache has all but the last."""
        start = now()
        with self.mark("tokenize"):
            question = self.tokenizer.encode(text)
        self.looked(question)
        new, cached = said[-1:] + question, max(0, len(said) - 1)
        token, _, first = self.timed("prefill", len(new), self.read, new, cached)
        said += question
        answer, written = [token], self.tokenizer.piece(token)
        for i in range(steps):
            token, _, _ = self.timed("decode", 1, self.model.decode, len(said) + i)
            answer.append(token)
            written += self.tokenizer.piece(token)
        end = self.looked(question + answer)
        said += answer
        self.record.request(start, first, end, len(new), len(answer), self.warm_up)
        assert all(0 <= token < VOCABULARY for token in said) and written and len(said) <= LENGTH

    def session(self, number, counts, warm_up=False):
        said, self.warm_up = [], warm_up
        with self.mark("session %d (%s)" % (number, NAMES[number % len(NAMES)])):
            for i, steps in enumerate(counts):
                turn = next(self.turns)
                text = self.asked(turn)
                with self.mark("turn %d: %s %s" % (i + 1, ASKED[turn % len(ASKED)], text[:16])):
                    self.turn(said, text, steps)
        assert bool(torch.isfinite(self.model.last).all())


def main():
    options = arguments(__doc__)
    record, chance = Record(), begun(options.seed)
    desk = Desk(record, ranges(options.ranges), chance)
    torch.cuda.synchronize()
    desk.session(0, [4], warm_up=True)
    counts = split(options.steps, max(3, min(25, options.steps // 8)))
    for number, start in enumerate(range(0, len(counts), TURNS)):
        desk.session(number + 1, counts[start:start + TURNS])
    record.finish()


main()
