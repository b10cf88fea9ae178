"""Forty-eight texts at once, with attention in fp32 over keys and values that are turned to it in every step: the GPU is the limit.

A step is one pass through the model and the draw of forty-eight tokens, until `.cpu()` has them: a prefill step takes in
prompts of one length, a decode step one token of each text. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, split
from parts import MADE, tables, turned, weight

VOCABULARY, LENGTH, BATCH = 32000, 448, 48
WIDTH, INNER, LAYERS, HEADS, SIZE = 3072, 8192, 8, 24, 128
SHARE = 0.9  # of the chances that the likeliest tokens may have together
LENGTHS = (240, 160, 320, 280, 200)  # of prompts, by turns


class Model:
    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.layers = [dict(qkv=weight(3 * WIDTH, WIDTH), out=weight(WIDTH, WIDTH), gate=weight(INNER, WIDTH),
                            up=weight(INNER, WIDTH), down=weight(WIDTH, INNER)) for _ in range(LAYERS)]
        self.keys = [torch.zeros(BATCH, HEADS, LENGTH, SIZE, **MADE) for _ in range(LAYERS)]
        self.values = [torch.zeros(BATCH, HEADS, LENGTH, SIZE, **MADE) for _ in range(LAYERS)]
        self.cos, self.sin = tables(LENGTH, SIZE)

    def logits(self, ids, start):
        count = ids.shape[1]
        end = start + count
        cos, sin = self.cos[start:end], self.sin[start:end]
        x = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            h = F.layer_norm(x, (WIDTH,), self.one)
            q, k, v = F.linear(h, layer["qkv"]).view(BATCH, count, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4).unbind(0)
            q, k = turned(q, cos, sin), turned(k, cos, sin)
            self.keys[i][:, :, start:end] = k
            self.values[i][:, :, start:end] = v
            if count > 1:
                heads = F.scaled_dot_product_attention(q, k, v.contiguous(), is_causal=True)
            else:
                scores = q.float() @ self.keys[i][:, :, :end].float().transpose(2, 3) * SIZE ** -0.5
                heads = (scores.softmax(-1) @ self.values[i][:, :, :end].float()).to(torch.bfloat16)
            x = x + F.linear(heads.transpose(1, 2).reshape(BATCH, count, WIDTH), layer["out"])
            h = F.layer_norm(x, (WIDTH,), self.one)
            x = x + F.linear(F.silu(F.linear(h, layer["gate"])) * F.linear(h, layer["up"]), layer["down"])
        return F.linear(F.layer_norm(x[:, -1], (WIDTH,), self.one), self.head).float()


def draw(logits):
    chances, which = logits.softmax(-1).sort(-1, descending=True)
    chances = chances.masked_fill(chances.cumsum(-1) - chances > SHARE, 0.0)
    spot = (chances / torch.empty_like(chances).exponential_().clamp_(min=1e-20)).argmax(-1, keepdim=True)
    return which.gather(-1, spot)


def serve(model, record, prompts, steps, warm_up=False):
    count = prompts.shape[1]
    start = now()
    logits = model.logits(prompts.to("cuda"), 0)
    ids = draw(logits)
    tokens = [ids.cpu()]
    first = end = now()
    record.step("prefill", start, first, count * BATCH, BATCH, warm_up)
    for i in range(steps):
        begin = now()
        logits = model.logits(ids, count + i)
        ids = draw(logits)
        tokens.append(ids.cpu())
        end = now()
        record.step("decode", begin, end, BATCH, BATCH, warm_up)
    for _ in range(BATCH):
        record.request(start, first, end, count, len(tokens), warm_up)
    texts = torch.cat(tokens, 1)
    assert texts.shape == (BATCH, steps + 1) and 0 <= int(texts.min()) and int(texts.max()) < VOCABULARY
    assert bool(torch.isfinite(logits).all())


def main():
    options = arguments(__doc__)
    record = Record()
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    torch.backends.cuda.enable_cudnn_sdp(False)  # else a plan is built for each length
    model, chance = Model(), torch.Generator().manual_seed(options.seed)
    torch.cuda.synchronize()

    def prompts(length):
        return torch.randint(VOCABULARY, (BATCH, length), generator=chance)

    serve(model, record, prompts(128), 3, warm_up=True)
    for number, steps in enumerate(split(options.steps, max(3, min(20, options.steps // 8)))):
        serve(model, record, prompts(LENGTHS[number % len(LENGTHS)]), steps)
    record.finish()


main()
