"""Starts cold and compiles nothing: long texts of which each head's group attends to the eight most promising blocks alone.

A step is one pass through the model and the draw of a token, until `.item()` has it: a prefill step takes in a prompt
with attention to all of it, a decode step one token, which in each layer compares its queries to the mean key of each
block of sixteen places and fetches the keys and values of the eight best. A request is one text. With --ranges a text has
"report" around it, inside are "source" for the prefill step and "piece" for each decode step.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split
from parts import MADE, begun, drawn, prompt, tables, turned, weight

VOCABULARY, LENGTH, BLOCK, BEST = 32000, 1024, 16, 8
WIDTH, INNER, LAYERS, HEADS, KV_HEADS, SIZE = 2048, 8192, 18, 16, 4, 128
GROUP, BLOCKS = HEADS // KV_HEADS, LENGTH // BLOCK
BANDS = ((300, 420), (160, 220), (620, 800), (420, 520))  # of prompt lengths, by turns


class Model:
    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.layers = [dict(q=weight(HEADS * SIZE, WIDTH), k=weight(KV_HEADS * SIZE, WIDTH), v=weight(KV_HEADS * SIZE, WIDTH),
                            out=weight(WIDTH, HEADS * SIZE), up=weight(INNER, WIDTH), down=weight(WIDTH, INNER))
                       for _ in range(LAYERS)]
        self.keys = torch.zeros(LAYERS, KV_HEADS, LENGTH, SIZE, **MADE)
        self.values = torch.zeros_like(self.keys)
        self.means = torch.zeros(LAYERS, KV_HEADS, BLOCKS, SIZE, **MADE)
        self.columns = torch.arange(LENGTH, device="cuda")
        self.within = torch.arange(BLOCK, device="cuda")
        self.kv = torch.arange(KV_HEADS, device="cuda")[:, None]
        self.cos, self.sin = tables(LENGTH, SIZE)

    def whole(self, i, q, count):
        """Attention of a prompt: `q` is heads x count x size."""
        self.means[i] = self.keys[i].view(KV_HEADS, BLOCKS, BLOCK, SIZE).mean(2)
        q = q.reshape(KV_HEADS, GROUP * count, SIZE)
        scores = (q @ self.keys[i, :, :count].transpose(1, 2)).float() * SIZE ** -0.5
        later = self.columns[:count] > self.columns[:count, None]
        shares = scores.view(KV_HEADS, GROUP, count, count).masked_fill(later, -math.inf).softmax(-1).to(torch.bfloat16)
        return (shares.view(KV_HEADS, GROUP * count, count) @ self.values[i, :, :count]).view(HEADS, count, SIZE)

    def chosen(self, i, q, place):
        """Attention of a single token."""
        block = place // BLOCK
        self.means[i, :, block] = self.keys[i, :, block * BLOCK:(block + 1) * BLOCK].mean(1)
        q = q.reshape(KV_HEADS, GROUP, SIZE)
        promise = (q @ self.means[i, :, :block + 1].transpose(1, 2)).float().amax(1)
        promise[:, block:] = math.inf  # the block that is being filled is always among them
        best = promise.topk(min(BEST, block + 1)).indices
        keys = self.keys[i].view(KV_HEADS, BLOCKS, BLOCK, SIZE)[self.kv, best].reshape(KV_HEADS, -1, SIZE)
        values = self.values[i].view(KV_HEADS, BLOCKS, BLOCK, SIZE)[self.kv, best].reshape(KV_HEADS, -1, SIZE)
        later = ((best[:, :, None] * BLOCK + self.within) > place).reshape(KV_HEADS, 1, -1)
        scores = (q @ keys.transpose(1, 2)).float() * SIZE ** -0.5
        shares = scores.masked_fill(later, -math.inf).softmax(-1).to(torch.bfloat16)
        return (shares @ values).view(HEADS, 1, SIZE)

    def logits(self, ids, start):
        count = ids.shape[0]
        end = start + count
        cos, sin = self.cos[start:end], self.sin[start:end]
        if count > 1:
            self.keys.zero_()
        x = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            h = F.layer_norm(x, (WIDTH,), self.one)
            q, k, v = (F.linear(h, layer[name]).view(count, -1, SIZE).transpose(0, 1) for name in "qkv")
            self.keys[i, :, start:end] = turned(k, cos, sin)
            self.values[i, :, start:end] = v
            q = turned(q, cos, sin)
            heads = self.whole(i, q, count) if count > 1 else self.chosen(i, q, start)
            x = x + F.linear(heads.transpose(0, 1).reshape(count, HEADS * SIZE), layer["out"])
            h = F.layer_norm(x, (WIDTH,), self.one)
            x = x + F.linear(F.relu(F.linear(h, layer["up"])).square(), layer["down"])
        return F.linear(F.layer_norm(x[-1:], (WIDTH,), self.one), self.head).float()


def write(model, record, mark, tokens, steps, cold=False):
    count = len(tokens)
    with mark("report"):
        start = now()
        with mark("source"):
            ids = drawn(model.logits(torch.tensor(tokens).to("cuda"), 0), 0.7)[0]
            text = [ids.item()]
        first = end = now()
        record.step("prefill", start, first, count, 1, cold)
        for i in range(steps):
            begin = now()
            with mark("piece"):
                logits = model.logits(ids, count + i)
                ids = drawn(logits, 0.7)[0]
                text.append(ids.item())
            end = now()
            record.step("decode", begin, end, 1, 1, cold and i == 0)
    record.request(start, first, end, count, len(text), cold)
    assert all(0 <= token < VOCABULARY for token in text) and bool(torch.isfinite(logits).all())


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, model = begun(options.seed), Model()
    torch.cuda.synchronize()
    for number, steps in enumerate(split(options.steps, max(4, min(30, options.steps // 7)))):
        length = chance.randrange(*BANDS[number % len(BANDS)])
        write(model, record, mark, prompt(chance, VOCABULARY, length), steps, cold=number == 0)
    record.finish()


main()
