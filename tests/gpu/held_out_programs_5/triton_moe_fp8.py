"""Mixture of experts that the host never looks into: routing, sorting and experts in FP8 by Triton kernels, no cuBLAS.

A step is one pass through the model, from the upload of its ids until the next tokens are in a list on the host: a prefill step takes
in the four prompts of a batch, a decode step one token of each text. Which expert a row goes to is decided, and the rows are sorted
by expert, on the GPU. A request is one text. There are no ranges, with or without --ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
import triton
import triton.language as tl

from contract import Record, arguments, now, split

VOCABULARY, LENGTH, BATCH = 32000, 192, 4
WIDTH, INNER, LAYERS, EXPERTS = 2048, 1024, 16, 16
HEADS, KV_HEADS, SIZE = 16, 4, 128
ALL_HEADS = HEADS + 2 * KV_HEADS
TILE = 16  # pairs of a row and an expert that one program instance works on


# Numbers that change from step to step are kept out of specialisation, so that nothing compiles after the warm-up.
@triton.jit
def embed(ids, table, x, WIDTH: tl.constexpr):
    row, place = tl.program_id(0), tl.arange(0, WIDTH)
    token = tl.load(ids + row)
    tl.store(x + row * WIDTH + place, tl.load(table + token * WIDTH + place))


@triton.jit(do_not_specialize=["stride"])
def norm(x, weight, y, stride, WIDTH: tl.constexpr):
    """The RMS norm of the last of every `stride` rows."""
    row, place = tl.program_id(0), tl.arange(0, WIDTH)
    values = tl.load(x + (row * stride + stride - 1) * WIDTH + place).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / WIDTH + 1e-6)
    tl.store(y + row * WIDTH + place, (values * scale * tl.load(weight + place).to(tl.float32)).to(tl.float16))


@triton.jit(do_not_specialize=["rows"])
def product(x, weight, residual, out, rows, N: tl.constexpr, K: tl.constexpr, ADD: tl.constexpr,
            BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """rows x K by N x K; N and K are multiples of their blocks."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.arange(0, BLOCK_K)
    inside = m[:, None] < rows
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        a = tl.load(x + m[:, None] * K + (first + k)[None, :], mask=inside, other=0.0)
        b = tl.load(weight + n[None, :] * K + (first + k)[:, None])
        total = tl.dot(a, b, total)
    place = m[:, None] * N + n[None, :]
    if ADD:  # in place: each element is read and written by one program instance alone
        total += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, total.to(tl.float16), mask=inside)


