"""An assistant in a terminal, from a cold start: two layers share keys and values, each answer has a cache of its size.

Nothing runs before the first question but the making of the weights, so the first steps load CUDA's modules and make
the handles of cuBLAS; nothing is compiled. A step is one pass through the model and the choice of a token, until
`.item()` has it on the host: a prefill step takes in a question, from the making of the cache and the upload on, a
decode step one token. A request is one question. With --ranges a question has "question" around it, inside "read" for
the prefill step and "say" for each decode step.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
import random
import time

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LONGEST = 50000, 1024
WIDTH, INNER, LAYERS = 1792, 7168, 24
HEADS, KV_HEADS, SIZE = 14, 2, 128
GROUP = HEADS // KV_HEADS
PENALTY = 1.2
LENGTHS = (200, 72, 730, 360, 110, 768, 500, 64)  # of questions, about, by turns
MADE = dict(device="cuda", dtype=torch.bfloat16)


def weight(rows, columns):
    return torch.empty(rows, columns, **MADE).normal_(0, columns ** -0.5)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Model:
    """Layer norms, ReGLU; of each two layers the first alone makes keys and values, the second looks at the same."""

    def __init__(self):
        self.embedding = weight(VOCABULARY, WIDTH)
        self.one, self.zero = torch.ones(WIDTH, **MADE), torch.zeros(WIDTH, **MADE)
        self.layers = [dict(q=weight(HEADS * SIZE, WIDTH), kv=None if i % 2 else weight(2 * KV_HEADS * SIZE, WIDTH),
                            out=weight(WIDTH, HEADS * SIZE), gate=weight(INNER, WIDTH), up=weight(INNER, WIDTH),
                            down=weight(WIDTH, INNER)) for i in range(LAYERS)]
        # Made on the host, so that the GPU's first matmul, sine or sum is the first question's.
        angle = torch.outer(torch.arange(LONGEST).float(), 1e-4 ** (torch.arange(0, SIZE, 2) / SIZE))[:, None]
        self.cos, self.sin = angle.cos().to(**MADE), angle.sin().to(**MADE)
        self.order = torch.arange(LONGEST).to("cuda")

    def norm(self, x):
        return F.layer_norm(x, (WIDTH,), self.one, self.zero, 1e-5)

    def forward(self, ids, start, cache):
        """The logits behind the last of `ids`, which stand at `start` and after."""
        count = ids.shape[0]
        end = start + count
        cos, sin = self.cos[start:end], self.sin[start:end]
        hidden = (self.order[:end] > self.order[start:end, None]).repeat(GROUP, 1) if count > 1 else None
        x = F.embedding(ids, self.embedding) * WIDTH ** 0.5
        for i, layer in enumerate(self.layers):
            keys, values = cache[i // 2]
            h = self.norm(x)
            if layer["kv"] is not None:
                k, v = F.linear(h, layer["kv"]).view(count, 2, KV_HEADS, SIZE).unbind(1)
                keys[:, start:end] = turned(k, cos, sin).transpose(0, 1)
                values[:, start:end] = v.transpose(0, 1)
            q = turned(F.linear(h, layer["q"]).view(count, HEADS, SIZE), cos, sin)
            # KV heads x (heads that share them x queries) x size
            q = q.view(count, KV_HEADS, GROUP, SIZE).permute(1, 2, 0, 3).reshape(KV_HEADS, GROUP * count, SIZE)
            scores = torch.bmm(q, keys[:, :end].transpose(1, 2)).float() * SIZE ** -0.5
            if hidden is not None:
                scores = scores.masked_fill(hidden, -math.inf)
            heads = torch.bmm(scores.softmax(-1).to(torch.bfloat16), values[:, :end])
            heads = heads.view(KV_HEADS, GROUP, count, SIZE).permute(2, 0, 1, 3).reshape(count, HEADS * SIZE)
            x = x + F.linear(heads, layer["out"])
            h = self.norm(x)
            x = x + F.linear(F.relu(F.linear(h, layer["gate"])) * F.linear(h, layer["up"]), layer["down"])
        return F.linear(self.norm(x[-1]), self.embedding).float()


def choose(logits, said):
    """The likeliest token, those that were said before being less likely."""
    logits = torch.where(said, torch.where(logits > 0, logits / PENALTY, logits * PENALTY), logits)
    return logits.argmax(-1, keepdim=True)


def answer(model, record, mark, question, steps, cold):
    length = len(question)
    with mark("question"):
        start = now()
        with mark("read"):
            cache = torch.empty(LAYERS // 2, 2, KV_HEADS, length + steps, SIZE, **MADE)
            said = torch.zeros(VOCABULARY, dtype=torch.bool, device="cuda")
            ids = torch.tensor(question).to("cuda")
            said.index_fill_(0, ids, True)
            logits = model.forward(ids, 0, cache)
            ids = choose(logits, said)
            tokens = [ids.item()]
        first = end = now()
        record.step("prefill", start, first, length, 1, cold)
        for i in range(steps):
            begin = now()
            with mark("say"):
                said.index_fill_(0, ids, True)
                logits = model.forward(ids, length + i, cache)
                ids = choose(logits, said)
                tokens.append(ids.item())
            end = now()
            record.step("decode", begin, end, 1, 1, cold and i == 0)
    record.request(start, first, end, length, len(tokens), cold)
    assert all(0 <= token < VOCABULARY for token in tokens) and bool(torch.isfinite(logits).all())


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance, model = random.Random(options.seed), Model()
    torch.cuda.synchronize()
    for number, steps in enumerate(split(options.steps, max(4, min(25, options.steps // 7)))):
        if number:
            time.sleep(chance.uniform(0.02, 0.09))  # somebody reads, and types
        length = min(768, max(64, LENGTHS[number % len(LENGTHS)] + chance.randrange(-12, 13)))
        answer(model, record, mark, [chance.randrange(VOCABULARY) for _ in range(length)], steps, cold=number == 0)
    record.finish()


main()
