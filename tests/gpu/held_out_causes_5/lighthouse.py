"""Keeps the logs of four lighthouses with a recurrent model: each head has a matrix of what it knows, which fades and is
added to with each token, and there is no cache of keys and values.

A step is one decode step, from its first call until the tokens are in a list on the host. Prompts are read token by
token.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Shape, begin, finish, greedy, prompts, replayed, serve

BATCH, PROMPT, VOCABULARY = 4, 8, 32000
SHAPE = Shape(width=1536, inner=4096, layers=20, heads=12, vocabulary=VOCABULARY, batch=BATCH)


class Lamp(nn.Module):
    def __init__(self):
        super().__init__()
        width = SHAPE.width
        self.first, self.second, self.third = [nn.LayerNorm(width, **SHAPE.made()) for _ in range(3)]
        self.shift = nn.Parameter(torch.rand(2, width, **SHAPE.made()))
        self.query, self.key, self.value = [SHAPE.linear(width, width) for _ in range(3)]
        self.gate, self.out, self.fade = [SHAPE.linear(width, width) for _ in range(3)]
        self.wide, self.narrow = SHAPE.linear(width, SHAPE.inner), SHAPE.linear(SHAPE.inner, width)
        self.known = torch.zeros(BATCH, SHAPE.heads, SHAPE.size, SHAPE.size, device="cuda")
        self.before = torch.zeros(2, BATCH, width, **SHAPE.made())

    def mix(self, x, i):
        """`x` and the one before it."""
        mixed = x + (self.before[i] - x) * self.shift[i]
        self.before[i].copy_(x)
        return mixed

    def heads(self, x):
        return x.view(BATCH, SHAPE.heads, SHAPE.size).float()

    def forward(self, x):
        mixed = self.mix(self.first(x), 0)
        query, key, value = [self.heads(part(mixed)) for part in (self.query, self.key, self.value)]
        key = key / key.norm(dim=-1, keepdim=True).clamp(min=1e-6)
        stays = torch.sigmoid(self.heads(self.fade(mixed)) + 2).unsqueeze(-1)
        self.known.mul_(stays).add_(key.unsqueeze(-1) * value.unsqueeze(-2))
        seen = torch.matmul(query.unsqueeze(-2), self.known).view(BATCH, SHAPE.width).to(SHAPE.dtype)
        x = x + self.out(self.third(seen) * F.silu(self.gate(mixed)))
        mixed = self.mix(self.second(x), 1)
        return x + self.narrow(torch.relu(self.wide(mixed)).square())


class Keeper:
    def __init__(self, graphed):
        self.embedding = nn.Embedding(VOCABULARY, SHAPE.width, **SHAPE.made())
        self.lamps = [Lamp().eval() for _ in range(SHAPE.layers)]
        self.last = nn.LayerNorm(SHAPE.width, **SHAPE.made())
        self.head = SHAPE.linear(SHAPE.width, VOCABULARY)
        self.tokens = torch.zeros(BATCH, dtype=torch.long, device="cuda")
        self.advance = replayed(self.step) if graphed else self.step

    def step(self):
        x = self.embedding(self.tokens)
        for lamp in self.lamps:
            x = lamp(x)
        self.tokens.copy_(greedy(self.head(self.last(x)))[:, 0])

    def start(self, prompt):
        for lamp in self.lamps:
            lamp.known.zero_()
            lamp.before.zero_()
        for i in range(prompt.shape[1]):
            self.tokens.copy_(prompt[:, i])
            self.advance()
        return self.tokens.tolist()

    def following(self, i):
        self.advance()
        return self.tokens.tolist()


def main():
    options, record = begin(__doc__)
    keeper = Keeper(options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, keeper.start, keeper.following, warm_up=True)
    texts = serve(record, prompt, options.steps, keeper.start, keeper.following)
    finish(record, texts, VOCABULARY)


main()
