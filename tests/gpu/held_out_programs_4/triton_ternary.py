"""Weights of minus one, zero and one, activations in eight bits, attention in splits: a decode step almost all in its own Triton.

A step is a whole batch's pass, from its first call (a prefill's upload) until its tokens are on the host by `.tolist()`. A prefill
unpacks each matrix by a Triton kernel and leaves the rest to PyTorch; a decode step has eleven Triton kernels a layer, and PyTorch's
only for the embedding, the logits and the choice of tokens. A request is one sequence of a batch and has the batch's times. With
--ranges there is one range for a batch, and in it one for the prompt and one for each decode step.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
import triton
import triton.language as tl
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 32000, 256, 3
LAYERS, HEADS, KV_HEADS, SIZE, INNER = 24, 16, 4, 128, 8192
WIDTH, KV_GROUP = HEADS * SIZE, HEADS // KV_HEADS
QKV = (HEADS + 2 * KV_HEADS) * SIZE
GROUP = 256  # weights in 64 bytes
BLOCK_ROWS, BLOCK_COLUMNS = 16, 32
SPAN = 32  # positions of one split of attention
SPLITS = LENGTH // SPAN
CANDIDATES = 50
PROMPTS = (112, 120, 104, 116, 108)
WARM_UP_PROMPT, WARM_UP_STEPS = 40, 3


@triton.jit
def norm_quantise(X, Q, SCALES, WIDTH: tl.constexpr):
    """RMS norm of a row, then eight bits by its largest value."""
    row = tl.program_id(0)
    d = tl.arange(0, WIDTH)
    x = tl.load(X + row * WIDTH + d).to(tl.float32)
    x = x * tl.rsqrt(tl.sum(x * x, axis=0) / WIDTH + 1e-6)
    largest = tl.maximum(tl.max(tl.abs(x), axis=0), 1e-5)
    tl.store(Q + row * WIDTH + d, tl.floor(x * (127.0 / largest) + 0.5).to(tl.int8))
    tl.store(SCALES + row, largest / 127.0)


@triton.jit
def gate_quantise(UP_GATE, Q, SCALES, INNER: tl.constexpr):
    """Squared ReLU of the gate times the rest, then the same."""
    row = tl.program_id(0)
    d = tl.arange(0, INNER)
    up = tl.load(UP_GATE + row * 2 * INNER + d).to(tl.float32)
    gate = tl.maximum(tl.load(UP_GATE + row * 2 * INNER + INNER + d).to(tl.float32), 0.0)
    x = gate * gate * up
    x = x * tl.rsqrt(tl.sum(x * x, axis=0) / INNER + 1e-6)
    largest = tl.maximum(tl.max(tl.abs(x), axis=0), 1e-5)
    tl.store(Q + row * INNER + d, tl.floor(x * (127.0 / largest) + 0.5).to(tl.int8))
    tl.store(SCALES + row, largest / 127.0)


@triton.jit(do_not_specialize=["rows"])
def ternary_matmul(Q, SCALES, W, OUT, rows, columns, inner, weight_scale, GROUP: tl.constexpr, ADD: tl.constexpr,
                   BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr):
    """OUT (+)= Q W. A byte holds four weights, each a quarter of a group further on than the one before."""
    QUARTER: tl.constexpr = GROUP // 4
    m = tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    n = tl.program_id(0) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    j = tl.arange(0, QUARTER)
    acc = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.float32)
    for g in range(0, inner // GROUP):
        packed = tl.load(W + n[None, :] * (inner // 4) + g * QUARTER + j[:, None])
        q = Q + m[:, None] * inner + g * GROUP + j[None, :]
        inside = m[:, None] < rows
        w0 = ((packed & 3).to(tl.float32) - 1.0).to(tl.float16)
        w1 = (((packed >> 2) & 3).to(tl.float32) - 1.0).to(tl.float16)
        w2 = (((packed >> 4) & 3).to(tl.float32) - 1.0).to(tl.float16)
        w3 = ((packed >> 6).to(tl.float32) - 1.0).to(tl.float16)
        acc += tl.dot(tl.load(q, mask=inside, other=0).to(tl.float16), w0)
        acc += tl.dot(tl.load(q + QUARTER, mask=inside, other=0).to(tl.float16), w1)
        acc += tl.dot(tl.load(q + 2 * QUARTER, mask=inside, other=0).to(tl.float16), w2)
        acc += tl.dot(tl.load(q + 3 * QUARTER, mask=inside, other=0).to(tl.float16), w3)
    scales = tl.load(SCALES + m, mask=m < rows, other=0.0)
    acc = acc * scales[:, None] * weight_scale
    places = OUT + m[:, None] * columns + n[None, :]
    if ADD:
        acc += tl.load(places, mask=m[:, None] < rows, other=0.0).to(tl.float32)
    tl.store(places, acc.to(OUT.dtype.element_ty), mask=m[:, None] < rows)


@triton.jit
def unpack(W, OUT, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    QUARTER: tl.constexpr = GROUP // 4
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    packed = tl.load(W + i)
    place = OUT + (i // QUARTER) * GROUP + i % QUARTER
    tl.store(place, ((packed & 3).to(tl.float32) - 1.0).to(tl.float16))
    tl.store(place + QUARTER, (((packed >> 2) & 3).to(tl.float32) - 1.0).to(tl.float16))
    tl.store(place + 2 * QUARTER, (((packed >> 4) & 3).to(tl.float32) - 1.0).to(tl.float16))
    tl.store(place + 3 * QUARTER, ((packed >> 6).to(tl.float32) - 1.0).to(tl.float16))


@triton.jit(do_not_specialize=["position"])
def rotate_and_store(QKV, KEYS, VALUES, COS, SIN, position, LENGTH: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
                     SIZE: tl.constexpr):
    """Turns a head of queries in place; a head of keys, turned, and one of values go to the cache."""
    row = tl.program_id(0)
    head = tl.program_id(1)
    d = tl.arange(0, SIZE // 2)
    place = QKV + (row * (HEADS + 2 * KV_HEADS) + head) * SIZE + d
    a = tl.load(place).to(tl.float32)
    b = tl.load(place + SIZE // 2).to(tl.float32)
    cos = tl.load(COS + position * (SIZE // 2) + d)
    sin = tl.load(SIN + position * (SIZE // 2) + d)
    if head < HEADS:
        tl.store(place, (a * cos - b * sin).to(QKV.dtype.element_ty))
        tl.store(place + SIZE // 2, (b * cos + a * sin).to(QKV.dtype.element_ty))
    elif head < HEADS + KV_HEADS:
        key = KEYS + ((row * KV_HEADS + head - HEADS) * LENGTH + position) * SIZE + d
        tl.store(key, (a * cos - b * sin).to(KEYS.dtype.element_ty))
        tl.store(key + SIZE // 2, (b * cos + a * sin).to(KEYS.dtype.element_ty))
    else:
        value = VALUES + ((row * KV_HEADS + head - HEADS - KV_HEADS) * LENGTH + position) * SIZE + d
        tl.store(value, a.to(VALUES.dtype.element_ty))
        tl.store(value + SIZE // 2, b.to(VALUES.dtype.element_ty))


@triton.jit(do_not_specialize=["position"])
def attend_split(QKV, KEYS, VALUES, SUMS, TOPS, TOTALS, position, scale, LENGTH: tl.constexpr, HEADS: tl.constexpr,
                 KV_HEADS: tl.constexpr, SIZE: tl.constexpr, SPAN: tl.constexpr, SPLITS: tl.constexpr):
    """One head of one row over one span of the cache; the span's first position is there for certain."""
    row = tl.program_id(0)
    head = tl.program_id(1)
    part = tl.program_id(2)
    kv_head = head // (HEADS // KV_HEADS)
    d = tl.arange(0, SIZE)
    p = part * SPAN + tl.arange(0, SPAN)
    q = tl.load(QKV + (row * (HEADS + 2 * KV_HEADS) + head) * SIZE + d).to(tl.float32) * scale
    offsets = ((row * KV_HEADS + kv_head) * LENGTH + p)[:, None] * SIZE + d[None, :]
    inside = p[:, None] <= position
    k = tl.load(KEYS + offsets, mask=inside, other=0.0).to(tl.float32)
    v = tl.load(VALUES + offsets, mask=inside, other=0.0).to(tl.float32)
    scores = tl.where(p <= position, tl.sum(k * q[None, :], axis=1), -1e30)
    top = tl.max(scores, axis=0)
    weights = tl.exp(scores - top)
    place = (row * HEADS + head) * SPLITS + part
    tl.store(TOPS + place, top)
    tl.store(TOTALS + place, tl.sum(weights, axis=0))
    tl.store(SUMS + place * SIZE + d, tl.sum(v * weights[:, None], axis=0))


