"""A model that is larger than the room it is given: four of its layers lie in host memory and are sent up again in every pass.

A step is one pass through the model, from the upload of its ids until its event says that the next tokens are on the host: a prefill
step takes in the eight prompts of a batch, a decode step one token of each text. The layers travel on a stream of their own into two
buffers by turns; as soon as one has been used, the next is sent into its place, also across the end of a step and of a batch, so
something is on its way nearly always. A request is one text. With --ranges a step has one range, "pass", with one inside for each
layer from the host.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 49152, 192, 8
WIDTH, INNER, LAYERS = 1536, 6144, 24
FROM_HOST = (4, 10, 16, 22)  # layers that do not stay on the GPU
HEADS, KV_HEADS, SIZE = 12, 4, 128
GROUP, ALL_HEADS = HEADS // KV_HEADS, HEADS + 2 * KV_HEADS
SHAPES = dict(qkv=(ALL_HEADS * SIZE, WIDTH), out=(WIDTH, HEADS * SIZE), up=(2 * INNER, WIDTH), down=(WIDTH, INNER))
LAYER = sum(rows * columns for rows, columns in SHAPES.values())
TYPE = torch.bfloat16


def views(flat):
    """The matrices of a layer, which lie in one piece of memory so that one copy brings them all."""
    sizes = [rows * columns for rows, columns in SHAPES.values()]
    return {name: part.view(shape) for (name, shape), part in zip(SHAPES.items(), flat.split(sizes))}


def layer_weights():
    flat = torch.empty(LAYER, device="cuda", dtype=TYPE)
    for matrix in views(flat).values():
        matrix.normal_(0, matrix.shape[1] ** -0.5)
    return flat


class FromHost:
    def __init__(self, count):
        self.home = torch.empty(count, LAYER, dtype=TYPE, pin_memory=True)
        for layer in self.home:
            layer.copy_(layer_weights())
        self.stream = torch.cuda.Stream()
        self.buffers = [torch.empty(LAYER, device="cuda", dtype=TYPE) for _ in range(2)]
        self.views = [views(buffer) for buffer in self.buffers]
        self.arrived, self.used = [[torch.cuda.Event() for _ in range(2)] for _ in range(2)]
        self.sent = self.taken = 0
        self.stream.wait_stream(torch.cuda.current_stream())
        self.send()
        self.send()

    def send(self):
        place = self.sent % 2
        self.stream.wait_event(self.used[place])  # never recorded the first time, which waits for nothing
        with torch.cuda.stream(self.stream):
            self.buffers[place].copy_(self.home[self.sent % len(self.home)], non_blocking=True)
            self.arrived[place].record()
        self.sent += 1

    def take(self):
        torch.cuda.current_stream().wait_event(self.arrived[self.taken % 2])
        return self.views[self.taken % 2]

    def give_back(self):
        """The kernels queued so far are the last that need what was taken."""
        self.used[self.taken % 2].record()
        self.taken += 1
        self.send()


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Model:
    def __init__(self, mark):
        self.mark = mark
        self.embedding = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=TYPE)
        self.head = torch.empty_like(self.embedding).normal_(0, WIDTH ** -0.5)
        self.one = torch.ones(WIDTH, device="cuda", dtype=TYPE)
        self.layers = [None if i in FROM_HOST else views(layer_weights()) for i in range(LAYERS)]
        self.from_host = FromHost(len(FROM_HOST))
        self.keys = torch.zeros(LAYERS, BATCH, KV_HEADS, LENGTH, SIZE, device="cuda", dtype=TYPE)
        self.values = torch.zeros_like(self.keys)
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(), 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE))
        self.cos, self.sin = angle.cos().to(TYPE), angle.sin().to(TYPE)

    def layer(self, x, layer, keys, values, start, later):
        count, end = x.shape[1], start + x.shape[1]
        cos, sin = self.cos[start:end], self.sin[start:end]
        qkv = F.linear(F.rms_norm(x, (WIDTH,), self.one, 1e-6), layer["qkv"])
        q, k, v = qkv.view(BATCH, count, ALL_HEADS, SIZE).transpose(1, 2).split((HEADS, KV_HEADS, KV_HEADS), 1)
        keys[:, :, start:end] = turned(k, cos, sin)
        values[:, :, start:end] = v
        q = turned(q, cos, sin).reshape(BATCH, KV_HEADS, GROUP * count, SIZE)
        scores = (q @ keys[:, :, :end].transpose(2, 3)).view(BATCH, KV_HEADS, GROUP, count, end).float() * SIZE ** -0.5
        if later is not None:
            scores = scores.masked_fill(later, float("-inf"))
        shares = scores.softmax(-1).to(TYPE).view(BATCH, KV_HEADS, GROUP * count, end)
        heads = (shares @ values[:, :, :end]).view(BATCH, HEADS, count, SIZE).transpose(1, 2).reshape(BATCH, count, HEADS * SIZE)
        x = x + F.linear(heads, layer["out"])
        gate, up = F.linear(F.rms_norm(x, (WIDTH,), self.one, 1e-6), layer["up"]).chunk(2, -1)
        return x + F.linear(F.gelu(gate, approximate="tanh") * up, layer["down"])

    def __call__(self, ids, start):
        """The likeliest tokens behind `ids` (BATCH x count), whose places begin at `start`, and their logits."""
        count, end = ids.shape[1], start + ids.shape[1]
        later = torch.ones(count, end, dtype=torch.bool, device="cuda").triu(start + 1) if count > 1 else None
        x = F.embedding(ids, self.embedding)
        for layer, keys, values in zip(self.layers, self.keys, self.values):
            if layer is not None:
                x = self.layer(x, layer, keys, values, start, later)
            else:
                with self.mark("layer from the host"):
                    x = self.layer(x, self.from_host.take(), keys, values, start, later)
                    self.from_host.give_back()
        logits = F.linear(F.rms_norm(x[:, -1], (WIDTH,), self.one, 1e-6), self.head)
        return logits.argmax(-1), logits


class Writer:
    def __init__(self, model, mark):
        self.model, self.mark = model, mark
        self.tokens = torch.zeros(BATCH, dtype=torch.int64, pin_memory=True)
        self.there = torch.cuda.Event()

    def turn(self, ids, start):
        """The next tokens as a list. The event is the main stream's, so copies still under way are not waited for."""
        with self.mark("pass"):
            tokens, self.logits = self.model(torch.tensor(ids).to("cuda"), start)
            self.tokens.copy_(tokens, non_blocking=True)
            self.there.record()
            self.there.synchronize()
            return self.tokens.tolist()

    def write(self, record, prompts, steps, warm_up=False):
        length = len(prompts[0])
        start = now()
        texts = [[token] for token in self.turn(prompts, 0)]
        first = end = now()
        record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
        for i in range(steps):
            begin = now()
            for text, token in zip(texts, self.turn([text[-1:] for text in texts], length + i)):
                text.append(token)
            end = now()
            record.step("decode", begin, end, BATCH, BATCH, warm_up)
        for text in texts:
            record.request(start, first, end, length, len(text), warm_up)
        assert bool(torch.isfinite(self.logits).all()) and all(0 <= token < VOCABULARY for text in texts for token in text)


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance, mark, record = random.Random(options.seed), ranges(options.ranges), Record()
    writer = Writer(Model(mark), mark)

    def prompts(length):
        return [[chance.randrange(VOCABULARY) for _ in range(length)] for _ in range(BATCH)]

    writer.write(record, prompts(96), 3, warm_up=True)
    for steps in split(options.steps, max(8, min(25, options.steps // 6))):
        writer.write(record, prompts(chance.randrange(88, 113)), steps)
    torch.cuda.synchronize()  # the last layers are still on their way
    record.finish()


main()
