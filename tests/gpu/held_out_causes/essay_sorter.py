"""Sorts essays: a model in the manner of GPT reads eight of 1024 tokens at a time and gives each a shelf, one token.

A step is one prefill, from its first call until the shelves are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from shared_loop import begin, finish, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY = 8, 1024, 32000
WIDTH, INNER, LAYERS, HEADS, SIZE = 2048, 8192, 10, 16, 128
MADE = dict(device="cuda", dtype=torch.bfloat16)


def plain_norm(x, norm):
    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    variance = centred.pow(2).mean(-1, keepdim=True)
    wide = centred * torch.rsqrt(variance + norm.eps)
    return (wide * norm.weight.float() + norm.bias.float()).to(x.dtype)


def plain_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def fused_norm(x, norm):
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def fused_gelu(x):
    return F.gelu(x, approximate="tanh")


class Block(nn.Module):
    def __init__(self, norm, activation):
        super().__init__()
        self.norm, self.activation = norm, activation
        self.before, self.between = nn.LayerNorm(WIDTH, **MADE), nn.LayerNorm(WIDTH, **MADE)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * HEADS * SIZE, **MADE), nn.Linear(HEADS * SIZE, WIDTH, **MADE)
        self.up, self.down = nn.Linear(WIDTH, INNER, **MADE), nn.Linear(INNER, WIDTH, **MADE)

    def forward(self, x):
        batch, count, _ = x.shape
        both = self.qkv(self.norm(x, self.before)).view(batch, count, 3, HEADS, SIZE)
        query, key, value = both.permute(2, 0, 3, 1, 4).unbind(0)
        heads = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(batch, count, HEADS * SIZE))
        return x + self.down(self.activation(self.up(self.norm(x, self.between))))


class Sorter(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.norm, activation = (fused_norm, fused_gelu) if fixed else (plain_norm, plain_gelu)
        self.embedding, self.places = nn.Embedding(VOCABULARY, WIDTH, **MADE), nn.Embedding(PROMPT, WIDTH, **MADE)
        self.blocks = nn.ModuleList(Block(self.norm, activation) for _ in range(LAYERS))
        self.last, self.head = nn.LayerNorm(WIDTH, **MADE), nn.Linear(WIDTH, VOCABULARY, bias=False, **MADE)

    def forward(self, ids):
        x = self.embedding(ids) + self.places.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, -1], self.last))


def main():
    options, record = begin(__doc__)
    model = Sorter(options.fixed).eval()
    batches = prompts(options.seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(prompt):
        return model(prompt).argmax(-1).tolist()

    finish(record, serve_prefills(record, batches, options.steps, read), VOCABULARY)


main()
