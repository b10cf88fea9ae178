"""A small engine with Triton for what lies between the matmuls: norm, turning, decode's attention and SwiGLU.

A step is one pass through the model and the draw of two tokens, until `.cpu()` has them on the host: a prefill step
takes in two prompts, padded on the right to one multiple of 64, a decode step one token of each text, each at a place
of its own. Matmuls are cuBLAS's, a prompt's attention is PyTorch's. Padding is computed like the rest; the keys and
values that it leaves in the cache are overwritten before they are seen. A request is one text. With --ranges a step has
one range, with the padded length or the number of the step in its words.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
import triton
from torch.nn import functional as F
from triton import language as tl

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH, MULTIPLE = 49152, 1024, 2, 64
WIDTH, INNER, LAYERS = 2048, 5632, 22
HEADS, KV_HEADS, SIZE = 16, 4, 128
GROUP, ALL_HEADS = HEADS // KV_HEADS, HEADS + 2 * KV_HEADS
BANDS = ((64, 128), (580, 768), (200, 420))  # of prompt lengths, by turns
MADE = dict(device="cuda", dtype=torch.bfloat16)


@triton.jit
def add_norm(x, more, scales, out, SPAN: tl.constexpr, ADD: tl.constexpr):
    """Adds `more` to a row of `x` where it lies, if it is to, and norms the row."""
    lanes = tl.arange(0, SPAN)
    spots = tl.program_id(0) * SPAN + lanes
    row = tl.load(x + spots).to(tl.float32)
    if ADD:
        row += tl.load(more + spots).to(tl.float32)
        tl.store(x + spots, row.to(tl.bfloat16))
    row = row * tl.rsqrt(tl.sum(row * row, 0) / SPAN + 1e-6) * tl.load(scales + lanes).to(tl.float32)
    tl.store(out + spots, row.to(tl.bfloat16))


@triton.jit(do_not_specialize=["count"])
def turn(qkv, cos, sin, places, keys, values, count,
         HEADS: tl.constexpr, KV: tl.constexpr, HALF: tl.constexpr, LENGTH: tl.constexpr):
    """One head of one row, of which a text has `count`. Keys are turned on their way to the cache, queries in place."""
    row, head = tl.program_id(0), tl.program_id(1)
    text = row // count
    place = tl.load(places + text) + row % count
    lanes = tl.arange(0, HALF)
    source = qkv + (row * (HEADS + 2 * KV) + head) * 2 * HALF
    a, b = tl.load(source + lanes).to(tl.float32), tl.load(source + HALF + lanes).to(tl.float32)
    c, s = tl.load(cos + place * HALF + lanes), tl.load(sin + place * HALF + lanes)
    first, second = (a * c - b * s).to(tl.bfloat16), (b * c + a * s).to(tl.bfloat16)
    if head < HEADS:
        tl.store(source + lanes, first)
        tl.store(source + HALF + lanes, second)
    else:
        if head < HEADS + KV:
            cell = ((text * KV + head - HEADS) * LENGTH + place) * 2 * HALF
            tl.store(keys + cell + lanes, first)
            tl.store(keys + cell + HALF + lanes, second)
        else:
            cell = ((text * KV + head - HEADS - KV) * LENGTH + place) * 2 * HALF
            tl.store(values + cell + lanes, a.to(tl.bfloat16))
            tl.store(values + cell + HALF + lanes, b.to(tl.bfloat16))


@triton.jit
def attend(qkv, places, keys, values, out, scale, HEADS: tl.constexpr, KV: tl.constexpr, SIZE: tl.constexpr,
           LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    """One head of one text against the cache up to the text's place, read from memory: no length is built in."""
    text, head = tl.program_id(0), tl.program_id(1)
    lanes = tl.arange(0, SIZE)
    last = tl.load(places + text)
    query = tl.load(qkv + (text * (HEADS + 2 * KV) + head) * SIZE + lanes).to(tl.float32) * scale
    base = (text * KV + head // (HEADS // KV)) * LENGTH * SIZE
    top = -float("inf")
    total = 0.0
    sums = tl.zeros([SIZE], tl.float32)
    for start in range(0, last + 1, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        there = rows <= last
        spots = base + rows[:, None] * SIZE + lanes[None, :]
        key = tl.load(keys + spots, mask=there[:, None], other=0.0).to(tl.float32)
        scores = tl.where(there, tl.sum(key * query[None, :], 1), -float("inf"))
        higher = tl.maximum(tl.max(scores, 0), top)
        shares = tl.exp(scores - higher)
        fade = tl.exp(top - higher)
        value = tl.load(values + spots, mask=there[:, None], other=0.0).to(tl.float32)
        total = total * fade + tl.sum(shares, 0)
        sums = sums * fade + tl.sum(shares[:, None] * value, 0)
        top = higher
    tl.store(out + (text * HEADS + head) * SIZE + lanes, (sums / total).to(tl.bfloat16))


@triton.jit
def swiglu(both, out, INNER: tl.constexpr, BLOCK: tl.constexpr):
    row, lanes = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(both + row * 2 * INNER + lanes).to(tl.float32)
    up = tl.load(both + row * 2 * INNER + INNER + lanes).to(tl.float32)
    tl.store(out + row * INNER + lanes, (gate * tl.sigmoid(gate) * up).to(tl.bfloat16))


def weight(rows, columns):
    return torch.empty(rows, columns, **MADE).normal_(0, columns ** -0.5)


class Engine:
    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.layers = [dict(qkv=weight(ALL_HEADS * SIZE, WIDTH), out=weight(WIDTH, HEADS * SIZE),
                            up=weight(2 * INNER, WIDTH), down=weight(WIDTH, INNER),
                            keys=torch.zeros(BATCH, KV_HEADS, LENGTH, SIZE, **MADE),
                            values=torch.zeros(BATCH, KV_HEADS, LENGTH, SIZE, **MADE)) for _ in range(LAYERS)]
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(),
                            1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE))
        self.cos, self.sin = angle.cos(), angle.sin()
        self.rows = torch.arange(BATCH, device="cuda")
        # Where the first row of each text stands: at the beginning for prompts, at its next place for decode.
        self.beginnings = torch.zeros(BATCH, dtype=torch.int32, device="cuda")
        self.places = torch.zeros(BATCH, dtype=torch.int32, device="cuda")

    def forward(self, ids, places):
        """The normed last states of all of `ids` (BATCH x count)."""
        count = ids.shape[1]
        rows = BATCH * count
        x = F.embedding(ids.view(-1), self.embedding)
        h, heads = torch.empty_like(x), torch.empty(rows, HEADS * SIZE, **MADE)
        inner, more = torch.empty(rows, INNER, **MADE), x
        for i, layer in enumerate(self.layers):
            add_norm[(rows,)](x, more, self.one, h, SPAN=WIDTH, ADD=i > 0)
            qkv = F.linear(h, layer["qkv"])
            turn[(rows, ALL_HEADS)](qkv, self.cos, self.sin, places, layer["keys"], layer["values"], count,
                                    HEADS=HEADS, KV=KV_HEADS, HALF=SIZE // 2, LENGTH=LENGTH)
            if count > 1:
                q = qkv.view(BATCH, count, ALL_HEADS, SIZE)[:, :, :HEADS].transpose(1, 2)
                k, v = (layer[name][:, :, :count].repeat_interleave(GROUP, 1) for name in ("keys", "values"))
                heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                heads = heads.transpose(1, 2).reshape(rows, HEADS * SIZE)
            else:
                attend[(BATCH, HEADS)](qkv, places, layer["keys"], layer["values"], heads, SIZE ** -0.5,
                                       HEADS=HEADS, KV=KV_HEADS, SIZE=SIZE, LENGTH=LENGTH, BLOCK=64)
            more = F.linear(heads, layer["out"])
            add_norm[(rows,)](x, more, self.one, h, SPAN=WIDTH, ADD=True)
            both = F.linear(h, layer["up"])
            swiglu[(rows, INNER // 512)](both, inner, INNER=INNER, BLOCK=512)
            more = F.linear(inner, layer["down"])
        add_norm[(rows,)](x, more, self.one, h, SPAN=WIDTH, ADD=True)
        return h.view(BATCH, count, WIDTH)

    def prefill(self, prompts):
        padded = -(-max(len(prompt) for prompt in prompts) // MULTIPLE) * MULTIPLE
        ids = torch.tensor([prompt + [0] * (padded - len(prompt)) for prompt in prompts]).to("cuda")
        lengths = torch.tensor([len(prompt) for prompt in prompts]).to("cuda")
        states = self.forward(ids, self.beginnings)[self.rows, lengths - 1]
        self.places.copy_(lengths)
        return F.linear(states, self.head)

    def decode(self, ids):
        states = self.forward(ids, self.places)[:, 0]
        self.places.add_(1)
        return F.linear(states, self.head)


def draw(logits):
    """One of the thirty likeliest for each text, by a race of exponential clocks."""
    likeliest, which = logits.float().topk(30)
    chances = likeliest.softmax(-1)
    return which.gather(-1, (chances / torch.empty_like(chances).exponential_()).argmax(-1, keepdim=True))


def serve(engine, record, mark, prompts, steps, warm_up=False):
    lengths = [len(prompt) for prompt in prompts]
    start = now()
    with mark(f"prompts, {-(-max(lengths) // MULTIPLE) * MULTIPLE}"):
        logits = engine.prefill(prompts)
        ids = draw(logits)
        texts = [[token] for token in ids.cpu()[:, 0].tolist()]
    first = end = now()
    record.step("prefill", start, first, sum(lengths), BATCH, warm_up)
    for i in range(steps):
        begin = now()
        with mark(f"step {i}"):
            logits = engine.decode(ids)
            ids = draw(logits)
            tokens = ids.cpu()[:, 0].tolist()
        end = now()
        record.step("decode", begin, end, BATCH, BATCH, warm_up)
        for text, token in zip(texts, tokens):
            text.append(token)
    for length, text in zip(lengths, texts):
        record.request(start, first, end, length, len(text), warm_up)
    assert bool(torch.isfinite(logits).all()) and all(0 <= token < VOCABULARY for text in texts for token in text)
    assert engine.places.tolist() == [length + steps for length in lengths]


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    torch.backends.cuda.enable_cudnn_sdp(False)  # else a plan is built for each length
    chance, engine = random.Random(options.seed), Engine()
    torch.cuda.synchronize()

    def prompts(low, high):
        return [[chance.randrange(VOCABULARY) for _ in range(chance.randrange(low, high + 1))] for _ in range(BATCH)]

    serve(engine, record, mark, prompts(100, 180), 3, warm_up=True)
    for number, steps in enumerate(split(options.steps, max(3, min(24, options.steps // 10)))):
        serve(engine, record, mark, prompts(*BANDS[number % len(BANDS)]), steps)
    record.finish()


main()
