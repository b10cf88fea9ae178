"""Four chats at a time with the keys and values in eight bits: decode steps of Triton kernels that tune themselves when first met.

A step is one pass through the model, until the four next tokens are in a list on the host: a prefill step takes in four prompts of
one length by PyTorch's kernels (cuBLAS for the matmuls) and fills the cache of eight-bit numbers, a decode step runs this program's
own kernels, but for the embedding and the draw. Of each matmul there are two forms; the first call of each size, in the first
decode step of the warm-up, compiles both, runs each some hundred times and keeps the faster one. A request is one chat. There are
no NVTX ranges: --ranges changes nothing.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
import triton
import triton.language as tl
from torch.nn import functional as F
from triton.testing import do_bench

from contract import Record, arguments, now, split

VOCABULARY, LENGTH, BATCH = 32768, 192, 4
WIDTH, INNER, LAYERS, HEADS, KV, SIZE = 2048, 5632, 18, 16, 4, 128
ALL_HEADS = HEADS + 2 * KV
TYPE = torch.bfloat16
# The sizes above are multiples of all blocks, so only the four rows (of the sixteen that tl.dot needs) have to be masked.
FORMS = [triton.Config(dict(N_BLOCK=16, K_BLOCK=256), num_warps=4, num_stages=3),
         triton.Config(dict(N_BLOCK=32, K_BLOCK=128), num_warps=4, num_stages=4)]


def bench(call, quantiles):
    """Shorter than Triton's own choice, so that the start takes seconds only."""
    return do_bench(call, warmup=3, rep=15, quantiles=quantiles)


@triton.autotune(FORMS, key=["N", "K"], do_bench=bench)
@triton.jit
def matmul(x, w, residual, out, N, K, ROWS: tl.constexpr, ADD: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, 16), tl.program_id(0) * N_BLOCK + tl.arange(0, N_BLOCK)
    inside = rows[:, None] < ROWS
    total = tl.zeros((16, N_BLOCK), tl.float32)
    for k in range(0, K, K_BLOCK):
        ks = k + tl.arange(0, K_BLOCK)
        a = tl.load(x + rows[:, None] * K + ks[None, :], mask=inside, other=0.0)
        b = tl.load(w + columns[None, :] * K + ks[:, None])
        total = tl.dot(a, b, total)
    places = rows[:, None] * N + columns[None, :]
    if ADD:
        total += tl.load(residual + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + places, total.to(out.dtype.element_ty), mask=inside)


