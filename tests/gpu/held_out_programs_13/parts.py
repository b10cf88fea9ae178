"""What some programs of this folder share, beside what they take from ../held_out_programs_12/parts.py: a decoder whose attention
is left to who uses it, one that reads a growing slice of its cache, and the loop over a batch of texts."""
import os

import torch
from torch.nn import functional as F

from contract import loaded, now

earlier = loaded("parts_12", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "held_out_programs_12", "parts.py"))
MADE, SIZE, begun, captured, drawn = earlier.MADE, earlier.SIZE, earlier.begun, earlier.captured, earlier.drawn
in_batches, in_bands, prompt, one_text = earlier.in_batches, earlier.in_bands, earlier.prompt, earlier.told
tables, turned, weight, shares_of, attended = earlier.tables, earlier.turned, earlier.weight, earlier.shares_of, earlier.attended
layer_of, heads_of, swiglu = earlier.earlier.layer_of, earlier.earlier.heads_of, earlier.earlier.swiglu


def evened(x):
    return F.rms_norm(x, x.shape[-1:], eps=1e-6)


class Plain:
    """Grouped heads and SwiGLU, all of it in flat weights."""

    def __init__(self, vocabulary, width, inner, layers, heads, kv_heads, length):
        self.embedding, self.head = torch.empty(vocabulary, width, **MADE).normal_(), weight(vocabulary, width)
        self.layers = [layer_of(width, inner, heads, kv_heads) for _ in range(layers)]
        self.cos, self.sin = tables(length, SIZE)
        self.columns = torch.arange(length, device="cuda")

    def passed(self, stage):
        """Called when a stage of a pass has been launched."""

    def feed(self, layer, h):
        return swiglu(layer, h)

    def through(self, ids, cos, sin, attend):
        """What the layers make of ids (... x count): ... x count x width. `attend` gets a layer's number, queries, keys and
        values, and gives ... x count x heads * size."""
        x = F.embedding(ids, self.embedding)
        self.passed("embedding")
        for i, layer in enumerate(self.layers):
            q, k, v = heads_of(layer, evened(x), cos, sin)
            x = x + F.linear(attend(i, q, k, v), layer["out"])
            x = x + self.feed(layer, evened(x))
            self.passed("layer %d" % i)
        return x

    def logits(self, x):
        """Of the last places of x, ... x count x width: texts x vocabulary, in fp32."""
        logits = F.linear(evened(x[..., -1, :].reshape(-1, x.shape[-1])), self.head).float()
        self.passed("head")
        return logits


class Reader(Plain):
    """With a preallocated cache for a text, or for `rows` of them that are all as long; a growing slice of it is read."""

    def __init__(self, vocabulary, width, inner, layers, heads, kv_heads, length, rows=()):
        super().__init__(vocabulary, width, inner, layers, heads, kv_heads, length)
        self.rows = rows
        self.cache = torch.zeros(2, layers, *rows, kv_heads, length, SIZE, **MADE)

    def run(self, ids, start):
        """Launches the pass over ids (rows x count), the first of which stand at `start`, and the draw of `self.ids`, rows x 1."""
        end = start + ids.shape[-1]
        hidden = self.columns[:end] > self.columns[start:end, None] if end - start > 1 else None

        def attend(i, q, k, v):
            keys, values = self.cache[0, i], self.cache[1, i]
            keys[..., start:end, :] = k
            values[..., start:end, :] = v
            return attended(shares_of(q, keys[..., :end, :], hidden), values[..., :end, :])

        x = self.through(ids, self.cos[start:end], self.sin[start:end], attend)
        self.last = self.logits(x)
        self.ids = drawn(self.last, 0.8).view(*self.rows, 1)

    def prefill(self, tokens):
        self.run(torch.tensor(tokens).to("cuda"), 0)
        return self.ids.item()

    def decode(self, place):
        self.run(self.ids, place)
        return self.ids.item()


def together(record, mark, words, vocabulary, engine, prompts, steps, warm_up=False):
    """A batch of texts whose prompts are of one length, which is returned. `words` are those of the ranges around it, around its
    prefill step and around each decode step."""
    count, rows = len(prompts[0]), len(prompts)
    with mark(words[0]):
        start = now()
        with mark(words[1]):
            texts = [[token] for token in engine.prefill(prompts)]
        first = end = now()
        record.step("prefill", start, first, rows * count, rows, warm_up)
        for _ in range(steps):
            begin = now()
            with mark(words[2]):
                tokens = engine.decode()
            end = now()
            record.step("decode", begin, end, rows, rows, warm_up)
            for text, token in zip(texts, tokens):
                text.append(token)
    for text in texts:
        record.request(start, first, end, count, len(text), warm_up)
    assert all(len(text) == steps + 1 and 0 <= token < vocabulary for text in texts for token in text)
    return count
