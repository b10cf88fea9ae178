"""Six of eighteen layers look in a memory of 262,144 rows instead of having an MLP; Triton reads the 32 rows that they find.

A step is one pass through the model and the draw of its tokens, until `.tolist()` has them: a prefill step takes in five prompts
of one length, a decode step a token of each. Triton has what the memory gives, the residuals with the norms, and SwiGLU; PyTorch
has the matmuls, the search, attention and the draw. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
import triton
from torch.nn import functional as F
from triton import language as tl

from contract import Record, arguments, ranges
from parts import MADE, SIZE, attended, begun, drawn, evened, heads_of, in_batches, layer_of, shares_of, tables, together, weight

VOCABULARY, LENGTH, BATCH = 32000, 448, 5
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 18, 16, 4
KEYS, HALF, ROW, NEAR, CHOSEN = 512, 256, 512, 16, 32  # two lists of KEYS keys of HALF numbers; a row of the memory has ROW
LENGTHS = (120, 280, 70, 400, 190)  # of prompts, by turns


@triton.jit
def recall(memory, places, shares, gates, out, CHOSEN: tl.constexpr, ROW: tl.constexpr):
    """The rows of the memory that a token found, each by its share, times SiLU of the token's gates."""
    token, lanes = tl.program_id(0), tl.arange(0, ROW)
    taken = tl.zeros([ROW], tl.float32)
    for i in range(0, CHOSEN):
        place = tl.load(places + token * CHOSEN + i)
        share = tl.load(shares + token * CHOSEN + i)
        taken += share * tl.load(memory + place * ROW + lanes).to(tl.float32)
    gate = tl.load(gates + token * ROW + lanes).to(tl.float32)
    tl.store(out + token * ROW + lanes, (taken * gate * tl.sigmoid(gate)).to(tl.bfloat16))


@triton.jit
def add_and_even(x, more, out, SPAN: tl.constexpr):
    """x gets what is to be added, out the same divided by its root mean square."""
    token, lanes = tl.program_id(0), tl.arange(0, SPAN)
    values = tl.load(x + token * SPAN + lanes).to(tl.float32) + tl.load(more + token * SPAN + lanes).to(tl.float32)
    tl.store(x + token * SPAN + lanes, values.to(tl.bfloat16))
    scale = 1.0 / tl.sqrt(tl.sum(values * values, 0) / SPAN + 1e-6)
    tl.store(out + token * SPAN + lanes, (values * scale).to(tl.bfloat16))


@triton.jit
def gated(gates, ups, out, N: tl.constexpr, BLOCK: tl.constexpr):
    token, lanes = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gates + token * N + lanes).to(tl.float32)
    up = tl.load(ups + token * N + lanes).to(tl.float32)
    tl.store(out + token * N + lanes, (gate * tl.sigmoid(gate) * up).to(tl.bfloat16))


def remembering(i):
    return i % 3 == 1


def layer_with_memory():
    layer = layer_of(WIDTH, 1, HEADS, KV_HEADS)
    layer.update(ask=weight(2 * HALF, WIDTH), keys=torch.empty(2, KEYS, HALF, **MADE).normal_(0, HALF ** -0.5),
                 open=weight(ROW, WIDTH), back=weight(WIDTH, ROW))
    return layer


class Engine:
    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.memory = torch.empty(KEYS * KEYS, ROW, **MADE).normal_()  # all layers that remember share it
        self.layers = [layer_with_memory() if remembering(i) else layer_of(WIDTH, INNER, HEADS, KV_HEADS) for i in range(LAYERS)]
        self.cos, self.sin = tables(LENGTH, SIZE)
        self.columns = torch.arange(LENGTH, device="cuda")
        self.cache = torch.zeros(2, LAYERS, BATCH, KV_HEADS, LENGTH, SIZE, **MADE)

    def found(self, layer, h):
        """Where each token's rows are, and their shares: a row's score is that of a key of the one list and one of the other."""
        asked = evened(F.linear(h, layer["ask"]).view(-1, 2, HALF)).transpose(0, 1)
        scores = torch.bmm(asked, layer["keys"].transpose(1, 2)).float()  # 2 x tokens x KEYS
        near = scores.topk(NEAR, -1)
        sums = near.values[0][:, :, None] + near.values[1][:, None, :]
        best = sums.flatten(1).topk(CHOSEN, -1)
        first = near.indices[0].gather(1, best.indices // NEAR)
        second = near.indices[1].gather(1, best.indices % NEAR)
        return (first * KEYS + second).contiguous(), best.values.softmax(-1).contiguous()

    def remembered(self, layer, h):
        places, shares = self.found(layer, h)
        out = torch.empty(h.shape[0], ROW, **MADE)
        recall[(h.shape[0],)](self.memory, places, shares, F.linear(h, layer["open"]), out, CHOSEN=CHOSEN, ROW=ROW)
        return F.linear(out, layer["back"])

    def fed(self, layer, h):
        out = torch.empty(h.shape[0], INNER, **MADE)
        gated[(h.shape[0], INNER // 512)](F.linear(h, layer["gate"]), F.linear(h, layer["up"]), out, N=INNER, BLOCK=512)
        return F.linear(out, layer["down"])

    def added(self, x, more):
        out = torch.empty_like(x)
        add_and_even[(x.shape[0],)](x, more, out, SPAN=WIDTH)
        return out

    def words(self, ids, start):
        (rows, count), end = ids.shape, start + ids.shape[1]
        hidden = self.columns[:end] > self.columns[start:end, None] if count > 1 else None
        x = F.embedding(ids, self.embedding).view(-1, WIDTH)
        h = evened(x)
        for i, layer in enumerate(self.layers):
            q, k, v = heads_of(layer, h.view(rows, count, WIDTH), self.cos[start:end], self.sin[start:end])
            keys, values = self.cache[0, i, :, :, :end], self.cache[1, i, :, :, :end]
            keys[:, :, start:] = k
            values[:, :, start:] = v
            heads = attended(shares_of(q, keys, hidden), values).view(-1, HEADS * SIZE)
            h = self.added(x, F.linear(heads, layer["out"]))
            h = self.added(x, self.remembered(layer, h) if remembering(i) else self.fed(layer, h))
        self.last = F.linear(h.view(rows, count, WIDTH)[:, -1], self.head).float()
        self.ids, self.count = drawn(self.last, 0.8), end
        return self.ids[:, 0].tolist()

    def prefill(self, prompts):
        return self.words(torch.tensor(prompts).to("cuda"), 0)

    def decode(self):
        return self.words(self.ids, self.count)


def serve(engine, record, mark, prompts, steps, warm_up=False):
    count = together(record, mark, ("", "", ""), VOCABULARY, engine, prompts, steps, warm_up)
    assert bool(torch.isfinite(engine.last).all()) and engine.count == count + steps <= LENGTH


def main():
    options = arguments(__doc__)
    mark, record = ranges(False), Record()
    chance, engine = begun(options.seed), Engine()
    torch.cuda.synchronize()
    in_batches(partial(serve, engine, record, mark), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(90, 4))
    record.finish()


main()