@triton.autotune(FORMS, key=["N", "K"], do_bench=bench)
@triton.jit
def gated(x, w, out, N, K, ROWS: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """The first N rows of `w` make the gate, the others what goes through it."""
    rows, columns = tl.arange(0, 16), tl.program_id(0) * N_BLOCK + tl.arange(0, N_BLOCK)
    inside = rows[:, None] < ROWS
    gate, up = tl.zeros((16, N_BLOCK), tl.float32), tl.zeros((16, N_BLOCK), tl.float32)
    for k in range(0, K, K_BLOCK):
        ks = k + tl.arange(0, K_BLOCK)
        a = tl.load(x + rows[:, None] * K + ks[None, :], mask=inside, other=0.0)
        gate = tl.dot(a, tl.load(w + columns[None, :] * K + ks[:, None]), gate)
        up = tl.dot(a, tl.load(w + (columns[None, :] + N) * K + ks[:, None]), up)
    tl.store(out + rows[:, None] * N + columns[None, :], (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=inside)


@triton.jit
def norm(x, weight, out, SPAN: tl.constexpr):
    places = tl.arange(0, SPAN)
    row = tl.program_id(0) * SPAN
    v = tl.load(x + row + places).to(tl.float32)
    v = v * tl.rsqrt(tl.sum(v * v, 0) / SPAN + 1e-6) * tl.load(weight + places).to(tl.float32)
    tl.store(out + row + places, v.to(out.dtype.element_ty))


@triton.jit(do_not_specialize=["position"])
def place(qkv, cos, sin, keys, key_scales, values, value_scales, position,
          HEADS: tl.constexpr, KV: tl.constexpr, HALF: tl.constexpr, LENGTH: tl.constexpr):
    """Turns a head of the queries where it lies; a head of keys (turned) or values goes to the cache in eight bits."""
    row, head = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, HALF)
    start = qkv + (row * (HEADS + 2 * KV) + head) * 2 * HALF
    a, b = tl.load(start + i).to(tl.float32), tl.load(start + HALF + i).to(tl.float32)
    turns = head + i * 0 < HEADS + KV  # a block, as tl.where likes it
    c = tl.where(turns, tl.load(cos + position * HALF + i), 1.0)
    s = tl.where(turns, tl.load(sin + position * HALF + i), 0.0)
    first, second = a * c - b * s, b * c + a * s
    if head < HEADS:
        tl.store(start + i, first.to(qkv.dtype.element_ty))
        tl.store(start + HALF + i, second.to(qkv.dtype.element_ty))
    else:
        scale = tl.maximum(tl.max(tl.abs(first), 0), tl.max(tl.abs(second), 0)) / 127 + 1e-8
        low, high = tl.floor(first / scale + 0.5).to(tl.int8), tl.floor(second / scale + 0.5).to(tl.int8)
        if head < HEADS + KV:
            cell = (row * KV + head - HEADS) * LENGTH + position
            tl.store(keys + cell * 2 * HALF + i, low)
            tl.store(keys + cell * 2 * HALF + HALF + i, high)
            tl.store(key_scales + cell, scale)
        else:
            cell = (row * KV + head - HEADS - KV) * LENGTH + position
            tl.store(values + cell * 2 * HALF + i, low)
            tl.store(values + cell * 2 * HALF + HALF + i, high)
            tl.store(value_scales + cell, scale)


@triton.jit(do_not_specialize=["count"])
def attend(qkv, keys, key_scales, values, value_scales, out, count, SCALE: tl.constexpr,
           HEADS: tl.constexpr, KV: tl.constexpr, SIZE: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    """One text and one head of keys, with the query heads that share it; the softmax is kept up to date block by block."""
    row, kv = tl.program_id(0), tl.program_id(1)
    group: tl.constexpr = HEADS // KV
    h, i = tl.arange(0, 16), tl.arange(0, SIZE)
    own = h[:, None] < group
    q = tl.load(qkv + (row * (HEADS + 2 * KV) + kv * group + h[:, None]) * SIZE + i[None, :], mask=own, other=0.0)
    cells = (row * KV + kv) * LENGTH
    largest = tl.full((16,), float("-inf"), tl.float32)
    total = tl.zeros((16,), tl.float32)
    sums = tl.zeros((16, SIZE), tl.float32)
    for begin in range(0, count, BLOCK):
        places = begin + tl.arange(0, BLOCK)
        there = places < count
        k = tl.load(keys + (cells + places[None, :]) * SIZE + i[:, None], mask=there[None, :], other=0).to(tl.float32)
        k_scale = tl.load(key_scales + cells + places, mask=there, other=0.0)
        scores = tl.dot(q, k.to(tl.bfloat16)) * k_scale[None, :] * SCALE
        scores = tl.where(there[None, :], scores, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, 1))
        shares, fade = tl.exp(scores - new[:, None]), tl.exp(largest - new)
        total = total * fade + tl.sum(shares, 1)
        v = tl.load(values + (cells + places[:, None]) * SIZE + i[None, :], mask=there[:, None], other=0).to(tl.float32)
        v_scale = tl.load(value_scales + cells + places, mask=there, other=0.0)
        sums = sums * fade[:, None] + tl.dot((shares * v_scale[None, :]).to(tl.bfloat16), v.to(tl.bfloat16))
        largest = new
    places_out = (row * HEADS + kv * group + h[:, None]) * SIZE + i[None, :]
    tl.store(out + places_out, (sums / total[:, None]).to(out.dtype.element_ty), mask=own)


def weights(*shape):
    return torch.empty(*shape, device="cuda", dtype=TYPE).normal_(0, shape[-1] ** -0.5)


def product(x, w, residual=None, kind=TYPE):
    out = torch.empty(BATCH, w.shape[0], device="cuda", dtype=kind)
    matmul[lambda form: (w.shape[0] // form["N_BLOCK"],)](x, w, x if residual is None else residual, out, w.shape[0], w.shape[1],
                                                          ROWS=BATCH, ADD=residual is not None)
    return out


def normed(x, weight):
    out = torch.empty_like(x)
    norm[(BATCH,)](x, weight, out, SPAN=WIDTH)
    return out


def turned(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(TYPE)


def in_eight_bits(x, numbers, scales):
    """Fills the first places of one layer's cache with keys or values of BATCH x KV x count x SIZE."""
    scale = x.float().abs().amax(-1) / 127 + 1e-8
    numbers[:, :, :x.shape[2]] = (x.float() / scale[..., None]).round().to(torch.int8)
    scales[:, :, :x.shape[2]] = scale


class Model:
    def __init__(self):
        self.embedding, self.head = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=TYPE), weights(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, device="cuda", dtype=TYPE)
        self.layers = [dict(qkv=weights(ALL_HEADS * SIZE, WIDTH), out=weights(WIDTH, HEADS * SIZE), up=weights(2 * INNER, WIDTH),
                            down=weights(WIDTH, INNER)) for _ in range(LAYERS)]
        cells = (BATCH, KV, LENGTH)  # keys, their scales, values, their scales
        self.caches = [[torch.zeros(*cells, *more, device="cuda", dtype=kind)
                        for more, kind in 2 * [((SIZE,), torch.int8), ((), torch.float32)]] for _ in range(LAYERS)]
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(), 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE))
        self.cos, self.sin = angle.cos(), angle.sin()

    def prefill(self, ids):
        count = ids.shape[1]
        later = torch.ones(count, count, dtype=torch.bool, device="cuda").triu(1)
        x = F.embedding(ids, self.embedding)
        for layer, (keys, key_scales, values, value_scales) in zip(self.layers, self.caches):
            qkv = F.linear(F.rms_norm(x, (WIDTH,), self.one, 1e-6), layer["qkv"]).view(BATCH, count, ALL_HEADS, SIZE).transpose(1, 2)
            q, k, v = qkv.split((HEADS, KV, KV), 1)
            q, k = turned(q, self.cos[:count], self.sin[:count]), turned(k, self.cos[:count], self.sin[:count])
            in_eight_bits(k, keys, key_scales)
            in_eight_bits(v, values, value_scales)
            scores = (q @ k.repeat_interleave(HEADS // KV, 1).transpose(2, 3)).float() * SIZE ** -0.5
            shares = scores.masked_fill(later, float("-inf")).softmax(-1).to(TYPE)
            heads = (shares @ v.repeat_interleave(HEADS // KV, 1)).transpose(1, 2).reshape(BATCH, count, HEADS * SIZE)
            x = x + F.linear(heads, layer["out"])
            gate, up = F.linear(F.rms_norm(x, (WIDTH,), self.one, 1e-6), layer["up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer["down"])
        return F.linear(F.rms_norm(x[:, -1], (WIDTH,), self.one, 1e-6), self.head)

    def decode(self, ids, position):
        x = F.embedding(ids, self.embedding)
        heads, inner = torch.empty(BATCH, HEADS * SIZE, device="cuda", dtype=TYPE), torch.empty(BATCH, INNER, device="cuda", dtype=TYPE)
        for layer, (keys, key_scales, values, value_scales) in zip(self.layers, self.caches):
            qkv = product(normed(x, self.one), layer["qkv"])
            place[(BATCH, ALL_HEADS)](qkv, self.cos, self.sin, keys, key_scales, values, value_scales, position,
                                      HEADS=HEADS, KV=KV, HALF=SIZE // 2, LENGTH=LENGTH)
            attend[(BATCH, KV)](qkv, keys, key_scales, values, value_scales, heads, position + 1, SCALE=SIZE ** -0.5,
                                HEADS=HEADS, KV=KV, SIZE=SIZE, LENGTH=LENGTH, BLOCK=64)
            x = product(heads, layer["out"], x)
            gated[lambda form: (INNER // form["N_BLOCK"],)](normed(x, self.one), layer["up"], inner, INNER, WIDTH, ROWS=BATCH)
            x = product(inner, layer["down"], x)
        return product(normed(x, self.one), self.head, kind=torch.float32)


def draw(logits):
    """One of the fifty likeliest for each chat, by a race of exponential clocks, which needs no wait."""
    likeliest, which = (logits.float() / 0.8).topk(50)
    chances = likeliest.softmax(-1)
    return which.gather(1, (chances / torch.empty_like(chances).exponential_()).argmax(-1, keepdim=True))[:, 0]


def chat(record, model, prompts, steps, warm_up=False):
    length = len(prompts[0])
    start = now()
    tokens = draw(model.prefill(torch.tensor(prompts).to("cuda")))
    texts = [[token] for token in tokens.tolist()]
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    for i in range(steps):
        begin = now()
        logits = model.decode(tokens, length + i)
        tokens = draw(logits)
        for text, token in zip(texts, tokens.tolist()):
            text.append(token)
        end = now()
        record.step("decode", begin, end, BATCH, BATCH, warm_up)
    for text in texts:
        record.request(start, first, end, length, len(text), warm_up)
    assert bool(torch.isfinite(logits).all()) and all(0 <= token < VOCABULARY for text in texts for token in text)


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance, record, model = random.Random(options.seed), Record(), Model()
    torch.cuda.synchronize()

    def prompts(length):
        return [[chance.randrange(VOCABULARY) for _ in range(length)] for _ in range(BATCH)]

    chat(record, model, prompts(80), 3, warm_up=True)
    for steps in split(options.steps, max(8, min(25, options.steps // 6))):
        chat(record, model, prompts(chance.randrange(92, 125)), steps)
    record.finish()


main()
