"""A model whose every kernel in a step is our own Triton one: no cuBLAS, no PyTorch operator but torch.empty. No warm-up."""
import torch
import triton
import triton.language as tl

from contract import Record, arguments, now, ranges, split

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, INNER, VOCABULARY = 12, 1024, 8, 4, 128, 2816, 32000
PROMPT = 64
QKV = (HEADS + 2 * KV_HEADS) * HEAD


@triton.jit
def embed_kernel(ids, table, out, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    token = tl.load(ids + row)
    tl.store(out + row * WIDTH + column, tl.load(table + token * WIDTH + column))


@triton.jit
def rmsnorm_kernel(x, w, out, WIDTH: tl.constexpr):
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    y = tl.load(x + at).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(y * y, 0) / WIDTH + 1e-5)
    tl.store(out + at, y * scale * tl.load(w + tl.arange(0, WIDTH)).to(tl.float32))


@triton.jit
def matmul_kernel(x, w, residual, out, m, n, k, ADD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """out[m, n] = x[m, k] @ w[n, k].T (+ residual); k is a multiple of BLOCK_K."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        a = tl.load(x + rows[:, None] * k + start + inner[None, :], mask=rows[:, None] < m, other=0.0)
        b = tl.load(w + columns[None, :] * k + start + inner[:, None], mask=columns[None, :] < n, other=0.0)
        total = tl.dot(a, b, total)
    at = rows[:, None] * n + columns[None, :]
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    if ADD:
        total += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(tl.bfloat16), mask=inside)


@triton.jit(do_not_specialize=["first"])
def rope_kernel(qkv, q, keys, values, first, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD: tl.constexpr):
    """Rotates q and k of one row and head by its position and files k and v in the cache."""
    row, head = tl.program_id(0), tl.program_id(1)
    position = first + row
    half = tl.arange(0, HEAD // 2)
    source = qkv + (row * (HEADS + 2 * KV_HEADS) + head) * HEAD
    a, b = tl.load(source + half).to(tl.float32), tl.load(source + HEAD // 2 + half).to(tl.float32)
    angle = position.to(tl.float32) * tl.exp(half.to(tl.float32) / (HEAD // 2) * -9.210340371976184)  # 10000 ** (-half / (HEAD / 2))
    cos, sin = tl.cos(angle), tl.sin(angle)
    if head < HEADS:
        target = q + (row * HEADS + head) * HEAD
        tl.store(target + half, a * cos - b * sin)
        tl.store(target + HEAD // 2 + half, b * cos + a * sin)
    elif head < HEADS + KV_HEADS:
        target = keys + (position * KV_HEADS + head - HEADS) * HEAD
        tl.store(target + half, a * cos - b * sin)
        tl.store(target + HEAD // 2 + half, b * cos + a * sin)
    else:
        target = values + (position * KV_HEADS + head - HEADS - KV_HEADS) * HEAD
        tl.store(target + half, a)
        tl.store(target + HEAD // 2 + half, b)


@triton.jit(do_not_specialize=["first"])
def attention_kernel(q, keys, values, out, first, scale, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD: tl.constexpr, BLOCK: tl.constexpr):
    """One query of one head over the keys up to its own position, by an online softmax."""
    row, head = tl.program_id(0), tl.program_id(1)
    last = first + row
    d = tl.arange(0, HEAD)
    query = tl.load(q + (row * HEADS + head) * HEAD + d).to(tl.float32) * scale
    best = -float("inf")
    weights = 0.0
    total = tl.zeros((HEAD,), dtype=tl.float32)
    for start in range(0, last + 1, BLOCK):
        places = start + tl.arange(0, BLOCK)
        seen = places <= last
        at = (places[:, None] * KV_HEADS + head // (HEADS // KV_HEADS)) * HEAD + d[None, :]
        key = tl.load(keys + at, mask=seen[:, None], other=0.0).to(tl.float32)
        score = tl.where(seen, tl.sum(key * query[None, :], 1), -float("inf"))
        higher = tl.maximum(best, tl.max(score, 0))
        shrink = tl.exp(best - higher)
        weight = tl.exp(score - higher)
        value = tl.load(values + at, mask=seen[:, None], other=0.0).to(tl.float32)
        total = total * shrink + tl.sum(value * weight[:, None], 0)
        weights = weights * shrink + tl.sum(weight, 0)
        best = higher
    tl.store(out + (row * HEADS + head) * HEAD + d, total / weights)


@triton.jit
def silu_mul_kernel(gate_up, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_up + row * 2 * WIDTH + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + column, gate * tl.sigmoid(gate) * up, mask=column < WIDTH)


@triton.jit
def softmax_argmax_kernel(logits, token, probability, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Greedy choice and its probability: a softmax over one row in one program."""
    column = tl.arange(0, BLOCK)
    x = tl.load(logits + column, mask=column < WIDTH, other=-float("inf")).to(tl.float32)
    highest = tl.max(x, 0)
    choice = tl.min(tl.where(x == highest, column, WIDTH), 0)
    tl.store(token, choice.to(tl.int64))
    tl.store(probability, 1.0 / tl.sum(tl.exp(x - highest), 0))


def weight(n, k):
    return (torch.randn(n, k, device="cuda") * k ** -0.5).bfloat16()


def empty(*shape):
    return torch.empty(shape, device="cuda", dtype=torch.bfloat16)


def matmul(x, w, residual=None):
    (m, k), n = x.shape, w.shape[0]
    out = empty(m, n)
    matmul_kernel[(triton.cdiv(m, 16), triton.cdiv(n, 64))](x, w, x if residual is None else residual, out, m, n, k, ADD=residual is not None,
                                                             BLOCK_M=16, BLOCK_N=64, BLOCK_K=128, num_warps=4, num_stages=3)
    return out


def norm(x, w):
    out = torch.empty_like(x)
    rmsnorm_kernel[(x.shape[0],)](x, w, out, WIDTH=HIDDEN)
    return out


class Model:
    def __init__(self, room):
        self.table, self.head, self.last = weight(VOCABULARY, HIDDEN), weight(VOCABULARY, HIDDEN), torch.ones_like(empty(HIDDEN))
        self.layers = [(torch.ones_like(empty(HIDDEN)), weight(QKV, HIDDEN), weight(HIDDEN, HEADS * HEAD), torch.ones_like(empty(HIDDEN)),
                        weight(2 * INNER, HIDDEN), weight(HIDDEN, INNER)) for _ in range(LAYERS)]
        self.cache = [(empty(room, KV_HEADS, HEAD), empty(room, KV_HEADS, HEAD)) for _ in range(LAYERS)]
        self.token = torch.zeros(1, device="cuda", dtype=torch.long)
        self.probability = torch.zeros(1, device="cuda")

    def step(self, ids, first):
        rows = ids.shape[0]
        heads = dict(HEADS=HEADS, KV_HEADS=KV_HEADS, HEAD=HEAD)
        x = empty(rows, HIDDEN)
        embed_kernel[(rows,)](ids, self.table, x, WIDTH=HIDDEN)
        for (norm1, w_qkv, w_out, norm2, w_up, w_down), (keys, values) in zip(self.layers, self.cache):
            qkv, q, y = matmul(norm(x, norm1), w_qkv), empty(rows, HEADS * HEAD), empty(rows, HEADS * HEAD)
            rope_kernel[(rows, HEADS + 2 * KV_HEADS)](qkv, q, keys, values, first, **heads)
            attention_kernel[(rows, HEADS)](q, keys, values, y, first, HEAD ** -0.5, BLOCK=32, **heads)
            x = matmul(y, w_out, x)
            gate_up, z = matmul(norm(x, norm2), w_up), empty(rows, INNER)
            silu_mul_kernel[(rows, triton.cdiv(INNER, 1024))](gate_up, z, WIDTH=INNER, BLOCK=1024)
            x = matmul(z, w_down, x)
        logits = matmul(norm(x[rows - 1:], self.last), self.head)
        softmax_argmax_kernel[(1,)](logits, self.token, self.probability, WIDTH=VOCABULARY, BLOCK=triton.next_power_of_2(VOCABULARY), num_warps=16)
        return self.token


def main():
    options = arguments(__doc__)
    mark = ranges(options.ranges)
    record = Record()
    torch.manual_seed(options.seed)
    model = Model(PROMPT + options.steps + 1)
    prompt = torch.randint(0, VOCABULARY, (PROMPT,))
    outputs = []
    for number, count in enumerate(split(options.steps, 3)):
        cold = number == 0  # the first prefill and the first decode step compile their kernels
        begin = now()
        with mark("ingest"):
            tokens = [model.step(prompt.cuda(), 0).item()]
        first = end = now()
        record.step("prefill", begin, first, PROMPT, 1, cold)
        for i in range(count):
            start = now()
            with mark("emit"):
                tokens.append(model.step(model.token, PROMPT + i).item())
            end = now()
            record.step("decode", start, end, 1, 1, cold and i == 0)
        record.request(begin, first, end, PROMPT, len(tokens), cold)
        assert 0 < model.probability.item() <= 1 and all(0 <= token < VOCABULARY for token in tokens)
        outputs.append(tokens)
    assert outputs[1][:len(outputs[0])] == outputs[0] and outputs[2][:len(outputs[1])] == outputs[1], "the same prompt gave other tokens"
    record.finish()


main()