@triton.jit(do_not_specialize=["count", "start"])
def rotate(qkv, queries, keys, values, count, start, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
           LENGTH: tl.constexpr):
    """Turns queries and keys by their places; keys and values go to the cache."""
    HALF: tl.constexpr = SIZE // 2
    row, head, place = tl.program_id(0), tl.program_id(1), tl.arange(0, HALF)
    position = start + row % count
    source = qkv + (row * (HEADS + 2 * KV_HEADS) + head) * SIZE + place
    a = tl.load(source).to(tl.float32)
    b = tl.load(source + HALF).to(tl.float32)
    angle = position.to(tl.float32) * tl.exp2(place.to(tl.float32) * (-2.0 * 13.287712379549449 / SIZE))
    cos, sin = tl.cos(angle), tl.sin(angle)
    turned_a = (a * cos - b * sin).to(tl.float16)
    turned_b = (b * cos + a * sin).to(tl.float16)
    if head < HEADS:
        target = queries + (row * HEADS + head) * SIZE + place
        tl.store(target, turned_a)
        tl.store(target + HALF, turned_b)
    else:
        cached = ((row // count * KV_HEADS + (head - HEADS) % KV_HEADS) * LENGTH + position) * SIZE + place
        if head < HEADS + KV_HEADS:
            tl.store(keys + cached, turned_a)
            tl.store(keys + cached + HALF, turned_b)
        else:
            tl.store(values + cached, a.to(tl.float16))
            tl.store(values + cached + HALF, b.to(tl.float16))


@triton.jit(do_not_specialize=["count"])
def attend_prompt(queries, keys, values, out, count, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
                  LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    block, text, head = tl.program_id(0), tl.program_id(1) // HEADS, tl.program_id(1) % HEADS
    t, d = block * BLOCK + tl.arange(0, BLOCK), tl.arange(0, SIZE)
    place = ((text * count + t[:, None]) * HEADS + head) * SIZE + d[None, :]
    q = tl.load(queries + place, mask=t[:, None] < count, other=0.0)
    base = (text * KV_HEADS + head // (HEADS // KV_HEADS)) * LENGTH * SIZE
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    sum_ = tl.zeros((BLOCK,), tl.float32)
    total = tl.zeros((BLOCK, SIZE), tl.float32)
    for first in range(0, (block + 1) * BLOCK, BLOCK):
        p = first + tl.arange(0, BLOCK)
        k = tl.load(keys + base + p[None, :] * SIZE + d[:, None], mask=p[None, :] < count, other=0.0)
        v = tl.load(values + base + p[:, None] * SIZE + d[None, :], mask=p[:, None] < count, other=0.0)
        scores = tl.dot(q, k) * (1.0 / 11.313708498984761)
        scores = tl.where((p[None, :] <= t[:, None]) & (p[None, :] < count), scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))  # finite, since each row sees the first place of its first block
        shares = tl.exp(scores - higher[:, None])
        before = tl.exp(top - higher)
        sum_ = sum_ * before + tl.sum(shares, 1)
        total = total * before[:, None] + tl.dot(shares.to(tl.float16), v)
        top = higher
    tl.store(out + place, (total / sum_[:, None]).to(tl.float16), mask=t[:, None] < count)


@triton.jit(do_not_specialize=["length"])
def attend_token(queries, keys, values, out, length, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
                 LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    """All heads that share keys and values, filled up to sixteen rows, which is the least that tl.dot takes."""
    GROUP: tl.constexpr = HEADS // KV_HEADS
    text, kv, g, d = tl.program_id(0), tl.program_id(1), tl.arange(0, 16), tl.arange(0, SIZE)
    place = (text * HEADS + kv * GROUP + g[:, None]) * SIZE + d[None, :]
    q = tl.load(queries + place, mask=g[:, None] < GROUP, other=0.0)
    base = (text * KV_HEADS + kv) * LENGTH * SIZE
    top = tl.full((16,), float("-inf"), tl.float32)
    sum_ = tl.zeros((16,), tl.float32)
    total = tl.zeros((16, SIZE), tl.float32)
    for first in range(0, length, BLOCK):
        p = first + tl.arange(0, BLOCK)
        k = tl.load(keys + base + p[None, :] * SIZE + d[:, None], mask=p[None, :] < length, other=0.0)
        v = tl.load(values + base + p[:, None] * SIZE + d[None, :], mask=p[:, None] < length, other=0.0)
        scores = tl.where(p[None, :] < length, tl.dot(q, k) * (1.0 / 11.313708498984761), float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        shares = tl.exp(scores - higher[:, None])
        before = tl.exp(top - higher)
        sum_ = sum_ * before + tl.sum(shares, 1)
        total = total * before[:, None] + tl.dot(shares.to(tl.float16), v)
        top = higher
    tl.store(out + place, (total / sum_[:, None]).to(tl.float16), mask=g[:, None] < GROUP)


@triton.jit
def route(y, weight, chosen, gates, WIDTH: tl.constexpr, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    """The two best experts of a row and their shares."""
    row, expert, k = tl.program_id(0), tl.arange(0, EXPERTS), tl.arange(0, BLOCK)
    logits = tl.zeros((EXPERTS,), tl.float32)
    for first in range(0, WIDTH, BLOCK):
        a = tl.load(y + row * WIDTH + first + k).to(tl.float32)
        w = tl.load(weight + expert[:, None] * WIDTH + (first + k)[None, :]).to(tl.float32)
        logits += tl.sum(w * a[None, :], 1)
    one = tl.argmax(logits, 0)
    others = tl.where(expert == one, float("-inf"), logits)
    two = tl.argmax(others, 0)
    share = 1.0 / (1.0 + tl.exp(tl.max(others, 0) - tl.max(logits, 0)))
    tl.store(chosen + 2 * row, one)
    tl.store(chosen + 2 * row + 1, two)
    tl.store(gates + 2 * row, share)
    tl.store(gates + 2 * row + 1, 1.0 - share)


@triton.jit(do_not_specialize=["pairs"])
def sort(chosen, order, tile_expert, tile_first, tile_end, tiles, pairs, EXPERTS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """The pairs by expert, cut into tiles of one expert each. One program instance does it all; `pairs` is at most BLOCK."""
    pair = tl.arange(0, BLOCK)
    expert_of = tl.load(chosen + pair, mask=pair < pairs, other=-1)
    offset = pairs * 0  # numbers of the kernel from the start, as the loop carries them
    tile = pairs * 0
    for expert in range(EXPERTS):
        mine = expert_of == expert
        ones = mine.to(tl.int32)
        found = tl.sum(ones, 0)
        slot = offset + tl.cumsum(ones, 0) - 1
        tl.store(order + slot, pair, mask=mine)
        needed = (found + TILE - 1) // TILE
        i = tl.arange(0, BLOCK)
        tl.store(tile_expert + tile + i, i * 0 + expert, mask=i < needed)
        tl.store(tile_first + tile + i, offset + i * TILE, mask=i < needed)
        tl.store(tile_end + tile + i, i * 0 + offset + found, mask=i < needed)
        offset += found
        tile += needed
    tl.store(tiles, tile)


@triton.jit
def experts_up(y, weight, scale, order, tile_expert, tile_first, tile_end, tiles, out, K: tl.constexpr, INNER: tl.constexpr,
               TILE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """SiLU of one half of an expert's first layer times the other half, for one tile."""
    tile = tl.program_id(1)
    if tile >= tl.load(tiles):
        return
    expert = tl.load(tile_expert + tile)
    place = tl.load(tile_first + tile) + tl.arange(0, TILE)
    inside = place < tl.load(tile_end + tile)
    pair = tl.load(order + place, mask=inside, other=0)
    n, k = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    row = expert * 2 * INNER + n
    gate = tl.zeros((TILE, BLOCK_N), tl.float32)
    up = tl.zeros((TILE, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        a = tl.load(y + (pair // 2)[:, None] * K + (first + k)[None, :], mask=inside[:, None], other=0.0)
        b = tl.load(weight + row[None, :] * K + (first + k)[:, None]).to(tl.float16)
        c = tl.load(weight + (row + INNER)[None, :] * K + (first + k)[:, None]).to(tl.float16)
        gate = tl.dot(a, b, gate)
        up = tl.dot(a, c, up)
    gate = gate * tl.load(scale + row)[None, :]
    up = up * tl.load(scale + row + INNER)[None, :]
    result = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + pair[:, None] * INNER + n[None, :], result.to(tl.float16), mask=inside[:, None])


@triton.jit
def experts_down(h, weight, scale, gates, order, tile_expert, tile_first, tile_end, tiles, out, INNER: tl.constexpr,
                 WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """An expert's second layer, times the pair's share."""
    tile = tl.program_id(1)
    if tile >= tl.load(tiles):
        return
    expert = tl.load(tile_expert + tile)
    place = tl.load(tile_first + tile) + tl.arange(0, TILE)
    inside = place < tl.load(tile_end + tile)
    pair = tl.load(order + place, mask=inside, other=0)
    n, k = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    row = expert * WIDTH + n
    total = tl.zeros((TILE, BLOCK_N), tl.float32)
    for first in range(0, INNER, BLOCK_K):
        a = tl.load(h + pair[:, None] * INNER + (first + k)[None, :], mask=inside[:, None], other=0.0)
        b = tl.load(weight + row[None, :] * INNER + (first + k)[:, None]).to(tl.float16)
        total = tl.dot(a, b, total)
    share = tl.load(gates + pair, mask=inside, other=0.0)
    result = total * tl.load(scale + row)[None, :] * share[:, None]
    tl.store(out + pair[:, None] * WIDTH + n[None, :], result.to(tl.float16), mask=inside[:, None])


@triton.jit
def combine(x, parts, WIDTH: tl.constexpr):
    row, place = tl.program_id(0), tl.arange(0, WIDTH)
    both = tl.load(parts + 2 * row * WIDTH + place).to(tl.float32) + tl.load(parts + (2 * row + 1) * WIDTH + place).to(tl.float32)
    tl.store(x + row * WIDTH + place, (tl.load(x + row * WIDTH + place).to(tl.float32) + both).to(tl.float16))


def weights(*shape):
    return torch.empty(*shape, device="cuda", dtype=torch.float16).normal_(0, shape[-1] ** -0.5)


def quantised(*shape):
    """Random FP8 weights and a scale for each row."""
    return (torch.randn(*shape, device="cuda", dtype=torch.float16).to(torch.float8_e4m3fn),
            torch.full(shape[:-1], shape[-1] ** -0.5, device="cuda", dtype=torch.float32))


def room(*shape, dtype=torch.float16):
    return torch.empty(*shape, device="cuda", dtype=dtype)


def linear(x, weight, into=None):
    rows, (n, k) = x.shape[0], weight.shape
    out = room(rows, n) if into is None else into
    product[(n // 32, triton.cdiv(rows, 32))](x, weight, out, out, rows, N=n, K=k, ADD=into is not None,
                                              BLOCK_M=32, BLOCK_N=32, BLOCK_K=128)
    return out


class Model:
    def __init__(self):
        self.embedding, self.head = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.float16), weights(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, device="cuda", dtype=torch.float16)
        self.layers = [dict(qkv=weights(ALL_HEADS * SIZE, WIDTH), out=weights(WIDTH, HEADS * SIZE), router=weights(EXPERTS, WIDTH),
                            up=quantised(EXPERTS, 2 * INNER, WIDTH), down=quantised(EXPERTS, WIDTH, INNER)) for _ in range(LAYERS)]
        self.keys = torch.zeros(LAYERS, BATCH, KV_HEADS, LENGTH, SIZE, device="cuda", dtype=torch.float16)
        self.values = torch.zeros_like(self.keys)

    def norm(self, x, stride=1):
        y = room(x.shape[0] // stride, WIDTH)
        norm[(y.shape[0],)](x, self.one, y, stride, WIDTH=WIDTH)
        return y

    def experts(self, x, layer):
        rows, pairs, y = x.shape[0], 2 * x.shape[0], self.norm(x)
        chosen, gates, order = room(pairs, dtype=torch.int32), room(pairs, dtype=torch.float32), room(pairs, dtype=torch.int32)
        most = pairs // TILE + EXPERTS  # tiles, if each expert's last one is not full
        experts, firsts, ends, tiles = (room(length, dtype=torch.int32) for length in (most, most, most, 1))
        hidden, parts = room(pairs, INNER), room(pairs, WIDTH)
        route[(rows,)](y, layer["router"], chosen, gates, WIDTH=WIDTH, EXPERTS=EXPERTS, BLOCK=256)
        sort[(1,)](chosen, order, experts, firsts, ends, tiles, pairs, EXPERTS=EXPERTS, TILE=TILE, BLOCK=16 if pairs <= 16 else 1024)
        most = min(most, pairs)
        experts_up[(INNER // 32, most)](y, *layer["up"], order, experts, firsts, ends, tiles, hidden, K=WIDTH, INNER=INNER, TILE=TILE,
                                        BLOCK_N=32, BLOCK_K=128)
        experts_down[(WIDTH // 32, most)](hidden, *layer["down"], gates, order, experts, firsts, ends, tiles, parts, INNER=INNER,
                                          WIDTH=WIDTH, TILE=TILE, BLOCK_N=32, BLOCK_K=128)
        combine[(rows,)](x, parts, WIDTH=WIDTH)

    def __call__(self, ids, start):
        """The logits behind the last of `ids` (BATCH x count), whose places begin at `start`."""
        count = ids.shape[1]
        rows = BATCH * count
        x = room(rows, WIDTH)
        embed[(rows,)](ids, self.embedding, x, WIDTH=WIDTH)
        shape = dict(HEADS=HEADS, KV_HEADS=KV_HEADS, SIZE=SIZE, LENGTH=LENGTH)
        for layer, keys, values in zip(self.layers, self.keys, self.values):
            qkv, queries, heads = linear(self.norm(x), layer["qkv"]), room(rows, HEADS * SIZE), room(rows, HEADS * SIZE)
            rotate[(rows, ALL_HEADS)](qkv, queries, keys, values, count, start, **shape)
            if count > 1:
                attend_prompt[(triton.cdiv(count, 64), BATCH * HEADS)](queries, keys, values, heads, count, **shape, BLOCK=64)
            else:
                attend_token[(BATCH, KV_HEADS)](queries, keys, values, heads, start + 1, **shape, BLOCK=64)
            linear(heads, layer["out"], into=x)
            self.experts(x, layer)
        return linear(self.norm(x, count), self.head)


def draw(logits):
    chances = (logits.float() / 0.9).softmax(-1)
    return (chances / torch.empty_like(chances).exponential_()).argmax(-1).tolist()


def write(record, model, prompts, steps, warm_up=False):
    length = len(prompts[0])
    start = now()
    logits = model(torch.tensor(prompts).to("cuda"), 0)
    texts = [[token] for token in draw(logits)]
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    for i in range(steps):
        begin = now()
        logits = model(torch.tensor([text[-1:] for text in texts]).to("cuda"), length + i)
        for text, token in zip(texts, draw(logits)):
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

    def prompts(length):
        return [[chance.randrange(VOCABULARY) for _ in range(length)] for _ in range(BATCH)]

    write(record, model, prompts(72), 3, warm_up=True)
    for steps in split(options.steps, max(8, min(25, options.steps // 6))):
        write(record, model, prompts(chance.randrange(84, 113)), steps)
    record.finish()


main()
