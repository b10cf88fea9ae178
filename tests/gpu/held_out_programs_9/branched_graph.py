"""One text at a time by a CUDA graph with branches: in each layer attention runs on one stream and the MLP on another.

A step is one pass through the model and the draw of a token, until that has been copied to pinned memory and the whole
device waited for (`torch.cuda.synchronize()`): a prefill step takes in a prompt, eagerly and on one stream, a decode
step replays the graph. A request is one text. With --ranges a text has "article" around it, inside "prompt" for the
prefill step and one range, "all tokens", around all decode steps; one more is around the capture.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
import random

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH = 51200, 1024
WIDTH, INNER, LAYERS, HEADS, SIZE = 2048, 8192, 22, 16, 128
LEAST = 0.05  # a token's chance must be at least this share of the likeliest one's
BANDS = ((64, 140), (520, 768), (180, 400))  # of prompt lengths, by turns
MADE = dict(device="cuda", dtype=torch.bfloat16)


def weight(rows, columns):
    return torch.empty(rows, columns, **MADE).normal_(0, columns ** -0.5)


def turned(x, cos, sin):
    """Each two neighbours are turned together."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)


class Engine:
    """In the manner of GPT-J: one norm for attention and MLP, which are side by side; one matrix for both ends."""

    def __init__(self):
        self.embedding = weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.layers = [dict(qkv=weight(3 * WIDTH, WIDTH), out=weight(WIDTH, WIDTH), up=weight(INNER, WIDTH),
                            down=weight(WIDTH, INNER)) for _ in range(LAYERS)]
        self.keys = torch.zeros(LAYERS, HEADS, LENGTH, SIZE, **MADE)
        self.values = torch.zeros_like(self.keys)
        self.columns = torch.arange(LENGTH, device="cuda")
        angle = torch.outer(self.columns.float(), 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE))[:, None]
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)
        self.branch = torch.cuda.Stream()
        # What the graph reads and writes: the last token and the place that it goes to.
        self.ids = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.place = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.fetched = torch.zeros(1, dtype=torch.int64, pin_memory=True)

    def attention(self, i, h, places, span, later, cos, sin):
        count, layer = h.shape[0], self.layers[i]
        q, k, v = F.linear(h, layer["qkv"]).view(count, 3, HEADS, SIZE).unbind(1)
        self.keys[i].index_copy_(1, places, turned(k, cos, sin).transpose(0, 1).contiguous())
        self.values[i].index_copy_(1, places, v.transpose(0, 1).contiguous())
        scores = (turned(q, cos, sin).transpose(0, 1) @ self.keys[i, :, :span].transpose(1, 2)).float() * SIZE ** -0.5
        shares = scores.masked_fill(later, -math.inf).softmax(-1).to(torch.bfloat16)
        heads = (shares @ self.values[i, :, :span]).transpose(0, 1).reshape(count, WIDTH)
        return F.linear(heads, layer["out"])

    def mlp(self, i, h):
        return F.linear(F.gelu(F.linear(h, self.layers[i]["up"])), self.layers[i]["down"])

    def logits(self, ids, places, span, branches):
        """The logits behind the last of `ids`, which go to `places` of the cache; attention sees it up to `span`."""
        later = self.columns[:span] > places[:, None]
        cos, sin = self.cos.index_select(0, places), self.sin.index_select(0, places)
        x = F.embedding(ids, self.embedding) * WIDTH ** 0.5
        for i in range(LAYERS):
            h = F.layer_norm(x, (WIDTH,), self.one)
            if branches:
                # Both streams have done with `h` and `wide` when the next layer asks for memory.
                trunk = torch.cuda.current_stream()
                self.branch.wait_stream(trunk)
                with torch.cuda.stream(self.branch):
                    wide = self.mlp(i, h)
                heads = self.attention(i, h, places, span, later, cos, sin)
                trunk.wait_stream(self.branch)
            else:
                wide = self.mlp(i, h)
                heads = self.attention(i, h, places, span, later, cos, sin)
            x = x + heads + wide
        return F.linear(F.layer_norm(x[-1:], (WIDTH,), self.one), self.embedding).float()

    def draw(self, logits):
        """Min-p by a race of exponential clocks, which a graph can hold."""
        chances = logits.softmax(-1)
        chances = chances.masked_fill(chances < LEAST * chances.amax(-1, keepdim=True), 0.0)
        self.ids.copy_((chances / torch.empty_like(chances).exponential_()).argmax(-1))

    def step(self):
        self.draw(self.logits(self.ids, self.place, LENGTH, True))
        self.place.add_(1)

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()
        torch.cuda.synchronize()

    def prefill(self, prompt):
        length = len(prompt)
        logits = self.logits(torch.tensor(prompt).to("cuda"), self.columns[:length], length, False)
        self.draw(logits)
        self.place.fill_(length)
        return logits

    def fetch(self):
        self.fetched.copy_(self.ids, non_blocking=True)
        torch.cuda.synchronize()
        return int(self.fetched[0])


def write(engine, record, mark, prompt, steps, warm_up=False):
    with mark("article"):
        start = now()
        with mark("prompt"):
            logits = engine.prefill(prompt)
            text = [engine.fetch()]
        first = end = now()
        record.step("prefill", start, first, len(prompt), 1, warm_up)
        with mark("all tokens"):
            for _ in range(steps):
                begin = now()
                engine.graph.replay()
                text.append(engine.fetch())
                end = now()
                record.step("decode", begin, end, 1, 1, warm_up)
    record.request(start, first, end, len(prompt), len(text), warm_up)
    assert all(0 <= token < VOCABULARY for token in text) and bool(torch.isfinite(logits).all())
    assert int(engine.place) == len(prompt) + steps <= LENGTH


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance, engine = random.Random(options.seed), Engine()
    torch.cuda.synchronize()
    with mark("capture"):
        engine.capture()

    def prompt(low, high):
        return [chance.randrange(VOCABULARY) for _ in range(chance.randrange(low, high + 1))]

    write(engine, record, mark, prompt(200, 200), 3, warm_up=True)
    for number, steps in enumerate(split(options.steps, max(3, min(30, options.steps // 6)))):
        write(engine, record, mark, prompt(*BANDS[number % len(BANDS)]), steps)
    record.finish()


main()
