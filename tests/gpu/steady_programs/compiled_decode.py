"""Decoding under torch.compile (default mode), cold: the first decoded token of the process pays for the compilation."""
import os
import tempfile

cache = tempfile.TemporaryDirectory(prefix="compiled_decode_", ignore_cleanup_errors=True)
os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name  # as in a fresh container: nothing compiled before
os.environ["TRITON_CACHE_DIR"] = os.path.join(cache.name, "triton")

import torch
import torch.nn as nn
import torch.nn.functional as F

from contract import Record, arguments, now, ranges, split

LAYERS, HIDDEN, HEADS, HEAD, INNER, VOCABULARY = 6, 2048, 16, 128, 5632, 32000
BATCH, PROMPT = 2, 200


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


class Block(nn.Module):
    def __init__(self, room):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.w1, self.w3 = nn.Linear(HIDDEN, INNER, bias=False), nn.Linear(HIDDEN, INNER, bias=False)
        self.w2 = nn.Linear(INNER, HIDDEN, bias=False)
        self.register_buffer("keys", torch.zeros(BATCH, HEADS, room, HEAD))
        self.register_buffer("values", torch.zeros(BATCH, HEADS, room, HEAD))

    def forward(self, x, rotation, places, mask):
        batch, length, _ = x.shape
        q, k, v = (y.view(batch, length, HEADS, HEAD).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        q, k = turn(q, rotation), turn(k, rotation)
        self.keys.index_copy_(2, places, k)
        self.values.index_copy_(2, places, v)
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, HIDDEN))
        y = self.norm2(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


def turn(x, rotation):
    cos, sin = rotation
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2).type_as(x)


class Model(nn.Module):
    def __init__(self, room):
        super().__init__()
        self.room = room
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.blocks = nn.ModuleList(Block(room) for _ in range(LAYERS))
        self.norm = Norm()
        self.output = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        angle = torch.outer(torch.arange(room).float(), 500000.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, ids, places):
        mask = (torch.arange(self.room, device=ids.device) <= places.unsqueeze(1)).view(1, 1, -1, self.room)
        rotation = self.cos[places], self.sin[places]
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, rotation, places, mask)
        return self.output(self.norm(x[:, -1:])).float()


def build(room):
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Model(room).eval()
    torch.set_default_dtype(torch.float32)
    return model


@torch.no_grad()
def main():
    options = arguments(__doc__)
    mark = ranges(options.ranges)
    record = Record()
    torch.manual_seed(options.seed)
    model = build(-(-(PROMPT + options.steps + 1) // 64) * 64)
    prompt = torch.randint(0, VOCABULARY, (BATCH, PROMPT), device="cuda")

    def decode_one(ids, place):
        token = model(ids, place).argmax(-1)
        return token, place + 1

    compiled = torch.compile(decode_one, fullgraph=True, dynamic=False)

    def generate(count, cold):
        begin = now()
        with mark("prefill (eager)"):
            ids = model(prompt, torch.arange(PROMPT, device="cuda")).argmax(-1)
            rows = [ids[:, 0].tolist()]
        first = end = now()
        record.step("prefill", begin, first, BATCH * PROMPT, BATCH, cold)
        place = torch.tensor([PROMPT], device="cuda")
        for i in range(count):
            start = now()
            with mark("decode (compiled)"):
                ids, place = compiled(ids, place)
                rows.append(ids[:, 0].tolist())
            end = now()
            record.step("decode", start, end, BATCH, BATCH, cold and i == 0)
        for _ in range(BATCH):
            record.request(begin, first, end, PROMPT, 1 + count, cold)
        return rows

    outputs = [generate(count, cold=number == 0) for number, count in enumerate(split(options.steps, 2))]
    assert outputs[1][:len(outputs[0])] == outputs[0], "the same prompt gave other tokens"
    assert all(0 <= token < VOCABULARY for rows in outputs for row in rows for token in row)
    assert torch.isfinite(model.blocks[-1].values).all()
    record.finish()


main()
