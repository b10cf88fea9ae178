"""Weights kept in int8 with a scale per row, made fp16 again by ordinary kernels before each matmul; eager, batch 3."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 32000, 1024, 3
LAYERS, HEADS, KV_HEADS, SIZE, INNER = 12, 24, 4, 128, 8192
WIDTH, GROUP = HEADS * SIZE, HEADS // KV_HEADS
PROMPTS = (150, 320)
WARM_UP_PROMPT, WARM_UP_STEPS = 32, 2


class Int8Linear:
    def __init__(self, rows, columns):
        self.weight = torch.randint(-127, 128, (rows, columns), device="cuda", dtype=torch.int8)
        # Whole numbers spread evenly over -127..127 have a deviation of 73.
        self.scale = (torch.rand(rows, 1, device="cuda") + 0.5).mul_(1 / (73 * columns ** 0.5)).to(torch.float16)

    def __call__(self, x):
        return F.linear(x, self.weight.to(torch.float16) * self.scale)


class Layer:
    def __init__(self):
        self.norm_1 = torch.ones(WIDTH, device="cuda", dtype=torch.float16)
        self.norm_2 = torch.ones(WIDTH, device="cuda", dtype=torch.float16)
        self.qkv = Int8Linear((HEADS + 2 * KV_HEADS) * SIZE, WIDTH)
        self.out = Int8Linear(WIDTH, WIDTH)
        self.gate_up = Int8Linear(2 * INNER, WIDTH)
        self.down = Int8Linear(WIDTH, INNER)
        self.keys = torch.zeros(BATCH, KV_HEADS, LENGTH, SIZE, device="cuda", dtype=torch.float16)
        self.values = torch.zeros_like(self.keys)


class Model:
    def __init__(self):
        self.embedding = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.float16)
        self.layers = [Layer() for _ in range(LAYERS)]
        self.norm = torch.ones(WIDTH, device="cuda", dtype=torch.float16)
        self.head = Int8Linear(VOCABULARY, WIDTH)
        frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        angles = torch.outer(torch.arange(LENGTH, device="cuda", dtype=torch.float32), frequencies)
        self.cos, self.sin = angles.cos().to(torch.float16), angles.sin().to(torch.float16)

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def __call__(self, ids, past):
        """Logits after the last of `ids` (batch x count), the first of which is at `past`."""
        count = ids.shape[1]
        end = past + count
        cos, sin = self.cos[past:end], self.sin[past:end]
        x = F.embedding(ids, self.embedding)
        for layer in self.layers:
            h = F.rms_norm(x, (WIDTH,), layer.norm_1)
            qkv = layer.qkv(h).view(BATCH, count, HEADS + 2 * KV_HEADS, SIZE).transpose(1, 2)
            q, k, v = qkv.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
            q = self.rotate(q, cos, sin)
            layer.keys[:, :, past:end] = self.rotate(k, cos, sin)
            layer.values[:, :, past:end] = v
            keys, values = layer.keys[:, :, None, :end], layer.values[:, :, None, :end]
            scores = torch.matmul(q.reshape(BATCH, KV_HEADS, GROUP, count, SIZE), keys.transpose(-1, -2)) * SIZE ** -0.5
            if count > 1:
                hidden = torch.ones(count, end, device="cuda", dtype=torch.bool).triu(past + 1)
                scores = scores.masked_fill(hidden, float("-inf"))
            y = torch.matmul(torch.softmax(scores.float(), dim=-1).to(torch.float16), values)
            y = y.reshape(BATCH, HEADS, count, SIZE).transpose(1, 2).reshape(BATCH, count, WIDTH)
            x = x + layer.out(y)
            gate, up = layer.gate_up(F.rms_norm(x, (WIDTH,), layer.norm_2)).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate) * up)
        return self.head(F.rms_norm(x[:, -1], (WIDTH,), self.norm))


@torch.inference_mode()
def run(model, length, steps, record, mark, warm_up=False):
    prompts = torch.randint(0, VOCABULARY, (BATCH, length)).tolist()
    start = now()
    with mark("Prefill"):
        logits = model(torch.tensor(prompts, device="cuda"), 0)
        token = logits.argmax(-1)
        outputs = [token.tolist()]
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    for i in range(steps):
        step = now()
        with mark("Decode"):
            logits = model(token[:, None], length + i)
            token = logits.argmax(-1)
            outputs.append(token.tolist())
        end = now()
        record.step("decode", step, end, BATCH, BATCH, warm_up)
    for _ in range(BATCH):
        record.request(start, first, end, length, 1 + steps, warm_up)
    assert all(0 <= value < VOCABULARY for row in outputs for value in row)
    assert torch.isfinite(logits).all().item()


def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    torch.cuda.synchronize()
    run(model, WARM_UP_PROMPT, WARM_UP_STEPS, record, mark, warm_up=True)
    for length, steps in zip(PROMPTS, split(args.steps, len(PROMPTS))):
        run(model, length, steps, record, mark)
    record.finish()


if __name__ == "__main__":
    main()
