"""Six texts in a batch, each with a low-rank adapter of its own out of sixteen, whose weights the program's Triton kernels pick.

A step is one pass through the model and the draw of six tokens, until `.tolist()` has them: a prefill step takes in six prompts
of one length, a decode step a token of each. Triton has the adapters, the residuals with the norms, and SwiGLU; PyTorch has the
matmuls of the model, attention and the draw. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
import triton
from torch.nn import functional as F
from triton import language as tl

from contract import Record, arguments, ranges
from parts import MADE, SIZE, attended, begun, drawn, evened, in_batches, shares_of, tables, together, turned, weight

VOCABULARY, LENGTH, BATCH, ADAPTERS, RANK = 32000, 448, 6, 16, 16
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 20, 16, 4
ALL_HEADS = HEADS + 2 * KV_HEADS
LENGTHS = (100, 260, 64, 340, 180)  # of prompts, by turns


@triton.jit
def shrink(x, downs, which, out, K: tl.constexpr, RANK: tl.constexpr, BK: tl.constexpr):
    """A token's row of x (K wide) times the first matrix (RANK x K) of its adapter, in fp32."""
    row, ranks, ks = tl.program_id(0), tl.arange(0, RANK), tl.arange(0, BK)
    adapter = tl.load(which + row)
    sums = tl.zeros([RANK], tl.float32)
    for start in range(0, K, BK):
        values = tl.load(x + row * K + start + ks).to(tl.float32)
        part = tl.load(downs + (adapter * RANK + ranks)[:, None] * K + (start + ks)[None, :]).to(tl.float32)
        sums += tl.sum(part * values[None, :], 1)
    tl.store(out + row * RANK + ranks, sums)


@triton.jit
def expand(small, ups, which, out, SCALE: tl.constexpr, N: tl.constexpr, RANK: tl.constexpr, BN: tl.constexpr):
    """Adds what the second matrix (N x RANK) of its adapter makes of a token's few numbers to BN columns of its row of out."""
    row, ranks, ns = tl.program_id(0), tl.arange(0, RANK), tl.program_id(1) * BN + tl.arange(0, BN)
    adapter = tl.load(which + row)
    values = tl.load(small + row * RANK + ranks)
    part = tl.load(ups + (adapter * N + ns)[:, None] * RANK + ranks[None, :]).to(tl.float32)
    spots = out + row * N + ns
    sums = tl.load(spots).to(tl.float32) + SCALE * tl.sum(part * values[None, :], 1)
    tl.store(spots, sums.to(tl.bfloat16))


@triton.jit
def add_and_even(x, more, out, SPAN: tl.constexpr):
    """x gets what is to be added, out the same divided by its root mean square."""
    row, lanes = tl.program_id(0), tl.arange(0, SPAN)
    values = tl.load(x + row * SPAN + lanes).to(tl.float32) + tl.load(more + row * SPAN + lanes).to(tl.float32)
    tl.store(x + row * SPAN + lanes, values.to(tl.bfloat16))
    scale = tl.rsqrt(tl.sum(values * values, 0) / SPAN + 1e-6)
    tl.store(out + row * SPAN + lanes, (values * scale).to(tl.bfloat16))


@triton.jit
def gate(both, out, N: tl.constexpr, BLOCK: tl.constexpr):
    """SwiGLU of BLOCK columns of a row, whose first N are the gates."""
    row, lanes = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(both + row * 2 * N + lanes).to(tl.float32)
    second = tl.load(both + row * 2 * N + N + lanes).to(tl.float32)
    tl.store(out + row * N + lanes, (first * tl.sigmoid(first) * second).to(tl.bfloat16))


