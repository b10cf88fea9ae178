"""A cold start with three compilers: Inductor for what lies between the matmuls, a Triton kernel of the program's own
for decode's attention, and NVRTC, by which PyTorch makes some of its own kernels when they are first called.

Nothing warms up, and all three start with empty caches. A step is a pass through the model, from the upload of its
tokens until the next token and how sure the model was of it are on the host. A request is one prompt. With --ranges a
step has "forward" and "draw" side by side.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import atexit
import math
import random
import shutil
import tempfile

# All of this must be set before PyTorch is imported. Each process compiles anew, and in itself.
CACHES = tempfile.mkdtemp(prefix="three_compilers")
atexit.register(shutil.rmtree, CACHES, ignore_errors=True)
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(CACHES, "inductor")
os.environ["TRITON_CACHE_DIR"] = os.path.join(CACHES, "triton")
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
os.environ["USE_PYTORCH_KERNEL_CACHE"] = "0"

import torch
import triton
from torch.nn import functional as F
from triton import language as tl

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, PADDED = 40000, 512, 160
WIDTH, INNER, LAYERS, HEADS, KV_HEADS, SIZE = 2048, 6144, 18, 16, 8, 128
GROUP = HEADS // KV_HEADS
MADE = dict(device="cuda", dtype=torch.bfloat16)


@triton.jit
def attend(queries, keys, values, out, place, scale,
           LENGTH: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """One query for each head against the cache up to `place`, which is read from memory: no length is built in."""
    head = tl.program_id(0)
    lanes = tl.arange(0, SIZE)
    last = tl.load(place)
    query = tl.load(queries + head * SIZE + lanes).to(tl.float32) * scale
    base = (head // GROUP) * LENGTH * SIZE
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
        weights = tl.exp(scores - higher)
        shrink = tl.exp(top - higher)
        value = tl.load(values + spots, mask=there[:, None], other=0.0).to(tl.float32)
        total = total * shrink + tl.sum(weights, 0)
        sums = sums * shrink + tl.sum(weights[:, None] * value, 0)
        top = higher
    tl.store(out + head * SIZE + lanes, (sums / total).to(tl.bfloat16))


# Prompts are padded to one length, so each of these is compiled twice: for a padded prompt and for a single token.
@torch.compile(dynamic=False)
def added_norm(x, more, scale):
    x = x + more
    y = x.float()
    return x, (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6) * scale).to(torch.bfloat16)


@torch.compile(dynamic=False)
def turned(q, k, cos, sin):
    a, b = q.float().chunk(2, -1)
    c, d = k.float().chunk(2, -1)
    q, k = torch.cat((a * cos - b * sin, b * cos + a * sin), -1), torch.cat((c * cos - d * sin, d * cos + c * sin), -1)
    return q.to(torch.bfloat16), k.to(torch.bfloat16)


@torch.compile(dynamic=False)
def gated(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate.float()).to(torch.bfloat16) * up


def weight(rows, columns):
    return torch.randn(rows, columns, **MADE) * columns ** -0.5


class Model:
    def __init__(self):
        self.embedding, self.head = torch.randn(VOCABULARY, WIDTH, **MADE), weight(VOCABULARY, WIDTH)
        self.kinds = torch.randn(2, WIDTH, **MADE)  # added to a prompt's tokens and to the model's own
        self.layers = [dict(q=weight(HEADS * SIZE, WIDTH), k=weight(KV_HEADS * SIZE, WIDTH),
                            v=weight(KV_HEADS * SIZE, WIDTH), out=weight(WIDTH, HEADS * SIZE),
                            up=weight(2 * INNER, WIDTH), down=weight(WIDTH, INNER),
                            before=torch.ones(WIDTH, device="cuda"), between=torch.ones(WIDTH, device="cuda"),
                            keys=torch.zeros(KV_HEADS, LENGTH, SIZE, **MADE),
                            values=torch.zeros(KV_HEADS, LENGTH, SIZE, **MADE)) for _ in range(LAYERS)]
        self.last = torch.ones(WIDTH, device="cuda")
        speeds = 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE)
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(), speeds)
        self.cos, self.sin = angle.cos(), angle.sin()
        self.place = torch.zeros(1, dtype=torch.int32, device="cuda")
        places = torch.arange(PADDED, device="cuda")
        self.hidden = places > places[:, None]

    def prompt(self, layer, q, k, v):
        """Attention of the padded prompt. What the padding leaves in the cache is overwritten before it is seen."""
        layer["keys"][:, :PADDED], layer["values"][:, :PADDED] = k.transpose(0, 1), v.transpose(0, 1)
        q = q.reshape(PADDED, KV_HEADS, GROUP, SIZE).permute(1, 2, 0, 3).reshape(KV_HEADS, GROUP * PADDED, SIZE)
        scores = torch.bmm(q, k.permute(1, 2, 0)).float().view(KV_HEADS, GROUP, PADDED, PADDED) * SIZE ** -0.5
        weights = scores.masked_fill(self.hidden, -math.inf).softmax(-1).to(torch.bfloat16)
        heads = torch.bmm(weights.view(KV_HEADS, GROUP * PADDED, PADDED), v.transpose(0, 1))
        return heads.view(HEADS, PADDED, SIZE).transpose(0, 1).reshape(PADDED, HEADS * SIZE)

    def token(self, layer, q, k, v, place):
        layer["keys"][:, place], layer["values"][:, place] = k[0], v[0]
        out = torch.empty(1, HEADS * SIZE, **MADE)
        attend[(HEADS,)](q.contiguous(), layer["keys"], layer["values"], out, self.place, SIZE ** -0.5,
                         LENGTH=LENGTH, GROUP=GROUP, SIZE=SIZE, BLOCK=64)
        return out

    def forward(self, ids, place, last):
        """Logits behind row `last` of `ids`, which stand at `place` and after."""
        count = len(ids)
        sent = torch.tensor(ids).pin_memory().to("cuda", non_blocking=True)
        self.place.fill_(place)
        # Copies, so that what is compiled never meets a tensor that begins elsewhere in its memory.
        cos, sin = self.cos[place:place + count, None].clone(), self.sin[place:place + count, None].clone()
        x, more = F.embedding(sent, self.embedding), self.kinds[int(count == 1)].repeat(count, 1)
        for layer in self.layers:
            x, y = added_norm(x, more, layer["before"])
            q, k = turned(F.linear(y, layer["q"]).view(count, HEADS, SIZE),
                          F.linear(y, layer["k"]).view(count, KV_HEADS, SIZE), cos, sin)
            v = F.linear(y, layer["v"]).view(count, KV_HEADS, SIZE)
            heads = self.prompt(layer, q, k, v) if count > 1 else self.token(layer, q, k, v, place)
            x, y = added_norm(x, F.linear(heads, layer["out"]), layer["between"])
            more = F.linear(gated(F.linear(y, layer["up"])), layer["down"])
        _, y = added_norm(x, more, self.last)
        self.logits = F.linear(y[last:last + 1], self.head).float()
        return self.logits


def draw(logits):
    """A token of the sixty likeliest and the entropy of all, both in one list."""
    doubt = torch.special.entr(logits.softmax(-1)).sum(-1)  # NVRTC makes this kernel when it is first called
    values, numbers = logits.topk(60, -1)
    chosen = (values.softmax(-1) / torch.empty_like(values).exponential_()).argmax(-1, keepdim=True)
    token = numbers.gather(-1, chosen)[:, 0]
    return torch.stack((token.double(), doubt.double())).cpu()[:, 0].tolist()


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance = random.Random(options.seed)
    model = Model()
    torch.cuda.synchronize()

    for number, steps in enumerate(split(options.steps, 3 + options.steps // 50)):
        prompt = [chance.randrange(VOCABULARY) for _ in range(chance.randrange(60, PADDED + 1))]
        start = begin = now()
        with mark("forward"):
            logits = model.forward(prompt + [0] * (PADDED - len(prompt)), 0, len(prompt) - 1)
        with mark("draw"):
            token, doubt = draw(logits)
        first = end = now()
        record.step("prefill", begin, first, len(prompt), 1, number == 0)
        tokens, doubts = [int(token)], [doubt]
        for i in range(steps):
            begin = now()
            with mark("forward"):
                logits = model.forward(tokens[-1:], len(prompt) + i, 0)
            with mark("draw"):
                token, doubt = draw(logits)
            end = now()
            record.step("decode", begin, end, 1, 1, number == 0 and i == 0)
            tokens.append(int(token))
            doubts.append(doubt)
        record.request(start, first, end, len(prompt), len(tokens), number == 0)
        assert all(0 <= token < VOCABULARY for token in tokens)
        assert all(0 <= doubt < math.log(VOCABULARY) + 0.1 for doubt in doubts)
        assert bool(torch.isfinite(model.logits).all())
    record.finish()


main()
