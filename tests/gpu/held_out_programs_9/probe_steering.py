"""Two texts under watch: behind every fourth layer the host reads what a probe thinks of them, and steers what strays.

A step is one pass through the model and the choice of two tokens, until their log-probabilities are on the host: a
prefill step takes in two prompts of one length, a decode step one token of each text. In each the host waits six times
for the probes' scores, then for the mean entropy, by which it sets the temperature, for whether the texts repeat
themselves, for the tokens and for their log-probabilities. A request is one text. With --ranges a step has "pass" and
"choice" side by side, and inside the first "probe" for each look.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
import random

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 40000, 1024, 2
WIDTH, INNER, LAYERS = 1920, 5120, 24
HEADS, KV_HEADS, SIZE = 15, 5, 128
GROUP = HEADS // KV_HEADS
EVERY, LIMIT, PUSH = 4, 1.0, 0.5  # layers between looks, the score from which a text is steered, and by how much
STEMS = 64  # tokens that are as good as the same to whoever looks for repetitions
BANDS = ((64, 110), (420, 768), (150, 330), (600, 768))  # of prompt lengths, by turns
MADE = dict(device="cuda", dtype=torch.bfloat16)


def weight(rows, columns):
    return torch.empty(rows, columns, **MADE).normal_(0, columns ** -0.5)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Model:
    def __init__(self, mark):
        self.mark = mark
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.layers = [dict(q=weight(HEADS * SIZE, WIDTH), k=weight(KV_HEADS * SIZE, WIDTH),
                            v=weight(KV_HEADS * SIZE, WIDTH), out=weight(WIDTH, HEADS * SIZE),
                            gate=weight(INNER, WIDTH), up=weight(INNER, WIDTH), down=weight(WIDTH, INNER))
                       for _ in range(LAYERS)]
        self.probes = [weight(1, WIDTH) for _ in range(LAYERS // EVERY)]
        self.directions = [torch.empty(WIDTH, **MADE).normal_(0, PUSH) for _ in self.probes]
        self.keys = torch.zeros(LAYERS, BATCH, KV_HEADS, LENGTH, SIZE, **MADE)
        self.values = torch.zeros_like(self.keys)
        self.order = torch.arange(LENGTH, device="cuda")
        angle = torch.outer(self.order.float(), 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE))
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)

    def norm(self, x):
        return F.rms_norm(x, (WIDTH,), self.one, 1e-6)

    def look(self, x, number):
        """Reads the probe's scores of both texts and steers the last place of those that are too high. One wait."""
        with self.mark("probe"):
            scores = F.linear(self.norm(x[:, -1]), self.probes[number]).cpu()[:, 0].tolist()
            for row, score in enumerate(scores):
                if score > LIMIT:
                    x[row, -1] -= score * self.directions[number]
        return x

    def forward(self, ids, start):
        """The logits behind the last of `ids` (BATCH x count), which stand at `start` and after."""
        count = ids.shape[1]
        end = start + count
        cos, sin = self.cos[start:end], self.sin[start:end]
        hidden = (self.order[:end] > self.order[start:end, None]).repeat(GROUP, 1) if count > 1 else None
        x = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            h = self.norm(x)
            q, k, v = (F.linear(h, layer[name]).view(BATCH, count, -1, SIZE).transpose(1, 2) for name in "qkv")
            self.keys[i, :, :, start:end] = turned(k, cos, sin)
            self.values[i, :, :, start:end] = v
            q = turned(q, cos, sin).reshape(BATCH, KV_HEADS, GROUP * count, SIZE)
            scores = (q @ self.keys[i, :, :, :end].transpose(2, 3)).float() * SIZE ** -0.5
            if hidden is not None:
                scores = scores.masked_fill(hidden, -math.inf)
            heads = scores.softmax(-1).to(torch.bfloat16) @ self.values[i, :, :, :end]
            heads = heads.view(BATCH, HEADS, count, SIZE).transpose(1, 2).reshape(BATCH, count, HEADS * SIZE)
            x = x + F.linear(heads, layer["out"])
            h = self.norm(x)
            x = x + F.linear(F.silu(F.linear(h, layer["gate"])) * F.linear(h, layer["up"]), layer["down"])
            if i % EVERY == EVERY - 1:
                x = self.look(x, i // EVERY)
        return F.linear(self.norm(x[:, -1]), self.head).float()


def choose(logits, history, end):
    """The next token of both texts, on the GPU and on the host, and their log-probabilities. Four waits."""
    logs = logits.log_softmax(-1)
    entropy = -(logs.exp() * logs).sum(-1).mean().item()
    temperature = 0.5 + 0.5 * entropy / math.log(VOCABULARY)
    stems = history[:, :end] % STEMS
    pairs, last = stems.unfold(1, 2, 1), stems[:, None, -2:]
    again = (pairs[:, :-1] == last).all(-1).any(-1).tolist()
    for row, repeats in enumerate(again):
        if repeats:
            logits[row] = logits[row].index_fill(0, history[row, :end], -30.0)
    likeliest, which = (logits / temperature).topk(60)
    chances = likeliest.softmax(-1)
    ids = which.gather(-1, (chances / torch.empty_like(chances).exponential_()).argmax(-1, keepdim=True))
    tokens = ids[:, 0].tolist()
    surprises = logits.log_softmax(-1).gather(-1, ids)[:, 0].cpu().tolist()
    return ids, tokens, surprises


def write(model, record, mark, prompts, steps, warm_up=False):
    length, texts, surprises = len(prompts[0]), [[] for _ in prompts], []
    history = torch.zeros(BATCH, length + steps, dtype=torch.int64, device="cuda")
    start = begin = now()
    first, ids = None, torch.tensor(prompts).to("cuda")
    for i in range(steps + 1):
        end_place = length + i
        if i:
            begin = now()
        with mark("pass"):
            history[:, end_place - ids.shape[1]:end_place] = ids
            logits = model.forward(ids, end_place - ids.shape[1])
        with mark("choice"):
            ids, tokens, surprise = choose(logits, history, end_place)
        end = now()
        if first is None:
            first = end
            record.step("prefill", begin, end, BATCH * length, BATCH, warm_up)
        else:
            record.step("decode", begin, end, BATCH, BATCH, warm_up)
        surprises += surprise
        for text, token in zip(texts, tokens):
            text.append(token)
    for text in texts:
        record.request(start, first, end, length, len(text), warm_up)
    assert all(0 <= token < VOCABULARY for text in texts for token in text)
    assert all(math.isfinite(surprise) for surprise in surprises)


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance, model = random.Random(options.seed), Model(mark)
    torch.cuda.synchronize()

    def prompts(low, high):
        length = chance.randrange(low, high + 1)
        return [[chance.randrange(VOCABULARY) for _ in range(length)] for _ in range(BATCH)]

    write(model, record, mark, prompts(128, 128), 3, warm_up=True)
    for number, steps in enumerate(split(options.steps, max(3, min(20, options.steps // 8)))):
        write(model, record, mark, prompts(*BANDS[number % len(BANDS)]), steps)
    record.finish()


main()
