"""Sequential Monte Carlo: eight versions of one text, weighted by a judge after each token and drawn anew when few of them count.

A step is one pass of all versions through the model and what the host asks afterwards; it ends when the tokens are in a list. In the
pass every fourth layer is followed by the question whether fp16 has overflowed. Then the host asks whether the logits are finite, how
many versions still count, when they are few for all weights (and puts the caches of all layers into a new order), for the mean
log-probability, and for the tokens. A prefill step takes in the prompt once, copies its keys and values for all versions and
draws the first tokens of them. A request is one text, so a step is of one sequence and yields one token of it. With --ranges a step
has "model" and "weigh" side by side, and in the latter "draw anew" where that happens.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, VERSIONS = 50304, 160, 8
WIDTH, INNER, LAYERS = 2048, 8192, 20
HEADS, SIZE = 16, 128
TURNED = 64  # numbers of each head that are rotated
TYPE = torch.float16


def weights(*shape, scale=1.0):
    return torch.empty(*shape, device="cuda", dtype=TYPE).normal_(0, scale * shape[-1] ** -0.5)


class Model:
    def __init__(self):
        self.embedding = torch.empty(VOCABULARY, WIDTH, device="cuda", dtype=TYPE).normal_(0, 0.05)
        one, zero = torch.ones(WIDTH, device="cuda", dtype=TYPE), torch.zeros(WIDTH, device="cuda", dtype=TYPE)
        self.layers = [dict(before=(one, zero), qkv=weights(3 * WIDTH, WIDTH), out=weights(WIDTH, WIDTH, scale=0.3),
                            between=(one, zero), up=weights(INNER, WIDTH), up_bias=weights(INNER),
                            down=weights(WIDTH, INNER, scale=0.3), down_bias=zero) for _ in range(LAYERS)]
        self.last = (one, zero)
        self.judge = weights(WIDTH, scale=0.8).float()
        self.keys = torch.zeros(LAYERS, VERSIONS, HEADS, LENGTH, SIZE, device="cuda", dtype=TYPE)
        self.values = torch.zeros_like(self.keys)
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(), 1e-4 ** (torch.arange(0, TURNED, 2, device="cuda") / TURNED))
        self.cos, self.sin = angle.cos().to(TYPE), angle.sin().to(TYPE)

    def turned(self, x, start, end):
        a, b, rest = x.split((TURNED // 2, TURNED // 2, SIZE - TURNED), -1)
        cos, sin = self.cos[start:end], self.sin[start:end]
        return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)

    def __call__(self, ids, start):
        """The last state of each row of `ids` (versions x count), whose places begin at `start`."""
        rows, count = ids.shape
        end = start + count
        later = torch.ones(count, end, dtype=torch.bool, device="cuda").triu(start + 1) if count > 1 else None
        x = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            keys, values = self.keys[i, :rows], self.values[i, :rows]
            qkv = F.linear(F.layer_norm(x, (WIDTH,), *layer["before"]), layer["qkv"])
            q, k, v = qkv.view(rows, count, 3 * HEADS, SIZE).transpose(1, 2).chunk(3, 1)
            keys[:, :, start:end] = self.turned(k, start, end)
            values[:, :, start:end] = v
            scores = (self.turned(q, start, end) @ keys[:, :, :end].transpose(2, 3)).float() * SIZE ** -0.5
            if later is not None:
                scores = scores.masked_fill(later, float("-inf"))
            heads = scores.softmax(-1).to(TYPE) @ values[:, :, :end]
            x = x + F.linear(heads.transpose(1, 2).reshape(rows, count, WIDTH), layer["out"])
            y = F.gelu(F.linear(F.layer_norm(x, (WIDTH,), *layer["between"]), layer["up"], layer["up_bias"]), approximate="tanh")
            x = x + F.linear(y, layer["down"], layer["down_bias"])
            if i % 4 == 3 and bool(torch.isinf(x).any()):
                x = x.clamp(-60000, 60000)
        return F.layer_norm(x[:, -1], (WIDTH,), *self.last)

    def reorder(self, parents, end):
        for keys, values in zip(self.keys, self.values):
            keys[:, :, :end] = keys[:, :, :end].index_select(0, parents)
            values[:, :, :end] = values[:, :, :end].index_select(0, parents)


def systematic(shares, offset):
    """The parents of the versions to come: one pointer into the shares for each, all at the same distance."""
    parents, parent, reached = [], 0, shares[0]
    for i in range(len(shares)):
        while reached < (i + offset) / len(shares) and parent < len(shares) - 1:
            parent += 1
            reached += shares[parent]
        parents.append(parent)
    return parents


class Writer:
    def __init__(self, model, chance, mark):
        self.model, self.chance, self.mark = model, chance, mark

    def weigh(self, states, log_weights, texts, end):
        """The next tokens of all versions, on the GPU; `log_weights` and `texts` are brought up to date."""
        logits = F.linear(states, self.model.embedding).float() / 0.9
        if not bool(torch.isfinite(logits).all()):
            raise FloatingPointError("logits")
        logs = logits.log_softmax(-1)
        tokens = torch.multinomial(logs.exp(), 1)
        log_weights += states.float() @ self.model.judge
        shares = log_weights.softmax(0)
        counting = (1 / shares.square().sum()).item()
        assert 0.99 < counting < VERSIONS + 0.01
        if counting < VERSIONS / 2:
            with self.mark("draw anew"):
                chosen = systematic(shares.cpu().tolist(), self.chance.random())
                parents = torch.tensor(chosen, device="cuda")
                self.model.reorder(parents, end)
                tokens, logs = tokens.index_select(0, parents), logs.index_select(0, parents)
                texts[:] = [list(texts[parent]) for parent in chosen]
                log_weights.zero_()
        self.surprise -= logs.gather(1, tokens).mean().item()
        for text, token in zip(texts, tokens[:, 0].tolist()):
            text.append(token)
        return tokens

    def write(self, record, prompt, steps, warm_up=False):
        self.surprise, texts, length = 0.0, [[] for _ in range(VERSIONS)], len(prompt)
        start = now()
        with self.mark("model"):
            states = self.model(torch.tensor([prompt]).to("cuda"), 0).expand(VERSIONS, WIDTH)
            for cache in (self.model.keys, self.model.values):
                cache[:, 1:, :, :length] = cache[:, :1, :, :length]
        with self.mark("weigh"):
            log_weights = torch.zeros(VERSIONS, device="cuda")
            tokens = self.weigh(states, log_weights, texts, length)
        first = end = now()
        record.step("prefill", start, first, length, 1, warm_up)
        for i in range(steps):
            begin = now()
            with self.mark("model"):
                states = self.model(tokens, length + i)
            with self.mark("weigh"):
                tokens = self.weigh(states, log_weights, texts, length + i + 1)
            end = now()
            record.step("decode", begin, end, 1, 1, warm_up)
        record.request(start, first, end, length, 1 + steps, warm_up)
        assert self.surprise > 0 and all(len(text) == 1 + steps for text in texts)
        assert all(0 <= token < VOCABULARY for text in texts for token in text)


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance, record = random.Random(options.seed), Record()
    writer = Writer(Model(), chance, ranges(options.ranges))

    def prompt(length):
        return [chance.randrange(VOCABULARY) for _ in range(length)]

    writer.write(record, prompt(96), 3, warm_up=True)
    for steps in split(options.steps, max(8, min(25, options.steps // 6))):
        writer.write(record, prompt(chance.randrange(84, 109)), steps)
    record.finish()


main()
