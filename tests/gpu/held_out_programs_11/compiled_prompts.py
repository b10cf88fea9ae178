"""A layer that the compiler has in three sizes: for prompts of up to 192 tokens, of up to 384, and for a single token.

A step is one pass through the model, layer by layer, and the draw of two tokens, until `.cpu()` has them: a prefill step takes
in two prompts of one length, padded on the right to the next of the two sizes, a decode step one token of each text. A request
is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments
from parts import MADE, SIZE, attended, begun, drawn, heads_of, in_batches, layer_of, prompt, served, shares_of, swiglu, tables, weight

VOCABULARY, LENGTH, PADDED, BATCH = 32000, 448, (192, 384), 2
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 20, 16, 8
LENGTHS = (100, 300, 180, 380, 64, 240)  # of prompts, by turns


@torch.compile(dynamic=False)
def through(x, one, layer, keys, values, cos, sin, places, hidden):
    q, k, v = heads_of(layer, F.layer_norm(x, (WIDTH,), one), cos, sin)
    keys[:, :, places] = k
    values[:, :, places] = v
    x = x + F.linear(attended(shares_of(q, keys, hidden), values), layer["out"])
    return x + swiglu(layer, F.layer_norm(x, (WIDTH,), one))


class Engine:
    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.layers = [layer_of(WIDTH, INNER, HEADS, KV_HEADS) for _ in range(LAYERS)]
        self.keys, self.values = ([torch.zeros(BATCH, KV_HEADS, LENGTH, SIZE, **MADE) for _ in range(LAYERS)] for _ in range(2))
        self.cos, self.sin = tables(LENGTH, SIZE)
        self.columns = torch.arange(LENGTH, device="cuda")
        self.place = torch.zeros(1, dtype=torch.int64, device="cuda")

    def word(self, ids, places, last):
        """Draws a token for each text behind the one at `last` of `ids`."""
        cos, sin = self.cos.index_select(0, places), self.sin.index_select(0, places)
        hidden = self.columns > places[:, None]
        x = F.embedding(ids, self.embedding)
        for layer, keys, values in zip(self.layers, self.keys, self.values):
            x = through(x, self.one, layer, keys, values, cos, sin, places, hidden)
        self.last = F.linear(F.layer_norm(x[:, last], (WIDTH,), self.one), self.head).float()
        self.ids = drawn(self.last, 0.8)

    def prefill(self, prompts):
        count = len(prompts[0])
        size = next(size for size in PADDED if size >= count)
        ids = torch.tensor([tokens + [0] * (size - count) for tokens in prompts]).to("cuda")
        self.word(ids, self.columns[:size], count - 1)
        self.place.fill_(count)
        return self.ids[:, 0].cpu().tolist()

    def decode(self):
        self.word(self.ids, self.place, 0)
        self.place.add_(1)
        return self.ids[:, 0].cpu().tolist()


def serve(engine, record, prompts, steps, warm_up=False):
    count = served(record, engine, prompts, VOCABULARY, steps, warm_up)
    assert bool(torch.isfinite(engine.last).all())
    assert engine.place.item() == count + steps <= LENGTH


def main():
    options = arguments(__doc__)
    record = Record()
    chance, engine = begun(options.seed), Engine()
    torch.cuda.synchronize()
    serve(engine, record, [prompt(chance, VOCABULARY, 150) for _ in range(BATCH)], 4, warm_up=True)
    in_batches(partial(serve, engine, record), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(320, 4))
    record.finish()


main()
