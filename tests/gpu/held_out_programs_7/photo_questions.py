"""Questions of which some come with a photo: a vision tower, and layers of the language model that look at what it saw.

A step is one pass through the language model until its token is on the host: a prefill step takes in the question,
and before it the photo, if there is a new one, a decode step one token of the answer. A request is one question.
With --ranges a request has a range with its kind in its words, and inside it "look" (for a new photo), "read" and a
"word" for each further token.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH = 32000, 192
WIDTH, INNER, LAYERS, HEADS, KV_HEADS, SIZE = 2048, 5632, 16, 16, 4, 128
LOOK_EVERY, GROUP = 4, HEADS // KV_HEADS
SEEN_WIDTH, SEEN_LAYERS, SEEN_HEADS, PATCH, PIXELS = 1024, 16, 16, 14, 448
PLACES = (PIXELS // PATCH) ** 2
KINDS = ("photo", "text", "again", "text", "photo", "again", "text", "again", "photo", "text", "text")
MADE = dict(device="cuda", dtype=torch.bfloat16)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def divided(x, heads):
    batch, count, width = x.shape
    return x.view(batch, count, heads, width // heads).transpose(1, 2)


def joined(x):
    batch, heads, count, size = x.shape
    return x.transpose(1, 2).reshape(batch, count, heads * size)


class TowerLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(SEEN_WIDTH, **MADE), nn.LayerNorm(SEEN_WIDTH, **MADE)
        self.qkv, self.out = nn.Linear(SEEN_WIDTH, 3 * SEEN_WIDTH, **MADE), nn.Linear(SEEN_WIDTH, SEEN_WIDTH, **MADE)
        self.up = nn.Linear(SEEN_WIDTH, 4 * SEEN_WIDTH, **MADE)
        self.down = nn.Linear(4 * SEEN_WIDTH, SEEN_WIDTH, **MADE)

    def forward(self, x):
        q, k, v = (divided(part, SEEN_HEADS) for part in self.qkv(self.before(x)).chunk(3, -1))
        x = x + self.out(joined(F.scaled_dot_product_attention(q, k, v)))
        return x + self.down(F.gelu(self.up(self.between(x)), approximate="tanh"))


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, SEEN_WIDTH, PATCH, PATCH, **MADE)
        self.places = nn.Parameter(torch.randn(PLACES, SEEN_WIDTH, **MADE) * 0.02)
        self.layers = nn.ModuleList(TowerLayer() for _ in range(SEEN_LAYERS))
        self.last = nn.LayerNorm(SEEN_WIDTH, **MADE)

    def forward(self, photo):
        x = self.patches((photo.to(torch.bfloat16) / 127.5 - 1)[None]).flatten(2).transpose(1, 2) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH, 1e-6, **MADE)
        self.gate, self.up = nn.Linear(WIDTH, INNER, bias=False, **MADE), nn.Linear(WIDTH, INNER, bias=False, **MADE)
        self.down = nn.Linear(INNER, WIDTH, bias=False, **MADE)

    def forward(self, x):
        y = self.norm(x)
        return self.down(F.silu(self.gate(y)) * self.up(y))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.feed = nn.RMSNorm(WIDTH, 1e-6, **MADE), Feed()
        self.query = nn.Linear(WIDTH, HEADS * SIZE, bias=False, **MADE)
        self.key = nn.Linear(WIDTH, KV_HEADS * SIZE, bias=False, **MADE)
        self.value = nn.Linear(WIDTH, KV_HEADS * SIZE, bias=False, **MADE)
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False, **MADE)
        self.keys = torch.zeros(1, KV_HEADS, LENGTH, SIZE, **MADE)
        self.values = torch.zeros_like(self.keys)

    def forward(self, x, start, cos, sin):
        end = start + x.shape[1]
        y = self.norm(x)
        q = turned(divided(self.query(y), HEADS), cos, sin)
        self.keys[:, :, start:end] = turned(divided(self.key(y), KV_HEADS), cos, sin)
        self.values[:, :, start:end] = divided(self.value(y), KV_HEADS)
        keys, values = (kept[:, :, :end].repeat_interleave(GROUP, 1) for kept in (self.keys, self.values))
        x = x + self.out(joined(F.scaled_dot_product_attention(q, keys, values, is_causal=start == 0)))
        return x + self.feed(x)


class LookingLayer(nn.Module):
    """Attends to the photo, whose keys and values stay until there is another one."""
    def __init__(self):
        super().__init__()
        self.norm, self.feed = nn.RMSNorm(WIDTH, 1e-6, **MADE), Feed()
        self.query = nn.Linear(WIDTH, HEADS * SIZE, bias=False, **MADE)
        self.key = nn.Linear(SEEN_WIDTH, HEADS * SIZE, bias=False, **MADE)
        self.value = nn.Linear(SEEN_WIDTH, HEADS * SIZE, bias=False, **MADE)
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False, **MADE)
        self.gates = nn.Parameter(torch.full((2,), 0.5, **MADE))

    def look(self, seen):
        self.keys, self.values = divided(self.key(seen), HEADS), divided(self.value(seen), HEADS)

    def forward(self, x):
        heads = F.scaled_dot_product_attention(divided(self.query(self.norm(x)), HEADS), self.keys, self.values)
        x = x + self.gates[0].tanh() * self.out(joined(heads))
        return x + self.gates[1].tanh() * self.feed(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower, self.embedding = Tower(), nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.looking = nn.ModuleList(LookingLayer() for _ in range(LAYERS // LOOK_EVERY))
        self.last, self.head = nn.RMSNorm(WIDTH, 1e-6, **MADE), nn.Linear(WIDTH, VOCABULARY, bias=False, **MADE)
        speeds = 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE)
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(), speeds)
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)

    def look(self, photo):
        seen = self.tower(photo)
        for layer in self.looking:
            layer.look(seen)

    def forward(self, ids, start, seeing):
        end = start + ids.shape[1]
        x = self.embedding(ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, start, self.cos[start:end], self.sin[start:end])
            if seeing and i % LOOK_EVERY == LOOK_EVERY - 1:
                x = self.looking[i // LOOK_EVERY](x)
        return self.head(self.last(x[:, -1]))


def draw(logits):
    values, places = logits.float().topk(40, -1)
    chances = (values / 0.9).softmax(-1)
    return places.gather(-1, (chances / torch.empty_like(chances).exponential_()).argmax(-1, keepdim=True))


def answer(record, mark, model, kind, photo, question, steps, warm_up=False):
    seeing, text = kind != "text", []
    with mark(f"question: {kind}"):
        start = now()
        if kind == "photo":
            with mark("look"):
                model.look(photo.to("cuda", non_blocking=True))
        with mark("read"):
            ids = torch.tensor([question]).pin_memory().to("cuda", non_blocking=True)
            logits = model(ids, 0, seeing)
            token = draw(logits)
            text.append(token.item())
        first = end = now()
        record.step("prefill", start, first, len(question), 1, warm_up)
        for i in range(steps):
            begin = now()
            with mark("word"):
                logits = model(token, len(question) + i, seeing)
                token = draw(logits)
                text.append(token.item())
            end = now()
            record.step("decode", begin, end, 1, 1, warm_up)
    record.request(start, first, end, len(question), len(text), warm_up)
    assert bool(torch.isfinite(logits).all()) and all(0 <= token < VOCABULARY for token in text)


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would build a plan for each new length
    chance, mark, record = random.Random(options.seed), ranges(options.ranges), Record()
    model = Model().eval()
    photos = [torch.randint(0, 256, (3, PIXELS, PIXELS), dtype=torch.uint8).pin_memory() for _ in range(6)]
    torch.cuda.synchronize()

    def question(fewest, most):
        return [chance.randrange(VOCABULARY) for _ in range(chance.randint(fewest, most))]

    answer(record, mark, model, "photo", photos[0], question(48, 48), 3, warm_up=True)
    answer(record, mark, model, "text", None, question(48, 48), 3, warm_up=True)
    for number, steps in enumerate(split(options.steps, max(8, min(25, options.steps // 6)))):
        kind = KINDS[number % len(KINDS)]
        words = question(64, 144) if kind == "text" else question(16, 48)
        answer(record, mark, model, kind, chance.choice(photos), words, steps)
    record.finish()


main()
