"""Starts cold and compiles nothing: a network that corrects what it remembers (the delta rule), in PyTorch's modules.

A step is one pass through the model and the draw of a token, until `.item()` has it: a prefill step takes in one prompt, 64
tokens at a time within each layer, each time by solving a triangular system; a decode step takes in one token. What is kept of
a text is a matrix for each head. A request is one text. With --ranges a text has "note" around it, inside are "before" for the
prefill step and "behind" for each decode step.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, ranges
from parts import begun, drawn, in_bands, on_gpu, told

VOCABULARY, CHUNK, SIZE = 32000, 64, 128
WIDTH, INNER, LAYERS, HEADS = 2048, 5120, 20, 16
BANDS = ((180, 250), (70, 120), (420, 560), (260, 340), (30, 60))  # of prompt lengths, by turns


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.pace, self.norm = nn.Linear(WIDTH, HEADS), nn.LayerNorm(SIZE)
        self.state = torch.zeros(HEADS, SIZE, SIZE, dtype=torch.float32, device="cuda")

    def heads(self, x):
        return x.view(-1, HEADS, SIZE).transpose(0, 1).float()

    def correct(self, k, v, pace):
        """What is written for each of these tokens, of which each sees what those before it have written."""
        wanted = pace * (v - k @ self.state)
        if k.shape[1] == 1:
            return wanted
        overlap = (pace * (k @ k.transpose(1, 2))).tril(-1)
        return torch.linalg.solve_triangular(overlap, wanted, upper=False, unitriangular=True)

    def forward(self, x):
        q, k, v = (self.heads(F.silu(part(x))) for part in (self.query, self.key, self.value))
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        pace = torch.sigmoid(self.pace(x).float()).transpose(0, 1)[:, :, None]
        parts = []
        for i in range(0, x.shape[0], CHUNK):
            some = slice(i, i + CHUNK)
            written = self.correct(k[:, some], v[:, some], pace[:, some])
            near = (q[:, some] @ k[:, some].transpose(1, 2)).tril()
            parts.append(q[:, some] @ self.state + near @ written)
            self.state.add_(k[:, some].transpose(1, 2) @ written)
        heads = self.norm(torch.cat(parts, 1).to(x.dtype)).transpose(0, 1).reshape(-1, WIDTH)
        return self.out(heads)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.memory, self.second = nn.LayerNorm(WIDTH), Memory(), nn.LayerNorm(WIDTH)
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.memory(self.first(x))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(VOCABULARY, WIDTH), nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        self.last = self.head(self.norm(x[-1:])).float()
        top = self.last.topk(50, -1)
        self.ids = top.indices.gather(-1, drawn(top.values, 0.8))[0]
        return self.ids.item()

    def prefill(self, tokens):
        for layer in self.layers:
            layer.memory.state.zero_()
        return self(torch.tensor(tokens).to("cuda"))

    def decode(self, place):
        return self(self.ids)


def write(model, record, mark, tokens, steps, number):
    told(record, mark, ("note", "before", "behind"), VOCABULARY, model.prefill, model.decode, tokens, steps, cold=number == 0)
    assert bool(torch.isfinite(model.last).all()) and all(bool(torch.isfinite(layer.memory.state).all()) for layer in model.layers)


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance = begun(options.seed)
    model = on_gpu(Model)
    torch.cuda.synchronize()
    in_bands(partial(write, model, record, mark), chance, VOCABULARY, BANDS, options.steps, 4, 30)
    record.finish()


main()