@triton.jit(do_not_specialize=["parts"])
def merge_splits(SUMS, TOPS, TOTALS, OUT, parts, SIZE: tl.constexpr, SPLITS: tl.constexpr):
    place = tl.program_id(0)
    d = tl.arange(0, SIZE)
    i = tl.arange(0, SPLITS)
    tops = tl.load(TOPS + place * SPLITS + i, mask=i < parts, other=-1e30)
    totals = tl.load(TOTALS + place * SPLITS + i, mask=i < parts, other=0.0)
    sums = tl.load(SUMS + (place * SPLITS + i)[:, None] * SIZE + d[None, :], mask=i[:, None] < parts, other=0.0)
    shares = tl.exp(tops - tl.max(tops, axis=0))
    total = tl.sum(totals * shares, axis=0)
    tl.store(OUT + place * SIZE + d, (tl.sum(sums * shares[:, None], axis=0) / total).to(OUT.dtype.element_ty))


def turned(x, cos, sin):
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


class Linear:
    """Ternary weights and one scale for all of them, which makes outputs of about unit variance."""

    def __init__(self, columns, inner):
        self.columns, self.inner, self.scale = columns, inner, (inner * 2 / 3) ** -0.5
        self.packed = torch.zeros(columns, inner // 4, device="cuda", dtype=torch.uint8)
        for shift in (0, 2, 4, 6):
            self.packed += torch.randint(0, 3, (columns, inner // 4), device="cuda", dtype=torch.uint8) << shift

    def __call__(self, q, scales, out, rows, add=False):
        grid = (self.columns // BLOCK_COLUMNS, triton.cdiv(rows, BLOCK_ROWS))
        ternary_matmul[grid](q, scales, self.packed, out, rows, self.columns, self.inner, self.scale, GROUP=GROUP, ADD=add,
                             BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLUMNS=BLOCK_COLUMNS)

    def unpacked(self):
        out = torch.empty(self.columns, self.inner, device="cuda", dtype=torch.float16)
        unpack[(self.columns * self.inner // 4096,)](self.packed, out, GROUP=GROUP, BLOCK=1024)
        return out


class Model:
    """In the manner of BitNet b1.58, norms without weights before and within attention and MLP; the embedding, which makes the logits
    too, in fp16. All sequences of a batch are at one position."""

    def __init__(self):
        self.embedding = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.float16)
        self.layers = [(Linear(QKV, WIDTH), Linear(WIDTH, WIDTH), Linear(2 * INNER, WIDTH), Linear(WIDTH, INNER)) for _ in range(LAYERS)]
        self.keys = [torch.zeros(BATCH, KV_HEADS, LENGTH, SIZE, device="cuda", dtype=torch.float16) for _ in range(LAYERS)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.order = torch.arange(LENGTH, device="cuda")
        frequencies = 500000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        angles = torch.outer(self.order.float(), frequencies)
        self.cos, self.sin = angles.cos(), angles.sin()
        # For a decode step.
        self.qkv = torch.zeros(BATCH, QKV, device="cuda", dtype=torch.float16)
        self.y = torch.zeros(BATCH, WIDTH, device="cuda", dtype=torch.float16)
        self.up_gate = torch.zeros(BATCH, 2 * INNER, device="cuda", dtype=torch.float16)
        self.narrow = torch.zeros(BATCH, WIDTH, device="cuda", dtype=torch.int8)
        self.wide = torch.zeros(BATCH, INNER, device="cuda", dtype=torch.int8)
        self.scales = torch.zeros(BATCH, device="cuda")
        self.sums = torch.zeros(BATCH, HEADS, SPLITS, SIZE, device="cuda")
        self.tops = torch.zeros(BATCH, HEADS, SPLITS, device="cuda")
        self.totals = torch.zeros(BATCH, HEADS, SPLITS, device="cuda")

    def choose(self, x):
        """A draw from the likeliest tokens, by exponential noise."""
        logits = F.linear(self.norm(x), self.embedding).float() * WIDTH ** -0.5
        values, ids = logits.topk(CANDIDATES, dim=-1)
        noise = torch.empty_like(values).exponential_()
        best = (torch.softmax(values, dim=-1) / noise).argmax(dim=-1, keepdim=True)
        return ids.gather(1, best)[:, 0]

    def norm(self, x):
        x = x.float()
        return (x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6)).to(torch.float16)

    def prefill(self, prompts):
        count = prompts.shape[1]
        cos, sin = self.cos[:count], self.sin[:count]
        hidden = (self.order[None, :count] > self.order[:count, None]).repeat(KV_GROUP, 1)
        x = F.embedding(prompts, self.embedding)
        for (into, out, up, down), keys, values in zip(self.layers, self.keys, self.values):
            qkv = F.linear(self.norm(x), into.unpacked()) * into.scale
            q, k, v = qkv.view(BATCH, count, -1, SIZE).transpose(1, 2).split([HEADS, KV_HEADS, KV_HEADS], dim=1)
            q, k = turned(q, cos, sin), turned(k, cos, sin)
            keys[:, :, :count] = k
            values[:, :, :count] = v
            q = q.reshape(BATCH, KV_HEADS, KV_GROUP * count, SIZE)
            scores = torch.matmul(q, k.transpose(-1, -2)).float() * SIZE ** -0.5
            weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1).to(torch.float16)
            y = torch.matmul(weights, v).view(BATCH, HEADS, count, SIZE).transpose(1, 2).reshape(BATCH, count, WIDTH)
            x = x + F.linear(self.norm(y), out.unpacked()) * out.scale
            value, gate = (F.linear(self.norm(x), up.unpacked()) * up.scale).chunk(2, dim=-1)
            x = x + F.linear(self.norm(F.relu(gate.float()).square() * value), down.unpacked()) * down.scale
        return self.choose(x[:, -1])

    def decode(self, tokens, position):
        parts = position // SPAN + 1
        x = F.embedding(tokens, self.embedding)
        for (into, out, up, down), keys, values in zip(self.layers, self.keys, self.values):
            norm_quantise[(BATCH,)](x, self.narrow, self.scales, WIDTH=WIDTH)
            into(self.narrow, self.scales, self.qkv, BATCH)
            rotate_and_store[(BATCH, HEADS + 2 * KV_HEADS)](self.qkv, keys, values, self.cos, self.sin, position, LENGTH=LENGTH,
                                                            HEADS=HEADS, KV_HEADS=KV_HEADS, SIZE=SIZE)
            attend_split[(BATCH, HEADS, parts)](self.qkv, keys, values, self.sums, self.tops, self.totals, position, SIZE ** -0.5,
                                                LENGTH=LENGTH, HEADS=HEADS, KV_HEADS=KV_HEADS, SIZE=SIZE, SPAN=SPAN, SPLITS=SPLITS)
            merge_splits[(BATCH * HEADS,)](self.sums, self.tops, self.totals, self.y, parts, SIZE=SIZE, SPLITS=SPLITS)
            norm_quantise[(BATCH,)](self.y, self.narrow, self.scales, WIDTH=WIDTH)
            out(self.narrow, self.scales, x, BATCH, add=True)
            norm_quantise[(BATCH,)](x, self.narrow, self.scales, WIDTH=WIDTH)
            up(self.narrow, self.scales, self.up_gate, BATCH)
            gate_quantise[(BATCH,)](self.up_gate, self.wide, self.scales, INNER=INNER)
            down(self.wide, self.scales, x, BATCH, add=True)
        return self.choose(x)


def serve(model, length, steps, record, mark, warm_up=False):
    prompts = torch.randint(0, VOCABULARY, (BATCH, length))
    with mark(f"batch of {BATCH} x {length}"):
        start = now()
        with mark("prompt"):
            tokens = model.prefill(prompts.cuda())
            outputs = [tokens.tolist()]
        first = end = now()
        record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
        for i in range(steps):
            step = now()
            with mark("decode"):
                tokens = model.decode(tokens, length + i)
                outputs.append(tokens.tolist())
            end = now()
            record.step("decode", step, end, BATCH, BATCH, warm_up)
    for _ in range(BATCH):
        record.request(start, first, end, length, 1 + steps, warm_up)
    assert all(0 <= token < VOCABULARY for row in outputs for token in row)
    assert torch.isfinite(model.values[-1]).all().item() and torch.isfinite(model.y).all().item()


@torch.no_grad()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    serve(model, WARM_UP_PROMPT, WARM_UP_STEPS, record, mark, warm_up=True)
    batches = max(5, min(10, args.steps // 6), args.steps // 20)
    for i, steps in enumerate(split(args.steps, batches)):
        serve(model, PROMPTS[i % len(PROMPTS)], steps, record, mark)
    record.finish()


if __name__ == "__main__":
    main()
