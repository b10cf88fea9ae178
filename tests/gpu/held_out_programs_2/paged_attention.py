"""A paged KV cache: pages handed out by the host, attention over them in the program's own Triton kernels, the rest by PyTorch."""
import os, random, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
import triton
import triton.language as tl
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LONGEST, BATCH = 32000, 512, 4
LAYERS, HEADS, KV_HEADS, SIZE, INNER = 20, 16, 4, 128, 5632
WIDTH = HEADS * SIZE
PAGE, PAGES = 16, 256
BLOCK = 64
WAVES = 6
WARM_UP_STEPS = 3


@triton.jit
def decode_attention(Q, K, V, TABLES, LENGTHS, OUT, scale, TABLE: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
                     SIZE: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """One query of one head of one sequence, over all its pages."""
    row = tl.program_id(0)
    head = tl.program_id(1)
    kv_head = head // (HEADS // KV_HEADS)
    length = tl.load(LENGTHS + row)
    d = tl.arange(0, SIZE)
    q = tl.load(Q + (row * HEADS + head) * SIZE + d).to(tl.float32) * scale
    top = tl.full([1], -1e30, tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([SIZE], tl.float32)
    for start in range(0, length, BLOCK):
        p = start + tl.arange(0, BLOCK)
        page = tl.load(TABLES + row * TABLE + p // PAGE, mask=p < length, other=0)
        offsets = ((page * PAGE + p % PAGE)[:, None] * KV_HEADS + kv_head) * SIZE + d[None, :]
        inside = p[:, None] < length
        k = tl.load(K + offsets, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(V + offsets, mask=inside, other=0.0).to(tl.float32)
        scores = tl.where(p < length, tl.sum(k * q[None, :], axis=1), -1e30)
        new = tl.maximum(top, tl.max(scores, axis=0))
        shrink = tl.exp(top - new)
        weights = tl.exp(scores - new)
        total = total * shrink + tl.sum(weights, axis=0)
        acc = acc * shrink + tl.sum(v * weights[:, None], axis=0)
        top = new
    tl.store(OUT + (row * HEADS + head) * SIZE + d, (acc / total).to(OUT.dtype.element_ty))


@triton.jit
def prefill_attention(Q, K, V, TABLE, LENGTH, OUT, scale, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SIZE: tl.constexpr,
                      PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """A block of queries of one head, over the pages of one prompt up to itself."""
    block = tl.program_id(0)
    head = tl.program_id(1)
    kv_head = head // (HEADS // KV_HEADS)
    length = tl.load(LENGTH)
    rows = block * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, SIZE)
    places = (rows[:, None] * HEADS + head) * SIZE + d[None, :]
    q = tl.load(Q + places, mask=rows[:, None] < length, other=0.0)
    top = tl.full([BLOCK], -1e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, SIZE], tl.float32)
    for start in range(0, (block + 1) * BLOCK, BLOCK):
        p = start + tl.arange(0, BLOCK)
        page = tl.load(TABLE + p // PAGE, mask=p < length, other=0)
        offsets = ((page * PAGE + p % PAGE)[:, None] * KV_HEADS + kv_head) * SIZE + d[None, :]
        k = tl.load(K + offsets, mask=p[:, None] < length, other=0.0)
        v = tl.load(V + offsets, mask=p[:, None] < length, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        visible = (p[None, :] <= rows[:, None]) & (p[None, :] < length)
        scores = tl.where(visible, scores, -1e30)
        new = tl.maximum(top, tl.max(scores, axis=1))
        shrink = tl.exp(top - new)
        weights = tl.where(visible, tl.exp(scores - new[:, None]), 0.0)
        total = total * shrink + tl.sum(weights, axis=1)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        top = new
    tl.store(OUT + places, (acc / total[:, None]).to(OUT.dtype.element_ty), mask=rows[:, None] < length)


class Pages:
    """The free pages, and the table of those that each sequence has."""

    def __init__(self, rng):
        self.free = list(range(PAGES))
        rng.shuffle(self.free)
        self.tables = torch.zeros(BATCH, LONGEST // PAGE, dtype=torch.int32).pin_memory()
        self.owned = [[] for _ in range(BATCH)]

    def reserve(self, row, length):
        while len(self.owned[row]) * PAGE < length:
            self.tables[row, len(self.owned[row])] = self.free[-1]
            self.owned[row].append(self.free.pop())

    def slot(self, row, position):
        return self.owned[row][position // PAGE] * PAGE + position % PAGE

    def release(self, row):
        self.free.extend(self.owned[row])
        self.owned[row] = []


class Model:
    """In the manner of Qwen3: grouped heads, norms on queries and keys, SwiGLU, no biases; bf16."""

    def __init__(self):
        def weight(rows, columns):
            return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).mul_(columns ** -0.5)

        def ones(size):
            return torch.ones(size, device="cuda", dtype=torch.bfloat16)

        self.embedding = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.layers = [(ones(WIDTH), ones(SIZE), ones(SIZE), ones(WIDTH), weight((HEADS + 2 * KV_HEADS) * SIZE, WIDTH),
                        weight(WIDTH, WIDTH), weight(2 * INNER, WIDTH), weight(WIDTH, INNER)) for _ in range(LAYERS)]
        self.norm, self.head = ones(WIDTH), weight(VOCABULARY, WIDTH)
        self.keys = [torch.zeros(PAGES * PAGE, KV_HEADS, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        frequencies = 1000000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        angles = torch.outer(torch.arange(LONGEST, device="cuda", dtype=torch.float32), frequencies)
        self.cos, self.sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def __call__(self, ids, positions, slots, attend):
        """The last norm's output for each of `ids`; their keys and values are written to `slots`."""
        count = ids.shape[0]
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        x = F.embedding(ids, self.embedding)
        for i, (norm_1, norm_q, norm_k, norm_2, qkv, out, gate_up, down) in enumerate(self.layers):
            h = F.linear(F.rms_norm(x, (WIDTH,), norm_1), qkv).view(count, HEADS + 2 * KV_HEADS, SIZE)
            q, k, v = h.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
            q = self.rotate(F.rms_norm(q, (SIZE,), norm_q), cos, sin).contiguous()
            k = self.rotate(F.rms_norm(k, (SIZE,), norm_k), cos, sin)
            self.keys[i].index_copy_(0, slots, k)
            self.values[i].index_copy_(0, slots, v)
            y = torch.empty_like(q)
            attend(q, self.keys[i], self.values[i], y)
            x = x + F.linear(y.view(count, WIDTH), out)
            gate, up = F.linear(F.rms_norm(x, (WIDTH,), norm_2), gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, down)
        return F.rms_norm(x, (WIDTH,), self.norm)

    def prefill(self, pages, row, prompt):
        length = len(prompt)
        pages.reserve(row, length)
        table = torch.tensor(pages.owned[row], dtype=torch.int32, device="cuda")
        count = torch.tensor([length], dtype=torch.int32, device="cuda")
        slots = torch.tensor([pages.slot(row, i) for i in range(length)], device="cuda")

        def attend(q, keys, values, out):
            prefill_attention[(triton.cdiv(length, BLOCK), HEADS)](
                q, keys, values, table, count, out, SIZE ** -0.5, HEADS=HEADS, KV_HEADS=KV_HEADS, SIZE=SIZE, PAGE=PAGE, BLOCK=BLOCK)

        x = self(torch.tensor(prompt, device="cuda"), torch.arange(length, device="cuda"), slots, attend)
        return F.linear(x[-1], self.head).argmax(-1).item()

    def decode(self, pages, tokens, lengths):
        """`lengths` of what is in the cache; the new tokens go behind."""
        for row, length in enumerate(lengths):
            pages.reserve(row, length + 1)
        tables = pages.tables.to("cuda", non_blocking=True)
        inputs = torch.tensor([tokens, lengths, [pages.slot(row, length) for row, length in enumerate(lengths)]], device="cuda")
        counts = (inputs[1] + 1).to(torch.int32)

        def attend(q, keys, values, out):
            decode_attention[(BATCH, HEADS)](
                q, keys, values, tables, counts, out, SIZE ** -0.5, TABLE=LONGEST // PAGE, HEADS=HEADS, KV_HEADS=KV_HEADS,
                SIZE=SIZE, PAGE=PAGE, BLOCK=BLOCK)

        x = self(inputs[0], inputs[1], inputs[2], attend)
        return F.linear(x, self.head).argmax(-1).tolist()


def wave(model, pages, prompts, steps, record, mark, warm_up=False):
    """Four prompts, prefilled one after the other, then decoded together."""
    arrival = now()
    tokens, firsts = [], []
    for row, prompt in enumerate(prompts):
        start = now()
        with mark("prefill seq"):
            tokens.append(model.prefill(pages, row, prompt))
        firsts.append(now())
        record.step("prefill", start, firsts[-1], len(prompt), 1, warm_up)
    lengths = [len(prompt) for prompt in prompts]
    outputs = [[token] for token in tokens]
    for _ in range(steps):
        start = now()
        with mark("decode batch"):
            tokens = model.decode(pages, tokens, lengths)
        end = now()
        record.step("decode", start, end, BATCH, BATCH, warm_up)
        for row, token in enumerate(tokens):
            outputs[row].append(token)
            lengths[row] += 1
    for row, prompt in enumerate(prompts):
        record.request(arrival, firsts[row], end, len(prompt), 1 + steps, warm_up)
        pages.release(row)
    assert all(0 <= token < VOCABULARY for output in outputs for token in output)


@torch.inference_mode()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model, pages = Model(), Pages(rng)

    def prompts(low, high):
        return [[rng.randrange(VOCABULARY) for _ in range(rng.randint(low, high))] for _ in range(BATCH)]

    wave(model, pages, prompts(20, 40), WARM_UP_STEPS, record, mark, warm_up=True)
    for steps in split(args.steps, WAVES):
        wave(model, pages, prompts(40, 300), steps, record, mark)
    assert len(pages.free) == PAGES and torch.isfinite(model.keys[-1]).all().item()
    record.finish()


if __name__ == "__main__":
    main()
