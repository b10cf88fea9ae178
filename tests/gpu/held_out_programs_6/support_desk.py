"""A small support desk: questions come in by a thread, up to four that wait are answered together, behind one shared system prompt.

A step is one pass through the model, from its first call until the next tokens are in a list on the host: a prefill step takes in
the questions of a batch (the system prompt was taken in once, at the start, and lies in the cache), a decode step one token of
each answer. A request is one question, from its arrival in the queue. With --ranges "wait for customers" is around the taking of
questions from the queue; an answered batch has a range with one "questions" and several "word" inside, and in each of these
are "forward" and "sample"; "system prompt" and "warm-up" come before.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import queue
import random
import threading
import time

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH, PREFIX = 32000, 512, 4, 384
WIDTH, INNER, LAYERS, HEADS, KV_HEADS, SIZE = 2048, 5632, 20, 16, 4, 128
MADE = dict(device="cuda", dtype=torch.bfloat16)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH, 1e-6, **MADE), nn.RMSNorm(WIDTH, 1e-6, **MADE)
        self.query = nn.Linear(WIDTH, HEADS * SIZE, bias=False, **MADE)
        self.key = nn.Linear(WIDTH, KV_HEADS * SIZE, bias=False, **MADE)
        self.value = nn.Linear(WIDTH, KV_HEADS * SIZE, bias=False, **MADE)
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False, **MADE)
        self.gate, self.up = nn.Linear(WIDTH, INNER, bias=False, **MADE), nn.Linear(WIDTH, INNER, bias=False, **MADE)
        self.down = nn.Linear(INNER, WIDTH, bias=False, **MADE)
        self.keys = torch.zeros(BATCH, KV_HEADS, LENGTH, SIZE, **MADE)
        self.values = torch.zeros_like(self.keys)

    def forward(self, x, start, cos, sin, mask):
        batch, count, _ = x.shape
        end = start + count
        y = self.before(x)
        q = turned(self.query(y).view(batch, count, HEADS, SIZE).transpose(1, 2), cos, sin)
        self.keys[:batch, :, start:end] = turned(self.key(y).view(batch, count, KV_HEADS, SIZE).transpose(1, 2), cos, sin)
        self.values[:batch, :, start:end] = self.value(y).view(batch, count, KV_HEADS, SIZE).transpose(1, 2)
        keys = self.keys[:batch, :, :end].repeat_interleave(HEADS // KV_HEADS, 1)
        values = self.values[:batch, :, :end].repeat_interleave(HEADS // KV_HEADS, 1)
        heads = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        x = x + self.out(heads.transpose(1, 2).reshape(batch, count, HEADS * SIZE))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.last, self.head = nn.RMSNorm(WIDTH, 1e-6, **MADE), nn.Linear(WIDTH, VOCABULARY, bias=False, **MADE)
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(), 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE))
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)

    def forward(self, ids, start, pads):
        """The logits behind the last of `ids`; text i has `pads[i]` places without meaning between system prompt and question."""
        slots = torch.arange(start, start + ids.shape[1], device="cuda")
        columns = torch.arange(start + ids.shape[1], device="cuda")
        places = slots - pads[:, None]  # so that a question follows the system prompt without a gap
        own = (columns < PREFIX) | (columns >= PREFIX + pads[:, None])
        mask = ((columns <= slots[:, None]) & own[:, None])[:, None]
        cos, sin = self.cos[places][:, None], self.sin[places][:, None]
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, start, cos, sin, mask)
        return self.head(self.last(x[:, -1]))

    def share_prefix(self):
        """Copies the system prompt's keys and values from the first row of the cache to the others."""
        for layer in self.layers:
            layer.keys[1:, :, :PREFIX] = layer.keys[:1, :, :PREFIX]
            layer.values[1:, :, :PREFIX] = layer.values[:1, :, :PREFIX]


def sample(logits):
    return torch.multinomial((logits.float() / 0.7).softmax(-1), 1)


def question(chance):
    return [chance.randrange(VOCABULARY) for _ in range(chance.randrange(28, 57))]


def customers(waiting, closed, gap, chance):
    """Puts questions into the queue until the desk closes. Who finds it full goes away."""
    while not closed.wait(chance.expovariate(1 / gap)):
        try:
            waiting.put_nowait((now(), question(chance)))
        except queue.Full:
            pass


def collect(waiting):
    """The first question to come and those that come within the next four milliseconds, up to four."""
    batch, until = [waiting.get()], time.monotonic() + 0.004
    while len(batch) < BATCH:
        try:
            batch.append(waiting.get(timeout=max(0.0, until - time.monotonic())))
        except queue.Empty:
            break
    return batch


def answer(record, mark, model, batch, steps, warm_up=False):
    lengths = [len(words) for _, words in batch]
    longest, texts = max(lengths), [[] for _ in batch]
    begin = now()
    with mark(f"answer {len(batch)}"):
        with mark("questions"):
            pads = torch.tensor([longest - length for length in lengths], device="cuda")
            ids = torch.tensor([[0] * (longest - len(words)) + words for _, words in batch], device="cuda")
            with mark("forward"):
                logits = model(ids, PREFIX, pads)
            with mark("sample"):
                tokens = sample(logits)
                for text, token in zip(texts, tokens[:, 0].tolist()):
                    text.append(token)
        first = end = now()
        record.step("prefill", begin, first, sum(lengths), len(batch), warm_up)
        for i in range(steps):
            begin = now()
            with mark("word"):
                with mark("forward"):
                    logits = model(tokens, PREFIX + longest + i, pads)
                with mark("sample"):
                    tokens = sample(logits)
                    for text, token in zip(texts, tokens[:, 0].tolist()):
                        text.append(token)
            end = now()
            record.step("decode", begin, end, len(batch), len(batch), warm_up)
    for (arrival, words), text in zip(batch, texts):
        record.request(arrival, first, end, len(words), len(text), warm_up)
    assert bool(torch.isfinite(logits).all()) and all(0 <= token < VOCABULARY for text in texts for token in text)


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would build a plan for each new length
    chance, mark, record = random.Random(options.seed), ranges(options.ranges), Record()
    model = Model().eval()
    torch.cuda.synchronize()

    start = now()
    with mark("system prompt"):
        ids = torch.tensor([[chance.randrange(VOCABULARY) for _ in range(PREFIX)]], device="cuda")
        sample(model(ids, 0, torch.zeros(1, dtype=torch.long, device="cuda"))).item()
    end = now()
    record.step("prefill", start, end, PREFIX, 1, warm_up=True)
    record.request(start, end, end, PREFIX, 1, warm_up=True)
    model.share_prefix()
    with mark("warm-up"):
        answer(record, mark, model, [(now(), question(chance)) for _ in range(2)], 3, warm_up=True)

    parts = split(options.steps, max(8, min(25, options.steps // 6)))
    waiting, closed = queue.Queue(maxsize=8), threading.Event()
    # About two or three questions come while a batch is answered, however long the answers of this run are.
    gap = 0.004 * (parts[-1] + 2)
    door = threading.Thread(target=customers, args=(waiting, closed, gap, random.Random(options.seed + 1)), daemon=True)
    door.start()
    for steps in parts:
        with mark("wait for customers"):
            batch = collect(waiting)
        answer(record, mark, model, batch, steps)
    closed.set()
    door.join()
    record.finish()


main()
