"""Contrastive decoding: an expert writes, and where it is in doubt an amateur is asked what not to write.

A step is one token of each of three texts, from the upload before the expert's first call until the last chosen
word's score is on the host; many numbers are read on the way. The first pass over the three prompts is the prefill
step, all others are decode steps. The texts of a batch are a request each. With --ranges a step has "expert", at
times "amateur", and "choose", side by side.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import collections
import math
import random
import statistics

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH, SIZE = 32000, 192, 3, 128
SHARP, CUT, AGAINST = 6.0, math.log(0.1), 0.5
MADE = dict(device="cuda", dtype=torch.float16)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width, **MADE), nn.LayerNorm(width, **MADE)
        self.qkv, self.out = nn.Linear(width, 3 * width, **MADE), nn.Linear(width, width, **MADE)
        self.up, self.down = nn.Linear(width, 4 * width, **MADE), nn.Linear(4 * width, width, **MADE)
        self.keys = torch.zeros(BATCH, heads, LENGTH, SIZE, **MADE)
        self.values = torch.zeros_like(self.keys)

    def forward(self, x, start, cos, sin, mask):
        batch, count, width = x.shape
        end = start + count
        q, k, v = self.qkv(self.before(x)).view(batch, count, 3, self.heads, SIZE).permute(2, 0, 3, 1, 4)
        self.keys[:, :, start:end] = turned(k, cos, sin)
        self.values[:, :, start:end] = v
        scores = (turned(q, cos, sin) @ self.keys[:, :, :end].transpose(2, 3)).float() * SIZE ** -0.5
        if mask is not None:
            scores = scores + mask
        heads = scores.softmax(-1).to(torch.float16) @ self.values[:, :, :end]
        x = x + self.out(heads.transpose(1, 2).reshape(batch, count, width))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width, **MADE)
        self.layers = nn.ModuleList(Layer(width, width // SIZE) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width, **MADE), nn.Linear(width, VOCABULARY, bias=False, **MADE)
        speeds = 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE)
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(), speeds)
        self.cos, self.sin = angle.cos().to(torch.float16), angle.sin().to(torch.float16)

    def forward(self, ids, start):
        """The log-probabilities of the word behind the last of `ids`, which stand at `start` and after."""
        count = ids.shape[1]
        end = start + count
        mask = torch.full((count, end), -math.inf, device="cuda").triu(start + 1) if count > 1 else None
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, start, self.cos[start:end], self.sin[start:end], mask)
        return (self.head(self.last(x[:, -1])).float() * SHARP).log_softmax(-1)


class Writers:
    def __init__(self):
        self.expert, self.amateur = Model(1792, 22).eval(), Model(768, 8).eval()
        self.doubts = collections.deque(maxlen=32)

    def begin(self):
        self.read, self.unread = 0, None  # how far the amateur has read, and what it has not

    def next_words(self, mark, ids, start, ask):
        """The next word of each text, and its score. The amateur, if it is asked, first reads what it has missed."""
        with mark("expert"):
            ours = self.expert(ids, start)
            if not torch.isfinite(ours).all():
                raise FloatingPointError("expert")
            doubt = -(ours.exp() * ours).sum(-1).mean().item()
        ask = ask or len(self.doubts) < 4 or doubt >= statistics.median(self.doubts)
        self.doubts.append(doubt)
        self.unread = ids if self.unread is None else torch.cat((self.unread, ids), 1)
        theirs = None
        if ask:
            with mark("amateur"):
                theirs = self.amateur(self.unread, self.read)
                if not torch.isfinite(theirs).all():
                    raise FloatingPointError("amateur")
            self.read, self.unread = self.read + self.unread.shape[1], None
        chosen, scores = [], []
        with mark("choose"):
            for i in range(BATCH):
                best = ours[i].max().item()
                likely = (ours[i] >= best + CUT).nonzero()[:, 0]
                score = ours[i].index_select(0, likely)
                if theirs is not None:
                    score = score - AGAINST * theirs[i].index_select(0, likely)
                noise = torch.empty_like(score).exponential_()
                place = (score.softmax(-1) / noise).argmax(0, keepdim=True)
                chosen.append(likely.index_select(0, place).item())
                scores.append(score.index_select(0, place).item())
        return chosen, scores


def write(record, mark, writers, prompts, steps, warm_up=False):
    length, texts, sums = len(prompts[0]), [[] for _ in prompts], [0.0] * BATCH
    writers.begin()
    start = now()
    chosen, scores = writers.next_words(mark, torch.tensor(prompts, device="cuda"), 0, ask=True)
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    for i in range(steps):
        for text, word in zip(texts, chosen):
            text.append(word)
        sums = [a + b for a, b in zip(sums, scores)]
        begin = now()
        ids = torch.tensor([[word] for word in chosen], device="cuda")
        chosen, scores = writers.next_words(mark, ids, length + i, ask=warm_up)
        end = now()
        record.step("decode", begin, end, BATCH, BATCH, warm_up)
    for text, word in zip(texts, chosen):
        text.append(word)
        record.request(start, first, end, length, len(text), warm_up)
    assert all(math.isfinite(total + score) for total, score in zip(sums, scores))
    assert all(0 <= word < VOCABULARY for text in texts for word in text)


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance, mark, record = random.Random(options.seed), ranges(options.ranges), Record()
    writers = Writers()
    torch.cuda.synchronize()

    def prompts(length):
        return [[chance.randrange(VOCABULARY) for _ in range(length)] for _ in range(BATCH)]

    write(record, mark, writers, prompts(64), 3, warm_up=True)
    for steps in split(options.steps, max(8, min(25, options.steps // 6))):
        write(record, mark, writers, prompts(chance.randrange(32, 145)), steps)
    record.finish()


main()
