"""Editing by prompt lookup: what followed the last few tokens when they stood in the text before is the draft.

A decode step is one round: the host looks the last three, two or one tokens up in all that was read and written,
sends the last token with what followed there (up to eight tokens) through the model in one pass, and fetches a draw
for each of them. The draft holds as far as the draws agree with it, and the first that does not is the next token. A
step starts before the looking up and ends when the draws are on the host. A request is one text. With --ranges a
request has "edit" around it, inside "read" for the prompt and "round" for each step, with the draft's length.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
import random

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, CYCLE = 32000, 1024, 8
WIDTH, INNER, LAYERS, HEADS, SIZE = 2048, 5632, 20, 16, 128
DRAFTS = {3: 8, 2: 5, 1: 2}  # by the number of tokens found again
MADE = dict(device="cuda", dtype=torch.bfloat16)


def linear(rows, columns, scale=1.0):
    layer = nn.Linear(columns, rows, bias=False, **MADE)
    nn.init.normal_(layer.weight, std=0.02 * scale)
    return layer


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH, **MADE), nn.LayerNorm(WIDTH, **MADE)
        self.query, self.key, self.value = (linear(HEADS * SIZE, WIDTH) for _ in range(3))
        self.gate, self.up = linear(INNER, WIDTH), linear(INNER, WIDTH)
        # Small, so that the last token has its say through all layers.
        self.out, self.down = linear(WIDTH, HEADS * SIZE, 0.15), linear(WIDTH, INNER, 0.15)
        self.keys = torch.zeros(HEADS, LENGTH, SIZE, **MADE)
        self.values = torch.zeros_like(self.keys)

    def forward(self, x, place, cos, sin, hidden):
        count = x.shape[0]
        end = place + count
        y = self.before(x)
        q = turned(self.query(y).view(count, HEADS, SIZE).transpose(0, 1), cos, sin)
        self.keys[:, place:end] = turned(self.key(y).view(count, HEADS, SIZE).transpose(0, 1), cos, sin)
        self.values[:, place:end] = self.value(y).view(count, HEADS, SIZE).transpose(0, 1)
        scores = torch.bmm(q, self.keys[:, :end].transpose(1, 2)).float() * SIZE ** -0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        heads = torch.bmm(scores.softmax(-1).to(torch.bfloat16), self.values[:, :end])
        x = x + self.out(heads.transpose(0, 1).reshape(count, HEADS * SIZE))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self, follower):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.last = nn.LayerNorm(WIDTH, **MADE)
        # Random weights would never say again what was said before. So the head makes likely, for each token, the one
        # that follows it in its cycle, and some few in a hundred draws are another.
        self.head = torch.zeros(VOCABULARY, WIDTH, **MADE)
        self.head[follower] = self.embedding.weight.detach() * (7.5 / WIDTH)
        speeds = 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE)
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(), speeds)
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)
        self.places = torch.arange(LENGTH, device="cuda")

    def forward(self, ids, place, all_rows):
        """Draws a token for each row of `ids`, or for the last alone."""
        count = ids.shape[0]
        end = place + count
        hidden = self.places[:end] > self.places[place:end, None] if count > 1 else None
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, place, self.cos[place:end], self.sin[place:end], hidden)
        self.logits = F.linear(self.last(x if all_rows else x[-1:]), self.head).float()
        values, numbers = self.logits.topk(20, -1)
        chosen = (values.softmax(-1) / torch.empty_like(values).exponential_()).argmax(-1, keepdim=True)
        return numbers.gather(-1, chosen)[:, 0]


def look_up(text):
    """What followed the last tokens of `text` where they stood most recently; the more are found again the more."""
    for size in (3, 2, 1):
        wanted = text[-size:]
        for at in range(len(text) - size - 1, -1, -1):
            if text[at:at + size] == wanted:
                return text[at + size:at + size + DRAFTS[size]]
    return []


def edit(model, record, mark, prompt, rounds, warm_up=False):
    with mark("edit"):
        start = now()
        with mark("read"):
            text = prompt + model(torch.tensor(prompt, device="cuda"), 0, False).tolist()
        first = end = now()
        record.step("prefill", start, first, len(prompt), 1, warm_up)
        for _ in range(rounds):
            begin = now()
            draft = look_up(text)
            with mark(f"round {len(draft)}"):
                # The text's last token is not in the cache yet; drafts that do not hold are overwritten there.
                ids = torch.tensor(text[-1:] + draft, device="cuda")
                drawn = model(ids, len(text) - 1, True).tolist()
            end = now()
            held = 0
            while held < len(draft) and draft[held] == drawn[held]:
                held += 1
            text += drawn[:held + 1]
            record.step("decode", begin, end, held + 1, 1, warm_up)
    record.request(start, first, end, len(prompt), len(text) - len(prompt), warm_up)
    assert all(0 <= token < VOCABULARY for token in text) and len(text) <= LENGTH
    assert bool(torch.isfinite(model.logits).all())


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance = random.Random(options.seed)
    # Each token has one that follows it, in cycles of eight.
    order = torch.randperm(VOCABULARY).view(-1, CYCLE)
    follower = torch.empty(VOCABULARY, dtype=torch.int64)
    follower[order] = order.roll(-1, 1)
    model, follower = Model(follower.to("cuda")).eval(), follower.tolist()
    torch.cuda.synchronize()

    def prompt(length):
        # Pieces of cycles, some of them more than once.
        starts, text = [chance.randrange(VOCABULARY) for _ in range(6)], []
        while len(text) < length:
            token = chance.choice(starts)
            for _ in range(chance.randrange(5, 24)):
                text.append(token)
                token = follower[token]
        return text[:length]

    edit(model, record, mark, prompt(96), 4, warm_up=True)
    for rounds in split(options.steps, 3 + options.steps // 40):
        edit(model, record, mark, prompt(chance.randrange(80, 400)), rounds)
    record.finish()


main()
