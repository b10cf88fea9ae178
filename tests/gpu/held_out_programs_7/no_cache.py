"""The sampler of many a course: no cache, the whole text goes through the model again for every token, under autocast.

A step is one pass over the text as it stands, from its first call until the next token is on the host: a text's
first pass is its prefill step, each later one, which has one token more to go over, a decode step. A request is one
text. With --ranges a text has a range, and inside it each token one, the first like the others.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, BLOCK = 50304, 224
WIDTH, LAYERS, HEADS = 1280, 30, 20
TOP, TEMPERATURE = 200, 0.8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH, device="cuda"), nn.LayerNorm(WIDTH, device="cuda")
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, device="cuda")
        self.c_proj = nn.Linear(WIDTH, WIDTH, device="cuda")
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH, device="cuda")
        self.c_out = nn.Linear(4 * WIDTH, WIDTH, device="cuda")

    def forward(self, x):
        batch, count, _ = x.shape
        q, k, v = (part.view(batch, count, HEADS, WIDTH // HEADS).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(WIDTH, 2))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(heads.transpose(1, 2).reshape(batch, count, WIDTH))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH, device="cuda"), nn.Embedding(BLOCK, WIDTH, device="cuda")
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH, device="cuda")
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False, device="cuda")
        nn.init.normal_(self.head.weight, std=0.02)
        self.wte.weight = self.head.weight

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device="cuda"))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x[:, [-1], :]))


def write(record, mark, model, prompt, steps, cold):
    text = []
    with mark(f"sample {steps + 1} tokens"), torch.autocast("cuda", dtype=torch.bfloat16):
        for i in range(steps + 1):
            begin = now()
            with mark("next token"):
                if i == 0:
                    idx = torch.tensor([prompt], device="cuda")
                logits = model(idx[:, -BLOCK:])[:, -1, :] / TEMPERATURE
                best, _ = torch.topk(logits, TOP)
                logits[logits < best[:, [-1]]] = -float("inf")
                probabilities = F.softmax(logits, dim=-1)
                token = torch.multinomial(probabilities, num_samples=1)
                idx = torch.cat((idx, token), dim=1)
                text.append(token.item())
            end = now()
            if i == 0:
                start, first = begin, end
                record.step("prefill", begin, end, len(prompt), 1, warm_up=cold)
            else:
                record.step("decode", begin, end, 1, 1, warm_up=cold and i == 1)
    record.request(start, first, end, len(prompt), len(text), warm_up=cold)
    assert bool(torch.isfinite(probabilities).all()) and all(0 <= token < VOCABULARY for token in text)
    assert idx.shape[1] == len(prompt) + len(text)


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would build a plan for each new length
    chance, mark, record = random.Random(options.seed), ranges(options.ranges), Record()
    model = Model().eval()
    for number, steps in enumerate(split(options.steps, max(8, min(25, options.steps // 6)))):
        prompt = [chance.randrange(VOCABULARY) for _ in range(chance.randrange(24, BLOCK + 1))]
        write(record, mark, model, prompt, steps, cold=number == 0)
    record.finish()


main()
