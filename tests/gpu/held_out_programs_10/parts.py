"""What some programs of this folder share: weights, turning by position, prompts, a plain decoder, the capture of a graph, and
the loops over batches and their steps."""
import math
import random

import torch
from torch.nn import functional as F

from contract import now, split

MADE = dict(device="cuda", dtype=torch.bfloat16)


def weight(rows, columns):
    return torch.empty(rows, columns, **MADE).normal_(0, columns ** -0.5)


def tables(length, size):
    """Cosine and sine, length x half of `size`."""
    angle = torch.outer(torch.arange(length, device="cuda").float(), 1e-4 ** (torch.arange(0, size, 2, device="cuda") / size))
    return angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def prompt(chance, vocabulary, length):
    return [chance.randrange(vocabulary) for _ in range(length)]


def captured(step, runs=3):
    """A graph of `step`, after `runs` eager ones on a stream of their own."""
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(runs):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    torch.cuda.synchronize()
    return graph


class Decoder:
    """Grouped heads, SwiGLU or GELU, layer norms. A cache is batch x KV heads x length x size, for each layer."""

    def __init__(self, vocabulary, width, inner, layers, heads, kv_heads, batch, length, reach=None, size=128, gated=True):
        self.vocabulary, self.width, self.count = vocabulary, width, layers
        self.heads, self.kv_heads, self.size, self.batch, self.gated = heads, kv_heads, size, batch, gated
        self.embedding, self.head = torch.empty(vocabulary, width, **MADE).normal_(), weight(vocabulary, width)
        self.one = torch.ones(width, **MADE)
        self.layers = [dict(q=weight(heads * size, width), k=weight(kv_heads * size, width), v=weight(kv_heads * size, width),
                            out=weight(width, heads * size), up=weight(inner, width), down=weight(width, inner))
                       for _ in range(layers)]
        if gated:
            for layer in self.layers:
                layer["gate"] = weight(inner, width)
        self.caches(length)
        self.columns = torch.arange(reach or length, device="cuda")
        self.cos, self.sin = tables(reach or length, size)
        self.texts = torch.arange(batch, device="cuda")[:, None, None]
        self.kv = torch.arange(kv_heads, device="cuda")[None, :, None]

    def caches(self, length):
        self.keys = [torch.zeros(self.batch, self.kv_heads, length, self.size, **MADE) for _ in range(self.count)]
        self.values = [torch.zeros(self.batch, self.kv_heads, length, self.size, **MADE) for _ in range(self.count)]

    def logits(self, ids, places, span):
        """The logits behind the last of `ids` (rows x count), at `places` (likewise); attention sees the cache up to `span`."""
        rows, count = ids.shape
        group = self.heads // self.kv_heads
        hidden = (self.columns[:span] > places[:, :, None])[:, None, None]
        cos, sin = self.cos[places][:, None], self.sin[places][:, None]
        where = (self.texts[:rows], self.kv, places[:, None])
        x = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            h = F.layer_norm(x, (self.width,), self.one)
            q, k, v = (F.linear(h, layer[name]).view(rows, count, -1, self.size).transpose(1, 2) for name in "qkv")
            self.keys[i].index_put_(where, turned(k, cos, sin))
            self.values[i].index_put_(where, v)
            q = turned(q, cos, sin).reshape(rows, self.kv_heads, group * count, self.size)
            scores = (q @ self.keys[i][:rows, :, :span].transpose(2, 3)).float() * self.size ** -0.5
            scores = scores.view(rows, self.kv_heads, group, count, span).masked_fill(hidden, -math.inf)
            shares = scores.softmax(-1).to(torch.bfloat16).view(rows, self.kv_heads, group * count, span)
            heads = (shares @ self.values[i][:rows, :, :span]).view(rows, self.heads, count, self.size)
            x = x + F.linear(heads.transpose(1, 2).reshape(rows, count, -1), layer["out"])
            h = F.layer_norm(x, (self.width,), self.one)
            up = F.linear(h, layer["up"])
            up = F.silu(F.linear(h, layer["gate"])) * up if self.gated else F.gelu(up)
            x = x + F.linear(up, layer["down"])
        return F.linear(F.layer_norm(x[:, -1], (self.width,), self.one), self.head).float()


def drawn(logits, temperature=1.0):
    """A token for each row, by a race of exponential clocks, which a graph can hold."""
    chances = (logits / temperature).softmax(-1)
    return (chances / torch.empty_like(chances).exponential_().clamp_(min=1e-20)).argmax(-1, keepdim=True)


def begun(seed):
    """PyTorch is seeded and set up for inference; what the program draws with."""
    torch.manual_seed(seed)
    torch.set_grad_enabled(False)
    return random.Random(seed)


def finished(record, texts, vocabulary, start, first, end, count, warm_up):
    """The requests of a batch of texts whose prompts have `count` tokens."""
    for text in texts:
        record.request(start, first, end, count, len(text), warm_up)
    assert all(0 <= token < vocabulary for text in texts for token in text)


def answered(record, texts, vocabulary, start, count, steps, decode, warm_up, ready=lambda i: None):
    """A batch whose first tokens are there: its prefill ends now, then come its decode steps. `ready` comes before each of
    them and is timed by nobody."""
    batch = len(texts)
    first = end = now()
    record.step("prefill", start, first, count * batch, batch, warm_up)
    for i in range(steps):
        ready(i)
        begin = now()
        tokens = decode()
        end = now()
        record.step("decode", begin, end, batch, batch, warm_up)
        for text, token in zip(texts, tokens):
            text.append(token)
    finished(record, texts, vocabulary, start, first, end, count, warm_up)


def served(record, engine, prompts, vocabulary, steps, warm_up):
    """A batch of an engine whose prefill(prompts) and decode() give a token of each text. How long its prompts are."""
    count = len(prompts[0])
    start = now()
    texts = [[token] for token in engine.prefill(prompts)]
    answered(record, texts, vocabulary, start, count, steps, engine.decode, warm_up)
    return count


def in_batches(serve, chance, vocabulary, batch, lengths, steps, most, warm_up):
    """Batches of prompts of these lengths, by turns, that share the decode steps: up to `most`, behind one that warms up,
    of a length and a number of steps."""
    def prompts(length):
        return [prompt(chance, vocabulary, length) for _ in range(batch)]

    serve(prompts(warm_up[0]), warm_up[1], warm_up=True)
    for number, count in enumerate(split(steps, max(3, min(most, steps // 8)))):
        serve(prompts(lengths[number % len(lengths)]), count)
