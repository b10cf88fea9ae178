"""A poem for one reader, with a model written down as its paper has it: each formula one line, nothing joined.

A step is one decode step, from its first call until the token is in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from common_loop import begin, finish, prompts, serve
from common_model import replayed

PROMPT, ROOM, VOCABULARY, PENALTY = 96, 512, 32000, 1.1
WIDTH, INNER, LAYERS, HEADS, SIZE = 2048, 5632, 14, 16, 128
MADE = dict(device="cuda", dtype=torch.bfloat16)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, **MADE))

    def forward(self, x):
        wide = x.float()
        square = wide.pow(2).mean(-1, keepdim=True)
        return self.weight * (wide * torch.rsqrt(square + 1e-6)).to(x.dtype)


def turn(x, cos, sin):
    half = SIZE // 2
    other = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos + other * sin


class Verse(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.for_query, self.for_key = Norm(WIDTH), Norm(WIDTH), Norm(SIZE), Norm(SIZE)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False, **MADE) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False, **MADE) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False, **MADE)
        self.keys = torch.zeros(1, HEADS, ROOM, SIZE, **MADE)
        self.values = torch.zeros(1, HEADS, ROOM, SIZE, **MADE)

    def forward(self, x, position, cos, sin, mask):
        count = x.shape[1]
        normed = self.first(x)
        query = self.for_query(self.query(normed).view(1, count, HEADS, SIZE)).transpose(1, 2)
        key = self.for_key(self.key(normed).view(1, count, HEADS, SIZE)).transpose(1, 2)
        value = self.value(normed).view(1, count, HEADS, SIZE).transpose(1, 2)
        query, key = turn(query, cos, sin), turn(key, cos, sin)
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        heads = F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=mask)
        x = x + self.out(heads.transpose(1, 2).reshape(1, count, WIDTH))
        normed = self.second(x)
        gate = self.gate(normed)
        return x + self.down(gate * torch.sigmoid(gate) * self.up(normed))


class Poet:
    def __init__(self, fixed):
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.verses = nn.ModuleList(Verse() for _ in range(LAYERS))
        self.last, self.head = Norm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False, **MADE)
        self.speed = 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE)
        self.columns = torch.arange(ROOM, device="cuda")
        self.said = torch.zeros(1, VOCABULARY, device="cuda", dtype=torch.bool)
        self.token = torch.zeros(1, 1, device="cuda", dtype=torch.long)
        self.position = torch.zeros(1, device="cuda", dtype=torch.long)
        self.advance = replayed(self.step) if fixed else self.step

    def read(self, ids, position):
        """The next token after `ids`, which stand at the places `position`."""
        angle = position.unsqueeze(-1) * torch.cat((self.speed, self.speed))
        cos, sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)
        mask = torch.zeros(1, 1, ids.shape[1], ROOM, **MADE)
        mask = mask.masked_fill(self.columns > position.unsqueeze(-1), float("-inf"))
        x = self.embedding(ids)
        for verse in self.verses:
            x = verse(x, position, cos, sin, mask)
        logits = self.head(self.last(x[:, -1])).float()
        lower = torch.where(logits > 0, logits / PENALTY, logits * PENALTY)
        return torch.where(self.said, lower, logits).argmax(-1, keepdim=True)

    def step(self):
        self.token.copy_(self.read(self.token, self.position))
        self.said.scatter_(1, self.token, True)
        self.position.add_(1)

    def start(self, prompt):
        self.said.zero_()
        self.token.copy_(self.read(prompt, self.columns[:prompt.shape[1]]))
        self.said.scatter_(1, self.token, True)
        self.position.fill_(prompt.shape[1])
        return self.token[:, 0].tolist()

    def following(self, i):
        self.advance()
        return self.token[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    poet = Poet(options.fixed)
    prompt = prompts(options.seed, 1, PROMPT, VOCABULARY)
    serve(record, prompt, 1, poet.start, poet.following, warm_up=True)
    texts = serve(record, prompt, options.steps, poet.start, poet.following)
    finish(record, texts, VOCABULARY)


main()
