"""Drafts found by looking into the text, checked by one of three CUDA graphs, for a model that reads and writes bytes.

A decode step is one round: the host looks for the text's last bytes further up, takes what followed there as a draft of up to five
bytes, replays the narrowest graph (one, three or six rows) that has a row for each and the byte before, waits, and keeps as many as
the model agrees with, and one more. So a round yields one to six bytes, and its graph changes from round to round. A prefill step
takes in a prompt, eagerly. Both end when the host has read the model's bytes. A request is one text. With --ranges a round has three
ranges side by side ("look up", "check", "keep") and a prompt one; one more
is around the warm-up.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH = 320, 384  # the bytes and some marks that random weights never choose
LETTERS = b"abcdefghijklmnopqrstuvwxyz (),.:=_\n"
WIDTH, INNER, LAYERS = 2048, 5504, 24
HEADS, KV_HEADS, SIZE = 16, 2, 128
GROUP, ALL_HEADS = HEADS // KV_HEADS, HEADS + 2 * KV_HEADS
ROWS = (1, 3, 6)
DRAFT = ROWS[-1] - 1
TYPE = torch.bfloat16


def weights(*shape, scale=1.0):
    return torch.empty(*shape, device="cuda", dtype=TYPE).normal_(0, scale * shape[-1] ** -0.5)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Model:
    def __init__(self):
        # The layers add little to the embedding, so that texts begin to repeat themselves, as real ones do in code and lists.
        self.embedding, self.head = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=TYPE), weights(VOCABULARY, WIDTH)
        one = torch.ones(WIDTH, device="cuda", dtype=TYPE)
        self.layers = [dict(before=one, qkv=weights(ALL_HEADS * SIZE, WIDTH), bias=weights(ALL_HEADS * SIZE),
                            out=weights(WIDTH, HEADS * SIZE, scale=0.2), between=one,
                            up=weights(2 * INNER, WIDTH), down=weights(WIDTH, INNER, scale=0.2)) for _ in range(LAYERS)]
        self.last = one
        # Stands in for what training teaches: only these bytes are ever written.
        self.habit = torch.full((VOCABULARY,), -1e4, device="cuda", dtype=TYPE)
        self.habit[torch.tensor(list(LETTERS), device="cuda")] = 0
        self.keys = torch.zeros(LAYERS, KV_HEADS, LENGTH, SIZE, device="cuda", dtype=TYPE)
        self.values = torch.zeros_like(self.keys)
        self.places = torch.arange(LENGTH, device="cuda")
        angle = torch.outer(self.places.float(), 1e-5 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE))
        self.cos, self.sin = angle.cos().to(TYPE), angle.sin().to(TYPE)

    def __call__(self, ids, places, reach):
        """The likeliest byte behind each of `ids`, which stand at `places`, with attention to the cache's first `reach` places."""
        count = ids.shape[0]
        cos, sin = self.cos[places], self.sin[places]
        later = self.places[:reach] > places[:, None]
        x = F.embedding(ids, self.embedding)
        for layer, keys, values in zip(self.layers, self.keys, self.values):
            y = F.rms_norm(x, (WIDTH,), layer["before"], 1e-6)
            qkv = F.linear(y, layer["qkv"], layer["bias"]).view(count, ALL_HEADS, SIZE).transpose(0, 1)
            q, k, v = qkv.split((HEADS, KV_HEADS, KV_HEADS), 0)
            keys.index_copy_(1, places, turned(k, cos, sin))
            values.index_copy_(1, places, v)
            q = turned(q, cos, sin).reshape(KV_HEADS, GROUP * count, SIZE)
            scores = (q @ keys[:, :reach].transpose(1, 2)).view(KV_HEADS, GROUP, count, reach).float() * SIZE ** -0.5
            shares = scores.masked_fill(later, float("-inf")).softmax(-1).to(TYPE).view(KV_HEADS, GROUP * count, reach)
            heads = (shares @ values[:, :reach]).view(HEADS, count, SIZE).transpose(0, 1).reshape(count, HEADS * SIZE)
            x = x + F.linear(heads, layer["out"])
            gate, up = F.linear(F.rms_norm(x, (WIDTH,), layer["between"], 1e-6), layer["up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer["down"])
        logits = F.linear(F.rms_norm(x, (WIDTH,), self.last, 1e-6), self.head, self.habit)
        return logits.argmax(-1)


class Round:
    """The model on `rows` rows as a graph. What it reads is one place followed by that many bytes."""

    def __init__(self, model, rows, pool):
        self.sent = torch.zeros(1 + rows, dtype=torch.int64, pin_memory=True)
        self.received = torch.zeros(rows, dtype=torch.int64, pin_memory=True)
        self.input = torch.zeros(1 + rows, dtype=torch.int64, device="cuda")
        offsets = torch.arange(rows, device="cuda")

        def run():
            return model(self.input[1:], self.input[:1] + offsets, LENGTH)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                run()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.output = run()

    def __call__(self, place, ids):
        self.sent.copy_(torch.tensor([place] + ids))
        self.input.copy_(self.sent, non_blocking=True)
        self.graph.replay()
        self.received.copy_(self.output, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return self.received.tolist()


def look_up(text):
    """What followed the last four (or three, or two) bytes where they stood before, the latest such place first."""
    for size in (4, 3, 2):
        tail = text[-size:]
        for i in range(len(text) - size - 1, -1, -1):
            if text[i:i + size] == tail:
                return text[i + size:i + size + DRAFT]
    return []


def write(record, mark, model, rounds, prompt, steps, warm_up=False):
    start = now()
    with mark("prompt"):
        places = torch.arange(len(prompt), device="cuda")
        text = prompt + [model(torch.tensor(prompt).to("cuda"), places, len(prompt))[-1].item()]
    first = end = now()
    record.step("prefill", start, first, len(prompt), 1, warm_up)
    for _ in range(steps):
        begin = now()
        with mark("look up"):
            draft = look_up(text)
            rows = next(rows for rows in ROWS if rows > len(draft))
        with mark("check"):
            # The text's last byte is not in the cache yet. Rows beyond the draft are computed for nothing; what they and rejected
            # ones leave in the cache lies behind the text's end, where the next round writes before it reads.
            said = rounds[rows](len(text) - 1, text[-1:] + draft + [0] * (rows - 1 - len(draft)))
        with mark("keep"):
            agreed = 0
            while agreed < len(draft) and draft[agreed] == said[agreed]:
                agreed += 1
            text += said[:agreed + 1]
        end = now()
        record.step("decode", begin, end, agreed + 1, 1, warm_up)
    record.request(start, first, end, len(prompt), len(text) - len(prompt), warm_up)
    assert all(byte in LETTERS for byte in text) and len(text) + ROWS[-1] <= LENGTH
    assert bool(torch.isfinite(model.keys).all())


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance, mark, record = random.Random(options.seed), ranges(options.ranges), Record()
    model = Model()
    pool = torch.cuda.graph_pool_handle()
    rounds = {rows: Round(model, rows, pool) for rows in ROWS}
    phrases = [[chance.choice(LETTERS) for _ in range(chance.randrange(4, 15))] for _ in range(30)]

    def prompt(length):
        text = []
        while len(text) < length:
            text += chance.choice(phrases)
        return text[:length]

    with mark("warm-up"):
        write(record, mark, model, rounds, prompt(180), 4, warm_up=True)
    for steps in split(options.steps, min(40, max(8, options.steps // 6))):
        write(record, mark, model, rounds, prompt(chance.randrange(150, 221)), steps)
    record.finish()


main()
