"""Scores long documents by their likelihood: one pass each over 1024, 2048 or 4096 tokens, and no decoding."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
import random

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges

VOCABULARY, LENGTHS = 32000, (1024, 2048, 4096)
LAYERS, HEADS, SIZE, INNER = 18, 16, 128, 5504
WIDTH = HEADS * SIZE


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate_up, self.down = nn.Linear(WIDTH, 2 * INNER, bias=False), nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        count = x.shape[1]
        q, k, v = self.qkv(self.norm_1(x)).view(1, count, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4).unbind(0)
        q = torch.cat([-q[..., SIZE // 2:], q[..., :SIZE // 2]], dim=-1) * sin + q * cos
        k = torch.cat([-k[..., SIZE // 2:], k[..., :SIZE // 2]], dim=-1) * sin + k * cos
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(1, count, WIDTH))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device, dtype=torch.float32)
        frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2, device=ids.device, dtype=torch.float32) / SIZE)
        angles = torch.outer(places, frequencies).repeat(1, 2)
        x = self.embedding(ids)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


@torch.inference_mode()
def score(model, document, record, mark, warm_up=False):
    """The mean log-likelihood of a token."""
    length = len(document)
    start = now()
    with mark(f"score {length}"):
        with mark("upload"):
            ids = torch.tensor(document).pin_memory().to("cuda", non_blocking=True)
        with mark("logits"):
            logits = model(ids[None])[0]
        with mark("nll"):
            total = F.cross_entropy(logits[:-1].float(), ids[1:], reduction="sum").item()
    end = now()
    record.step("prefill", start, end, length, 1, warm_up)
    record.request(start, end, end, length, 0, warm_up)
    assert math.isfinite(total) and total > 0
    return -total / (length - 1)


def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Model()
    torch.set_default_dtype(torch.float32)
    model.eval().requires_grad_(False)
    torch.cuda.synchronize()

    def document(length):
        return [rng.randrange(VOCABULARY) for _ in range(length)]

    with mark("warmup"):
        for length in LENGTHS:
            score(model, document(length), record, mark, warm_up=True)
    scores = []
    for _ in range(args.steps):
        scores.append(score(model, document(rng.choice(LENGTHS)), record, mark))
    assert all(value < 0 for value in scores)
    record.finish()


if __name__ == "__main__":
    main()
