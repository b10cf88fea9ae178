"""A recurrent language model (gated linear attention, no KV cache) of which every kernel is our own in Triton; batch 1, cold."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
import triton
import triton.language as tl

from contract import Record, arguments, now, ranges, split

VOCABULARY, LAYERS, HEADS, SIZE, INNER = 32000, 32, 10, 128, 3840
WIDTH = HEADS * SIZE
PROJECTED = 4 * WIDTH + HEADS       # query, key, value, gate, and a decay for each head
REQUESTS, PROMPT, ROOM = 3, 40, 1024
BLOCK_VOCABULARY, BLOCKS = 1024, 32
assert BLOCK_VOCABULARY * BLOCKS >= VOCABULARY


@triton.jit
def clear(state, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(state + n, tl.zeros((BLOCK,), dtype=tl.float32), mask=n < COUNT)


@triton.jit(do_not_specialize=["position"])
def embed(x, table, tokens, position, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.load(tokens + position)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(table + token * COLUMNS + n, mask=n < COLUMNS, other=0.0)
    tl.store(x + n, row.to(tl.float32), mask=n < COLUMNS)


@triton.jit
def norm_matvec(y, x, gain, weight, rows, COLUMNS: tl.constexpr, SQUARED_RELU: tl.constexpr, BLOCK_N: tl.constexpr,
                BLOCK_K: tl.constexpr):
    """y = weight @ rms_norm(x): the norm is a factor that is known at the end of the same pass."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    sums = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
    squares = tl.zeros((BLOCK_K,), dtype=tl.float32)
    for begin in range(0, COLUMNS, BLOCK_K):
        k = begin + tl.arange(0, BLOCK_K)
        v = tl.load(x + k)
        squares += v * v
        v = v * tl.load(gain + k)
        w = tl.load(weight + n[:, None] * COLUMNS + k[None, :], mask=n[:, None] < rows, other=0.0)
        sums += w.to(tl.float32) * v[None, :]
    result = tl.sum(sums, axis=1) / tl.sqrt(tl.sum(squares, axis=0) / COLUMNS + 1e-6)
    if SQUARED_RELU:
        result = tl.maximum(result, 0.0)
        result = result * result
    tl.store(y + n, result, mask=n < rows)