class Adapted:
    """A matrix and what sixteen adapters add to it."""

    def __init__(self, rows, columns):
        self.rows, self.columns, self.matrix = rows, columns, weight(rows, columns)
        self.downs, self.ups = weight(ADAPTERS * RANK, columns), weight(ADAPTERS * rows, RANK)

    def __call__(self, x, which):
        """x is tokens x columns, `which` has the adapter of each token."""
        tokens = x.shape[0]
        out = F.linear(x, self.matrix)
        small = torch.empty(tokens, RANK, dtype=torch.float32, device="cuda")
        shrink[(tokens,)](x, self.downs, which, small, K=self.columns, RANK=RANK, BK=256)
        expand[(tokens, self.rows // 128)](small, self.ups, which, out, SCALE=0.5, N=self.rows, RANK=RANK, BN=128)
        return out


class Engine:
    def __init__(self, chance):
        self.chance = chance
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.layers = [dict(qkv=Adapted(ALL_HEADS * SIZE, WIDTH), out=Adapted(WIDTH, HEADS * SIZE), both=weight(2 * INNER, WIDTH),
                            down=Adapted(WIDTH, INNER), keys=torch.zeros(BATCH, KV_HEADS, LENGTH, SIZE, **MADE),
                            values=torch.zeros(BATCH, KV_HEADS, LENGTH, SIZE, **MADE)) for _ in range(LAYERS)]
        self.cos, self.sin = tables(LENGTH, SIZE)
        self.columns = torch.arange(LENGTH, device="cuda")

    def attend(self, layer, qkv, start, end, hidden):
        """tokens x heads * size."""
        q, k, v = qkv.view(BATCH, end - start, ALL_HEADS, SIZE).transpose(1, 2).split((HEADS, KV_HEADS, KV_HEADS), 1)
        cos, sin = self.cos[start:end], self.sin[start:end]
        layer["keys"][:, :, start:end] = turned(k, cos, sin)
        layer["values"][:, :, start:end] = v
        shares = shares_of(turned(q, cos, sin), layer["keys"][:, :, :end], hidden)
        return attended(shares, layer["values"][:, :, :end]).reshape(-1, HEADS * SIZE)

    def word(self, ids, start):
        """Draws a token for each text behind ids, texts x count, the first of which stand at `start`."""
        count = ids.shape[1]
        end, tokens = start + count, BATCH * count
        hidden = self.columns[:end] > self.columns[start:end, None] if count > 1 else None
        which = self.which[:, None].expand(BATCH, count).reshape(-1)
        x = F.embedding(ids.reshape(-1), self.embedding)
        h = evened(x)
        inner = torch.empty(tokens, INNER, **MADE)
        for layer in self.layers:
            more = layer["out"](self.attend(layer, layer["qkv"](h, which), start, end, hidden), which)
            add_and_even[(tokens,)](x, more, h, SPAN=WIDTH)
            gate[(tokens, INNER // 512)](F.linear(h, layer["both"]), inner, N=INNER, BLOCK=512)
            add_and_even[(tokens,)](x, layer["down"](inner, which), h, SPAN=WIDTH)
        self.last = F.linear(h.view(BATCH, count, WIDTH)[:, -1], self.head).float()
        self.ids, self.count = drawn(self.last, 0.8), end
        return self.ids[:, 0].tolist()

    def prefill(self, prompts):
        chosen = [self.chance.randrange(ADAPTERS) for _ in range(BATCH)]
        self.which = torch.tensor(chosen, dtype=torch.int32).to("cuda")
        return self.word(torch.tensor(prompts).to("cuda"), 0)

    def decode(self):
        return self.word(self.ids, self.count)


def serve(engine, record, mark, prompts, steps, warm_up=False):
    count = together(record, mark, ("", "", ""), VOCABULARY, engine, prompts, steps, warm_up)
    assert bool(torch.isfinite(engine.last).all()) and engine.count == count + steps <= LENGTH


def main():
    options = arguments(__doc__)
    mark, record = ranges(False), Record()
    chance = begun(options.seed)
    engine = Engine(chance)
    torch.cuda.synchronize()
    in_batches(partial(serve, engine, record, mark), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(80, 4))
    record.finish()


main()
