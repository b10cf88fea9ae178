"""Weights in four bits, and every kernel of a step the program's own in Triton, the drawing of tokens by Gumbel noise included."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
import triton
import triton.language as tl

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 32000, 448, 4
LAYERS, HEADS, KV_HEADS, SIZE, INNER = 22, 16, 4, 128, 8192
WIDTH = HEADS * SIZE
QKV = (HEADS + 2 * KV_HEADS) * SIZE
GROUP = 128  # weights that share a scale
BLOCK_ROWS, BLOCK_COLUMNS = 16, 32
SLICE = 1024  # of the vocabulary, for one program of the drawing
SLICES = triton.cdiv(VOCABULARY, SLICE)
TEMPERATURE = 0.7
PROMPTS = (80, 44, 160, 120, 61, 200)
WARM_UP_PROMPT, WARM_UP_STEPS = 20, 2


@triton.jit
def look_up(IDS, TABLE, OUT, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    d = tl.arange(0, WIDTH)
    tl.store(OUT + row * WIDTH + d, tl.load(TABLE + tl.load(IDS + row) * WIDTH + d))


@triton.jit
def rms_norm(X, OUT, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    d = tl.arange(0, WIDTH)
    x = tl.load(X + row * WIDTH + d).to(tl.float32)
    tl.store(OUT + row * WIDTH + d, (x * tl.rsqrt(tl.sum(x * x, axis=0) / WIDTH + 1e-6)).to(OUT.dtype.element_ty))


@triton.jit(do_not_specialize=["rows"])
def matmul_int4(X, W, SCALES, OUT, rows, columns, inner, GROUP: tl.constexpr, ADD: tl.constexpr, BLOCK_ROWS: tl.constexpr,
                BLOCK_COLUMNS: tl.constexpr):
    """OUT (+)= X W. A byte holds a weight of a group's first half and the one half a group further on."""
    HALF: tl.constexpr = GROUP // 2
    m = tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    n = tl.program_id(0) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    j = tl.arange(0, HALF)
    acc = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.float32)
    for g in range(0, inner // GROUP):
        packed = tl.load(W + n[None, :] * (inner // 2) + g * HALF + j[:, None])
        low = ((packed & 15).to(tl.float32) - 8.0).to(tl.float16)
        high = ((packed >> 4).to(tl.float32) - 8.0).to(tl.float16)
        x = X + m[:, None] * inner + g * GROUP + j[None, :]
        x_low = tl.load(x, mask=m[:, None] < rows, other=0.0)
        x_high = tl.load(x + HALF, mask=m[:, None] < rows, other=0.0)
        scale = tl.load(SCALES + n * (inner // GROUP) + g).to(tl.float32)
        acc += (tl.dot(x_low, low) + tl.dot(x_high, high)) * scale[None, :]
    places = OUT + m[:, None] * columns + n[None, :]
    if ADD:
        acc += tl.load(places, mask=m[:, None] < rows, other=0.0).to(tl.float32)
    tl.store(places, acc.to(OUT.dtype.element_ty), mask=m[:, None] < rows)


@triton.jit(do_not_specialize=["start", "count"])
def rotate_and_store(QKV, KEYS, VALUES, start, count, LENGTH: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
                     SIZE: tl.constexpr):
    """Turns a head of queries in place; a head of keys, turned, and one of values go to the cache."""
    row = tl.program_id(0)
    head = tl.program_id(1)
    position = start + row % count
    sequence = row // count
    d = tl.arange(0, SIZE // 2)
    place = QKV + (row * (HEADS + 2 * KV_HEADS) + head) * SIZE + d
    a = tl.load(place).to(tl.float32)
    b = tl.load(place + SIZE // 2).to(tl.float32)
    angle = position.to(tl.float32) * tl.exp2(d.to(tl.float32) * (-13.287712 / (SIZE // 2)))
    cos = tl.cos(angle)
    sin = tl.sin(angle)
    if head < HEADS:
        tl.store(place, (a * cos - b * sin).to(QKV.dtype.element_ty))
        tl.store(place + SIZE // 2, (b * cos + a * sin).to(QKV.dtype.element_ty))
    elif head < HEADS + KV_HEADS:
        key = KEYS + ((sequence * LENGTH + position) * KV_HEADS + head - HEADS) * SIZE + d
        tl.store(key, (a * cos - b * sin).to(KEYS.dtype.element_ty))
        tl.store(key + SIZE // 2, (b * cos + a * sin).to(KEYS.dtype.element_ty))
    else:
        value = VALUES + ((sequence * LENGTH + position) * KV_HEADS + head - HEADS - KV_HEADS) * SIZE + d
        tl.store(value, a.to(VALUES.dtype.element_ty))
        tl.store(value + SIZE // 2, b.to(VALUES.dtype.element_ty))


@triton.jit(do_not_specialize=["start", "count"])
def attention(QKV, KEYS, VALUES, OUT, start, count, scale, LENGTH: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
              SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """One query of one head, over the cache up to its own position."""
    row = tl.program_id(0)
    head = tl.program_id(1)
    kv_head = head // (HEADS // KV_HEADS)
    position = start + row % count
    sequence = row // count
    d = tl.arange(0, SIZE)
    q = tl.load(QKV + (row * (HEADS + 2 * KV_HEADS) + head) * SIZE + d).to(tl.float32) * scale
    top = tl.full([1], -1e30, tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([SIZE], tl.float32)
    for first in range(0, position + 1, BLOCK):
        p = first + tl.arange(0, BLOCK)
        offsets = ((sequence * LENGTH + p)[:, None] * KV_HEADS + kv_head) * SIZE + d[None, :]
        inside = p[:, None] <= position
        k = tl.load(KEYS + offsets, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(VALUES + offsets, mask=inside, other=0.0).to(tl.float32)
        scores = tl.where(p <= position, tl.sum(k * q[None, :], axis=1), -1e30)
        new = tl.maximum(top, tl.max(scores, axis=0))
        shrink = tl.exp(top - new)
        weights = tl.exp(scores - new)
        total = total * shrink + tl.sum(weights, axis=0)
        acc = acc * shrink + tl.sum(v * weights[:, None], axis=0)
        top = new
    tl.store(OUT + (row * HEADS + head) * SIZE + d, (acc / total).to(OUT.dtype.element_ty))


@triton.jit
def silu_times(GATE_UP, OUT, INNER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(GATE_UP + row * 2 * INNER + d).to(tl.float32)
    up = tl.load(GATE_UP + row * 2 * INNER + INNER + d).to(tl.float32)
    tl.store(OUT + row * INNER + d, (gate * tl.sigmoid(gate) * up).to(OUT.dtype.element_ty))


@triton.jit(do_not_specialize=["count"])
def last_rows(X, OUT, count, WIDTH: tl.constexpr):
    sequence = tl.program_id(0)
    d = tl.arange(0, WIDTH)
    tl.store(OUT + sequence * WIDTH + d, tl.load(X + (sequence * count + count - 1) * WIDTH + d))


@triton.jit(do_not_specialize=["seed"])
def draw_in_slices(LOGITS, BEST, IDS, seed, factor, VOCABULARY: tl.constexpr, SLICE: tl.constexpr, SLICES: tl.constexpr):
    """The largest of the logits with Gumbel noise, which is a draw from their softmax, in one slice of one row."""
    part = tl.program_id(0)
    row = tl.program_id(1)
    i = part * SLICE + tl.arange(0, SLICE)
    logits = tl.load(LOGITS + row * VOCABULARY + i, mask=i < VOCABULARY, other=0.0).to(tl.float32)
    uniform = tl.minimum(tl.maximum(tl.rand(seed, row * VOCABULARY + i), 1e-7), 0.999999)
    noisy = tl.where(i < VOCABULARY, logits * factor - tl.log(-tl.log(uniform)), -1e30)
    tl.store(BEST + row * SLICES + part, tl.max(noisy, axis=0))
    tl.store(IDS + row * SLICES + part, part * SLICE + tl.argmax(noisy, axis=0))


@triton.jit
def draw(BEST, IDS, TOKENS, SLICES: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    best = tl.load(BEST + row * SLICES + i, mask=i < SLICES, other=-1e30)
    tl.store(TOKENS + row, tl.load(IDS + row * SLICES + tl.argmax(best, axis=0)))


class Linear:
    """Random weights of about unit variance over the inner dimension."""

    def __init__(self, columns, inner):
        self.columns, self.inner = columns, inner
        self.packed = torch.randint(0, 256, (columns, inner // 2), device="cuda", dtype=torch.uint8)
        # Four bits from -8 to 7 have a standard deviation of 4.6.
        self.scales = (torch.rand(columns, inner // GROUP, device="cuda") + 0.5).mul_(inner ** -0.5 / 4.6).to(torch.float16)

    def __call__(self, x, out, rows, add=False):
        grid = (self.columns // BLOCK_COLUMNS, triton.cdiv(rows, BLOCK_ROWS))
        matmul_int4[grid](x, self.packed, self.scales, out, rows, self.columns, self.inner, GROUP=GROUP, ADD=add, BLOCK_ROWS=BLOCK_ROWS,
                          BLOCK_COLUMNS=BLOCK_COLUMNS)


class Model:
    """In the manner of Llama 3, without norm weights; the embedding in fp16, all else in four bits. Activations in fp16, their sum
    from layer to layer too."""

    def __init__(self, seed):
        self.embedding = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.float16)
        self.layers = [(Linear(QKV, WIDTH), Linear(WIDTH, WIDTH), Linear(2 * INNER, WIDTH), Linear(WIDTH, INNER)) for _ in range(LAYERS)]
        self.head = Linear(VOCABULARY, WIDTH)
        self.keys = [torch.zeros(BATCH, LENGTH, KV_HEADS, SIZE, device="cuda", dtype=torch.float16) for _ in range(LAYERS)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.best = torch.zeros(BATCH, SLICES, device="cuda")
        self.ids = torch.zeros(BATCH, SLICES, device="cuda", dtype=torch.int32)
        self.tokens = torch.zeros(BATCH, device="cuda", dtype=torch.int32)
        self.draws = seed * 100000

    def forward(self, ids, start, count):
        """Takes in `count` tokens of each sequence from position `start` on, and draws the next of each into `self.tokens`."""
        rows = BATCH * count

        def empty(rows, columns):
            return torch.empty(rows, columns, device="cuda", dtype=torch.float16)

        x, h, qkv = empty(rows, WIDTH), empty(rows, WIDTH), empty(rows, QKV)
        y, gate_up, inner = empty(rows, WIDTH), empty(rows, 2 * INNER), empty(rows, INNER)
        look_up[(rows,)](ids, self.embedding, x, WIDTH=WIDTH)
        for (into, out, up, down), keys, values in zip(self.layers, self.keys, self.values):
            rms_norm[(rows,)](x, h, WIDTH=WIDTH)
            into(h, qkv, rows)
            rotate_and_store[(rows, HEADS + 2 * KV_HEADS)](qkv, keys, values, start, count, LENGTH=LENGTH, HEADS=HEADS,
                                                           KV_HEADS=KV_HEADS, SIZE=SIZE)
            attention[(rows, HEADS)](qkv, keys, values, y, start, count, SIZE ** -0.5, LENGTH=LENGTH, HEADS=HEADS, KV_HEADS=KV_HEADS,
                                     SIZE=SIZE, BLOCK=32)
            out(y, x, rows, add=True)
            rms_norm[(rows,)](x, h, WIDTH=WIDTH)
            up(h, gate_up, rows)
            silu_times[(rows, INNER // 1024)](gate_up, inner, INNER=INNER, BLOCK=1024)
            down(inner, x, rows, add=True)
        last, h, logits = empty(BATCH, WIDTH), empty(BATCH, WIDTH), empty(BATCH, VOCABULARY)
        last_rows[(BATCH,)](x, last, count, WIDTH=WIDTH)
        rms_norm[(BATCH,)](last, h, WIDTH=WIDTH)
        self.head(h, logits, BATCH)
        self.draws += 1
        draw_in_slices[(SLICES, BATCH)](logits, self.best, self.ids, self.draws, 1 / TEMPERATURE, VOCABULARY=VOCABULARY, SLICE=SLICE,
                                        SLICES=SLICES)
        draw[(BATCH,)](self.best, self.ids, self.tokens, SLICES=SLICES, BLOCK=triton.next_power_of_2(SLICES))
        return logits


def serve(model, length, steps, record, mark, warm_up=False):
    prompts = torch.randint(0, VOCABULARY, (BATCH * length,), dtype=torch.int32)
    start = now()
    with mark(f"prompt[{BATCH}x{length}]"):
        logits = model.forward(prompts.cuda(), 0, length)
        outputs = [model.tokens.tolist()]
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    for i in range(steps):
        step = now()
        with mark(f"token[{i}]"):
            logits = model.forward(model.tokens, length + i, 1)
            outputs.append(model.tokens.tolist())
        end = now()
        record.step("decode", step, end, BATCH, BATCH, warm_up)
    for _ in range(BATCH):
        record.request(start, first, end, length, 1 + steps, warm_up)
    assert all(0 <= token < VOCABULARY for row in outputs for token in row) and torch.isfinite(logits).all().item()


@torch.no_grad()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model(args.seed)
    with mark("warm-up"):
        serve(model, WARM_UP_PROMPT, WARM_UP_STEPS, record, mark, warm_up=True)
    for length, steps in zip(PROMPTS, split(args.steps, len(PROMPTS))):
        serve(model, length, steps, record, mark)
    record.finish()


if __name__ == "__main__":
    main()
