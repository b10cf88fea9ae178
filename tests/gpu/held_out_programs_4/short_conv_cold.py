"""Short gated convolutions with attention in between, from a cold start: prompts of one length, each token copied back.

A step is one pass through the model, from the upload of its ids until their next token is copied back to the host by `.cpu()`: a
prefill step takes in a whole prompt, a decode step one token. A request is one text. With --ranges a step has one range, "read the
prompt" or "next token", with one inside for each layer with attention.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, PROMPT = 65536, 192, 112
WIDTH, INNER, LAYERS = 2048, 7168, 16
WITH_ATTENTION = (2, 5, 8, 10, 12, 14)
HEADS, KV_HEADS, SIZE = 32, 8, 64
GROUP = HEADS // KV_HEADS
TAPS = 3  # positions that a convolution sees, its own among them


def weight(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).mul_(columns ** -0.5)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Convolution:
    """Gates its input, mixes each channel with its last two values, gates the result."""

    def __init__(self):
        self.into, self.out = weight(3 * WIDTH, WIDTH), weight(WIDTH, WIDTH)
        self.taps = torch.randn(TAPS, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.window = torch.zeros(TAPS - 1, WIDTH, device="cuda", dtype=torch.bfloat16)

    def __call__(self, h, start):
        before, after, values = F.linear(h, self.into).chunk(3, dim=-1)
        if start == 0:
            self.window.zero_()
        values = torch.cat([self.window, before * values])
        self.window.copy_(values[-2:])
        mixed = self.taps[0] * values[:-2] + self.taps[1] * values[1:-1] + self.taps[2] * values[2:]
        return F.linear(after * mixed, self.out)


class Attention:
    """Grouped heads with norms on queries and keys, over a growing slice of a preallocated cache."""

    def __init__(self, tables, mark):
        self.qkv, self.out = weight((HEADS + 2 * KV_HEADS) * SIZE, WIDTH), weight(WIDTH, HEADS * SIZE)
        self.norms = torch.ones(2, SIZE, device="cuda", dtype=torch.bfloat16)
        self.keys = torch.zeros(KV_HEADS, LENGTH, SIZE, device="cuda", dtype=torch.bfloat16)
        self.values = torch.zeros_like(self.keys)
        self.cos, self.sin, self.order = tables
        self.mark = mark

    def __call__(self, h, start):
        with self.mark("attention"):
            count = h.shape[0]
            end = start + count
            cos, sin = self.cos[start:end, None], self.sin[start:end, None]
            q, k, v = F.linear(h, self.qkv).view(count, HEADS + 2 * KV_HEADS, SIZE).split([HEADS, KV_HEADS, KV_HEADS], dim=1)
            q = rotate(F.rms_norm(q, (SIZE,), self.norms[0]), cos, sin)
            k = rotate(F.rms_norm(k, (SIZE,), self.norms[1]), cos, sin)
            self.keys[:, start:end] = k.transpose(0, 1)
            self.values[:, start:end] = v.transpose(0, 1)
            # KV heads x (heads that share them x queries) x size
            q = q.view(count, KV_HEADS, GROUP, SIZE).permute(1, 2, 0, 3).reshape(KV_HEADS, GROUP * count, SIZE)
            scores = torch.matmul(q, self.keys[:, :end].transpose(-1, -2)).float() * SIZE ** -0.5
            if count > 1:
                hidden = (self.order[None, :end] > self.order[start:end, None]).repeat(GROUP, 1)
                scores = scores.masked_fill(hidden, float("-inf"))
            y = torch.matmul(torch.softmax(scores, dim=-1).to(torch.bfloat16), self.values[:, :end])
            y = y.view(KV_HEADS, GROUP, count, SIZE).permute(2, 0, 1, 3).reshape(count, HEADS * SIZE)
            return F.linear(y, self.out)


class Model:
    """In the manner of LFM2, one matrix for both ends; bf16, batch 1."""

    def __init__(self, mark):
        order = torch.arange(LENGTH, device="cuda")
        frequencies = 1000000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        angles = torch.outer(order.float(), frequencies)
        tables = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16), order
        self.embedding = weight(VOCABULARY, WIDTH)
        self.norms = torch.ones(2 * LAYERS + 1, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.mixers = [Attention(tables, mark) if i in WITH_ATTENTION else Convolution() for i in range(LAYERS)]
        self.mlps = [(weight(2 * INNER, WIDTH), weight(WIDTH, INNER)) for _ in range(LAYERS)]

    def norm(self, x, i):
        return F.rms_norm(x, (WIDTH,), self.norms[i])

    def forward(self, ids, start):
        x = F.embedding(ids, self.embedding)
        for i, (mixer, (up, down)) in enumerate(zip(self.mixers, self.mlps)):
            x = x + mixer(self.norm(x, 2 * i), start)
            gate, value = F.linear(self.norm(x, 2 * i + 1), up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * value, down)
        return F.linear(self.norm(x[-1:], 2 * LAYERS), self.embedding)


def serve(model, steps, record, mark, cold):
    prompt = torch.randint(0, VOCABULARY, (PROMPT,))
    start = now()
    with mark("read the prompt"):
        logits = model.forward(prompt.cuda(), 0)
        token = logits.argmax(dim=-1).cpu()
    first = end = now()
    record.step("prefill", start, first, PROMPT, 1, warm_up=cold)
    tokens = [token]
    for i in range(steps):
        step = now()
        with mark("next token"):
            logits = model.forward(token.cuda(), PROMPT + i)
            token = logits.argmax(dim=-1).cpu()
        end = now()
        record.step("decode", step, end, 1, 1, warm_up=cold and i == 0)
        tokens.append(token)
    record.request(start, first, end, PROMPT, 1 + steps, warm_up=cold)
    assert all(0 <= int(token) < VOCABULARY for token in tokens) and torch.isfinite(logits).all().item()


@torch.no_grad()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model(mark)
    texts = max(5, min(10, args.steps // 6), args.steps // 20)
    for i, steps in enumerate(split(args.steps, texts)):
        serve(model, steps, record, mark, cold=i == 0)
    record.finish()


if __name__ == "__main__":
    main()