@triton.jit
def matvec_add(x, h, weight, rows, COLUMNS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """x += weight @ h"""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    sums = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
    for begin in range(0, COLUMNS, BLOCK_K):
        k = begin + tl.arange(0, BLOCK_K)
        v = tl.load(h + k)
        w = tl.load(weight + n[:, None] * COLUMNS + k[None, :], mask=n[:, None] < rows, other=0.0)
        sums += w.to(tl.float32) * v[None, :]
    before = tl.load(x + n, mask=n < rows, other=0.0)
    tl.store(x + n, before + tl.sum(sums, axis=1), mask=n < rows)


@triton.jit
def recurrence(y, projected, state, N_HEADS: tl.constexpr, N: tl.constexpr):
    """state = decay * state + key value^T; y = norm(query^T state) * silu(gate), for one head."""
    head = tl.program_id(0)
    i = tl.arange(0, N)
    at = projected + head * N + i
    q = tl.load(at)
    k = tl.load(at + N_HEADS * N) * 0.1
    v = tl.load(at + 2 * N_HEADS * N)
    g = tl.load(at + 3 * N_HEADS * N)
    decay = 1.0 / (1.0 + tl.exp(-3.0 - tl.load(projected + 4 * N_HEADS * N + head)))
    places = state + head * N * N + i[:, None] * N + i[None, :]
    s = tl.load(places) * decay + k[:, None] * v[None, :]
    tl.store(places, s)
    result = tl.sum(q[:, None] * s, axis=0)
    result = result / tl.sqrt(tl.sum(result * result, axis=0) / N + 1e-6)
    tl.store(y + head * N + i, result * g / (1.0 + tl.exp(-g)))


@triton.jit
def largest_of_block(values, indices, logits, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    n = block * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(logits + n, mask=n < COUNT, other=float("-inf"))
    tl.store(values + block, tl.max(v, axis=0))
    tl.store(indices + block, block * BLOCK + tl.argmax(v, axis=0))


@triton.jit(do_not_specialize=["position"])
def largest(tokens, position, values, indices, N_BLOCKS: tl.constexpr):
    i = tl.arange(0, N_BLOCKS)
    block = tl.argmax(tl.load(values + i), axis=0)
    tl.store(tokens + position, tl.load(indices + block))


class Model:
    def __init__(self):
        def weight(rows, columns):
            return torch.randn(rows, columns, device="cuda", dtype=torch.float16).mul_(columns ** -0.5)

        def buffer(*shape, dtype=torch.float32):
            return torch.empty(*shape, device="cuda", dtype=dtype)

        self.table, self.head = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.float16), weight(VOCABULARY, WIDTH)
        self.gain = torch.ones(WIDTH, device="cuda", dtype=torch.float32)
        self.state = buffer(LAYERS, HEADS, SIZE, SIZE)
        self.layers = [(weight(PROJECTED, WIDTH), weight(WIDTH, WIDTH), weight(INNER, WIDTH), weight(WIDTH, INNER), self.state[i])
                       for i in range(LAYERS)]
        self.x, self.projected, self.y, self.inner = buffer(WIDTH), buffer(PROJECTED), buffer(WIDTH), buffer(INNER)
        self.logits, self.values, self.indices = buffer(VOCABULARY), buffer(BLOCKS), buffer(BLOCKS, dtype=torch.int32)
        self.tokens = torch.zeros(ROOM, device="cuda", dtype=torch.int32)

    def reset(self):
        count = self.state.numel()
        clear[(triton.cdiv(count, 1024),)](self.state, COUNT=count, BLOCK=1024)

    def forward(self, position, choose):
        """Takes in the token at `position`; with `choose`, puts the likeliest next one behind it."""
        embed[(triton.cdiv(WIDTH, 256),)](self.x, self.table, self.tokens, position, COLUMNS=WIDTH, BLOCK=256)
        for mix, out, up, down, state in self.layers:
            norm_matvec[(triton.cdiv(PROJECTED, 8),)](self.projected, self.x, self.gain, mix, PROJECTED, COLUMNS=WIDTH,
                                                      SQUARED_RELU=False, BLOCK_N=8, BLOCK_K=256)
            recurrence[(HEADS,)](self.y, self.projected, state, N_HEADS=HEADS, N=SIZE, num_warps=8)
            matvec_add[(triton.cdiv(WIDTH, 4),)](self.x, self.y, out, WIDTH, COLUMNS=WIDTH, BLOCK_N=4, BLOCK_K=256)
            norm_matvec[(triton.cdiv(INNER, 8),)](self.inner, self.x, self.gain, up, INNER, COLUMNS=WIDTH, SQUARED_RELU=True,
                                                  BLOCK_N=8, BLOCK_K=256)
            matvec_add[(triton.cdiv(WIDTH, 4),)](self.x, self.inner, down, WIDTH, COLUMNS=INNER, BLOCK_N=4, BLOCK_K=256)
        if choose:
            norm_matvec[(triton.cdiv(VOCABULARY, 16),)](self.logits, self.x, self.gain, self.head, VOCABULARY, COLUMNS=WIDTH,
                                                        SQUARED_RELU=False, BLOCK_N=16, BLOCK_K=256)
            largest_of_block[(BLOCKS,)](self.values, self.indices, self.logits, COUNT=VOCABULARY, BLOCK=BLOCK_VOCABULARY)
            largest[(1,)](self.tokens, position + 1, self.values, self.indices, N_BLOCKS=BLOCKS)


def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    torch.cuda.synchronize()
    for request, steps in enumerate(split(args.steps, REQUESTS)):
        prompt = torch.randint(0, VOCABULARY, (PROMPT,), dtype=torch.int32)
        cold = request == 0
        start = now()
        with mark("eval prompt"):
            model.tokens[:PROMPT].copy_(prompt)
            model.reset()
            for position in range(PROMPT):
                model.forward(position, position == PROMPT - 1)
            output = [model.tokens[PROMPT].item()]
        first = end = now()
        record.step("prefill", start, first, PROMPT, 1, cold)
        for i in range(steps):
            position = PROMPT + i
            step = now()
            with mark("eval token"):
                model.forward(position, True)
                output.append(model.tokens[position + 1].item())
            end = now()
            record.step("decode", step, end, 1, 1, cold and i == 0)
        record.request(start, first, end, PROMPT, 1 + steps, cold)
        assert all(0 <= value < VOCABULARY for value in output)
        assert torch.isfinite(model.logits).all().item() and torch.isfinite(model.state).all().item()
    record.finish()


if __name__ == "__main__":
    main()
