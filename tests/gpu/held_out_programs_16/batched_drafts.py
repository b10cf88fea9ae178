"""Four texts go ahead together: a small model drafts one to six words of each, a large one checks them all, and the GPU rejects.

A step lasts until the host has its tokens by one `.tolist()`: a prefill step takes in four prompts of one length by both models,
a decode step is one round of guesses with their check, and yields one to seven tokens of each text that has not ended. A request
is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, now
from parts import MADE, SIZE, Plain, attended, begun, evened, in_batches, shares_of

VOCABULARY, LENGTH, BATCH, FEWEST, MOST, HEAT = 32000, 512, 4, 1, 6, 2.0  # HEAT: the temperature of both models
SMALL = (768, 2048, 8, 6, 2)  # width, inner width, layers, heads, heads of keys and values
LARGE = (2048, 5632, 18, 16, 4)
LENGTHS = (120, 280, 60, 200)  # of prompts, by turns
WANTED = (8, 60)  # how many tokens a text is to have


def raced(chances):
    """A token for each row, by exponential clocks; the chances need not sum up to 1."""
    return (chances / torch.empty_like(chances).exponential_().clamp_(min=1e-20)).argmax(-1, keepdim=True)


class Model(Plain):
    """Each row of the cache is a text's, as far as it has come."""

    def __init__(self, sizes):
        super().__init__(VOCABULARY, *sizes, LENGTH)
        self.cache = torch.zeros(2, sizes[2], BATCH, sizes[4], LENGTH, SIZE, **MADE)

    def states(self, ids, rows, places, span):
        """Of ids at places, both texts x count, of the texts in these rows of the cache, which is seen up to `span`."""
        hidden = (self.columns[:span] > places[:, :, None])[:, None, None]

        def attend(i, q, k, v):
            keys, values = self.cache[0, i], self.cache[1, i]
            keys[rows[:, None], :, places] = k.transpose(1, 2)
            values[rows[:, None], :, places] = v.transpose(1, 2)
            return attended(shares_of(q, keys[:, :, :span][rows], hidden), values[:, :, :span][rows])

        return self.through(ids, self.cos[places][:, None], self.sin[places][:, None], attend)

    def chances(self, x):
        """In fp32, texts x count x vocabulary."""
        return (F.linear(evened(x), self.head).float() / HEAT).softmax(-1)


class Engine:
    def __init__(self):
        self.small, self.large, self.guesses = Model(SMALL), Model(LARGE), 3

    def prefill(self, prompts):
        ids, count = torch.tensor(prompts).to("cuda"), len(prompts[0])
        rows = torch.arange(len(prompts), device="cuda")
        places = torch.arange(count, device="cuda").expand(len(prompts), -1)
        self.small.states(ids, rows, places, count)
        self.seen = self.large.chances(self.large.states(ids, rows, places, count)[:, -1:])
        return raced(self.seen[:, 0])[:, 0].tolist()

    def draft(self, last, rows, places, span):
        """The last tokens with the guesses behind them, texts x (1 + guesses), and the chances that the guesses were drawn from.
        The last pass has no guess of its own: it puts the one before it into the cache."""
        line, chances = [last], []
        for i in range(self.guesses + 1):
            x = self.small.states(line[-1], rows, places + i, span)
            if i < self.guesses:
                chances.append(self.small.chances(x)[:, 0])
                line.append(raced(chances[-1]))
        return torch.cat(line, 1), torch.stack(chances, 1)

    def verify(self, line, asked, rows, places, span):
        """How many guesses of each text hold, all guesses, and the token behind those that hold: drawn from what the large model
        gives more chance than the small one where a guess was rejected, else from the large model's own chances."""
        guesses, texts = line[:, 1:], torch.arange(len(line), device="cuda")
        places = places + torch.arange(line.shape[1], device="cuda")
        self.seen = given = self.large.chances(self.large.states(line, rows, places, span))
        wished = given[:, :-1].gather(-1, guesses[..., None])[..., 0]
        drafted = asked.gather(-1, guesses[..., None])[..., 0]
        held = (torch.rand_like(drafted) * drafted < wished).long().cumprod(1).sum(1)
        asked = torch.cat((asked, torch.zeros_like(asked[:, :1])), 1)
        token = raced((given[texts, held] - asked[texts, held]).clamp_(min=0))
        return torch.cat((held[:, None], guesses, token), 1)

    def round(self, texts):
        """`texts` are their last tokens, which the cache has not yet, their rows and their places. New tokens of each."""
        span = max(place for _, _, place in texts) + self.guesses + 1
        last, rows, places = torch.tensor(texts).to("cuda").unbind(1)
        places = places[:, None]
        line, asked = self.draft(last[:, None], rows, places, span)
        new = [line[:held] + line[-1:] for held, *line in self.verify(line, asked, rows, places, span).tolist()]
        share = sum(len(line) - 1 for line in new) / (len(new) * self.guesses)
        self.guesses = min(MOST, max(FEWEST, self.guesses + (share > 0.6) - (share < 0.45)))
        return new


def serve(engine, record, chance, prompts, rounds, warm_up=False):
    """A text leaves the batch when it has as many tokens as it is to have, unless it is the only one left."""
    count, start = len(prompts[0]), now()
    texts = [[token] for token in engine.prefill(prompts)]
    first = now()
    record.step("prefill", start, first, count * len(texts), len(texts), warm_up)
    wanted, ends, running = [chance.randrange(*WANTED) for _ in texts], [first] * len(texts), list(range(len(texts)))
    for _ in range(rounds):
        begin = now()
        new = engine.round([(texts[row][-1], row, count + len(texts[row]) - 1) for row in running])
        end = now()
        record.step("decode", begin, end, sum(map(len, new)), len(new), warm_up)
        for row, line in zip(running, new):
            texts[row] += line
            ends[row] = end
        running = [row for row in running if len(texts[row]) < wanted[row]] or running[-1:]
    for text, end in zip(texts, ends):
        record.request(start, first, end, count, len(text), warm_up)
        assert all(0 <= token < VOCABULARY for token in text) and count + len(text) + MOST < LENGTH
    assert bool(torch.isfinite(engine.seen).all())


def main():
    options = arguments(__doc__)
    record, chance, engine = Record(), begun(options.seed), Engine()
    torch.cuda.synchronize()
    in_batches(partial(serve, engine, record, chance), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(90, 4))
    record.finish()


main()
