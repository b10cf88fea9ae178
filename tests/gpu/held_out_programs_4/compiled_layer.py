"""One layer is compiled and called for all layers of a decode step, with differential attention; prefill runs the same code eagerly.

A step is a whole batch's pass, from its first call (a prefill's upload, a decode step's embedding) until its tokens are on the host by
`.tolist()`. A request is one sequence of a batch and has the batch's times. With --ranges a step has one range, "prompt" or "token",
and the whole warm-up, in which the layer is compiled, one around both.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 32000, 192, 4
LAYERS, HEADS, SIZE, INNER = 24, 16, 64, 5632  # a head has two queries and two keys of SIZE, and a value of twice that
WIDTH = HEADS * 2 * SIZE
SHARE = 0.8  # the second attention's at the start of training
TEMPERATURE = 0.8
PROMPTS = (128, 120, 132, 124, 136)
WARM_UP_PROMPT, WARM_UP_STEPS = 100, 5


def weight(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).mul_(columns ** -0.5)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def layer(x, positions, order, cos, sin, keys, values, share, norms, qkv, out, up, down):
    """`x` is batch x count x width, `positions` has the count's places in the cache; attention goes over all of the cache, masked."""
    count = x.shape[1]
    cos, sin = cos[positions], sin[positions]
    q, k, v = F.linear(F.rms_norm(x, (WIDTH,), norms[0]), qkv).chunk(3, dim=-1)
    q = rotate(q.view(BATCH, count, 2 * HEADS, SIZE).transpose(1, 2), cos, sin)
    k = rotate(k.view(BATCH, count, 2 * HEADS, SIZE).transpose(1, 2), cos, sin)
    v = v.view(BATCH, count, HEADS, 2 * SIZE).transpose(1, 2)
    keys.index_copy_(2, positions, k)
    values.index_copy_(2, positions, v)
    scores = torch.matmul(q, keys.transpose(-1, -2)).float() * SIZE ** -0.5
    scores = scores.masked_fill(order[None, :] > positions[:, None], float("-inf"))
    weights = torch.softmax(scores, dim=-1).view(BATCH, HEADS, 2, count, LENGTH)
    weights = weights[:, :, 0] - share[:, None, None] * weights[:, :, 1]
    y = torch.matmul(weights.to(torch.bfloat16), values)
    y = F.rms_norm(y, (2 * SIZE,)) * (1 - SHARE)
    x = x + F.linear(y.transpose(1, 2).reshape(BATCH, count, WIDTH), out)
    gate, value = F.linear(F.rms_norm(x, (WIDTH,), norms[1]), up).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * value, down)


class Model:
    """In the manner of the differential transformer, SwiGLU, bf16. All sequences of a batch are at one position."""

    def __init__(self):
        self.embedding, self.head = weight(VOCABULARY, WIDTH), weight(VOCABULARY, WIDTH)
        self.norm = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.order = torch.arange(LENGTH, device="cuda")
        frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        angles = torch.outer(self.order.float(), frequencies)
        self.cos, self.sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
        self.position = torch.zeros(1, device="cuda", dtype=torch.int64)
        self.layers = [self.parts() for _ in range(LAYERS)]
        self.compiled = torch.compile(layer, fullgraph=True, dynamic=False)

    def parts(self):
        """What a layer has of its own, in the order of `layer`'s arguments."""
        keys = torch.zeros(BATCH, 2 * HEADS, LENGTH, SIZE, device="cuda", dtype=torch.bfloat16)
        values = torch.zeros(BATCH, HEADS, LENGTH, 2 * SIZE, device="cuda", dtype=torch.bfloat16)
        share = SHARE + 0.1 * torch.randn(HEADS, device="cuda")
        norms = torch.ones(2, WIDTH, device="cuda", dtype=torch.bfloat16)
        return (keys, values, share, norms, weight(3 * WIDTH, WIDTH), weight(WIDTH, WIDTH), weight(2 * INNER, WIDTH), weight(WIDTH, INNER))

    def choose(self, x):
        logits = F.linear(F.rms_norm(x, (WIDTH,), self.norm), self.head).float()
        return torch.multinomial(torch.softmax(logits / TEMPERATURE, dim=-1), 1)

    def prefill(self, prompts):
        count = prompts.shape[1]
        x = F.embedding(prompts, self.embedding)
        for parts in self.layers:
            x = layer(x, self.order[:count], self.order, self.cos, self.sin, *parts)
        self.position.fill_(count)
        return self.choose(x[:, -1])

    def decode(self, tokens):
        """`tokens` is batch x 1."""
        x = F.embedding(tokens, self.embedding)
        for parts in self.layers:
            x = self.compiled(x, self.position, self.order, self.cos, self.sin, *parts)
        self.position.add_(1)
        return self.choose(x[:, -1])


def serve(model, length, steps, record, mark, warm_up=False):
    prompts = torch.randint(0, VOCABULARY, (BATCH, length))
    start = now()
    with mark("prompt"):
        tokens = model.prefill(prompts.cuda())
        outputs = [tokens[:, 0].tolist()]
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    for _ in range(steps):
        step = now()
        with mark("token"):
            tokens = model.decode(tokens)
            outputs.append(tokens[:, 0].tolist())
        end = now()
        record.step("decode", step, end, BATCH, BATCH, warm_up)
    for _ in range(BATCH):
        record.request(start, first, end, length, 1 + steps, warm_up)
    assert all(0 <= token < VOCABULARY for row in outputs for token in row)
    assert model.position.item() == length + steps and torch.isfinite(model.layers[-1][1]).all().item()


@torch.no_grad()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    with mark("compile and warm up"):
        serve(model, WARM_UP_PROMPT, WARM_UP_STEPS, record, mark, warm_up=True)
    batches = max(5, min(10, args.steps // 6), args.steps // 20)
    for i, steps in enumerate(split(args.steps, batches)):
        serve(model, PROMPTS[i % len(PROMPTS)], steps, record, mark)
    record.finish()


if __name__ == "__main__":
    main()
