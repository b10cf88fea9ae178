"""A sampler that marks its text secretly and looks at its own choice from all sides: seven `.item()` calls a token.

A step is one pass through the model and the draw of a token, until the seventh `.item()`, the token's rank, has
returned: a prefill step takes in a prompt, a decode step one token. The host learns whether the logits are finite, their
entropy, from which it sets how strongly to mark, how likely a marked word is, the word, whether it is a marked one, its
log-probability and its rank. A request is one text. With --ranges a step has "layers" and, beside it, "mark" with "ask"
for each of the seven inside.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split
from parts import MADE, begun, prompt, tables, turned, weight

VOCABULARY, LENGTH = 32000, 768
WIDTH, INNER, LAYERS, HEADS = 2048, 5632, 20, 16
SIZE, TURNED, LATENT = 128, 64, 512  # of a head without and with its place, and of what is cached instead of keys and values
BANDS = ((70, 120), (400, 560), (180, 300))  # of prompt lengths, by turns


class Model:
    """In the manner of DeepSeek-V2: one latent vector and one turned key a place, which all heads share."""

    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one, self.narrow = torch.ones(WIDTH, **MADE), torch.ones(LATENT, **MADE)
        self.layers = [dict(q=weight(HEADS * (SIZE + TURNED), WIDTH), down=weight(LATENT + TURNED, WIDTH),
                            k=weight(HEADS * SIZE, LATENT).view(HEADS, SIZE, LATENT),
                            v=weight(HEADS * LATENT, SIZE).view(HEADS, LATENT, SIZE),
                            out=weight(WIDTH, HEADS * SIZE), gate=weight(INNER, WIDTH), up=weight(INNER, WIDTH),
                            back=weight(WIDTH, INNER)) for _ in range(LAYERS)]
        self.latents = torch.zeros(LAYERS, LENGTH, LATENT, **MADE)
        self.keys = torch.zeros(LAYERS, LENGTH, TURNED, **MADE)
        self.columns = torch.arange(LENGTH, device="cuda")
        self.cos, self.sin = tables(LENGTH, TURNED)

    def logits(self, ids, start):
        count = ids.shape[0]
        end = start + count
        cos, sin = self.cos[start:end], self.sin[start:end]
        later = self.columns[:end] > self.columns[start:end, None]
        x = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            h = F.layer_norm(x, (WIDTH,), self.one)
            latent, key = F.linear(h, layer["down"]).split((LATENT, TURNED), -1)
            self.latents[i, start:end] = F.layer_norm(latent, (LATENT,), self.narrow)
            self.keys[i, start:end] = turned(key, cos, sin)
            q, turning = F.linear(h, layer["q"]).view(count, HEADS, SIZE + TURNED).transpose(0, 1).split((SIZE, TURNED), -1)
            q = torch.bmm(q, layer["k"])
            scores = q @ self.latents[i, :end].t() + turned(turning, cos, sin) @ self.keys[i, :end].t()
            scores = scores.float() * (SIZE + TURNED) ** -0.5
            shares = scores.masked_fill(later, -math.inf).softmax(-1).to(torch.bfloat16)
            heads = torch.bmm(shares @ self.latents[i, :end], layer["v"])
            x = x + F.linear(heads.transpose(0, 1).reshape(count, HEADS * SIZE), layer["out"])
            h = F.layer_norm(x, (WIDTH,), self.one)
            x = x + F.linear(F.silu(F.linear(h, layer["gate"])) * F.linear(h, layer["up"]), layer["back"])
        return F.linear(F.layer_norm(x[-1], (WIDTH,), self.one), self.head).float()


class Marker:
    def __init__(self, mark):
        self.mark = mark
        self.words = torch.arange(VOCABULARY, device="cuda")
        self.green = 0

    def ask(self, tensor):
        with self.mark("ask"):
            return tensor.item()

    def choose(self, logits, last):
        finite = self.ask(torch.isfinite(logits).all())
        chances = logits.softmax(-1)
        entropy = self.ask(-(chances * (chances + 1e-12).log()).sum())
        green = (self.words * 7919 + last * 104729) % 1009 < 500
        likely = self.ask((chances * green).sum())
        strength = 2.0 * (1.0 - likely) * min(1.0, entropy / 8.0)
        marked = (logits + strength * green).softmax(-1)
        which = (marked / torch.empty_like(marked).exponential_().clamp_(min=1e-20)).argmax(-1)
        token = int(self.ask(which))
        self.green += bool(self.ask(green[token]))
        surprise = self.ask(marked[token].log())
        rank = int(self.ask((logits > logits[token]).sum()))
        assert finite and surprise < 1e-3 and 0 <= rank < VOCABULARY
        return token


def write(model, marker, record, mark, tokens, steps, warm_up=False):
    count = len(tokens)
    start = now()
    with mark("layers"):
        logits = model.logits(torch.tensor(tokens).to("cuda"), 0)
    with mark("mark"):
        text = [marker.choose(logits, tokens[-1])]
    first = end = now()
    record.step("prefill", start, first, count, 1, warm_up)
    for i in range(steps):
        begin = now()
        with mark("layers"):
            logits = model.logits(torch.tensor(text[-1:]).to("cuda"), count + i)
        with mark("mark"):
            text.append(marker.choose(logits, text[-1]))
        end = now()
        record.step("decode", begin, end, 1, 1, warm_up)
    record.request(start, first, end, count, len(text), warm_up)
    assert all(0 <= token < VOCABULARY for token in text) and 0 <= marker.green


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, model, marker = begun(options.seed), Model(), Marker(mark)
    torch.cuda.synchronize()
    write(model, marker, record, mark, prompt(chance, VOCABULARY, 150), 3, warm_up=True)
    for number, steps in enumerate(split(options.steps, max(3, min(30, options.steps // 7)))):
        length = chance.randrange(*BANDS[number % len(BANDS)])
        write(model, marker, record, mark, prompt(chance, VOCABULARY, length), steps)
    record.finish()


main()
