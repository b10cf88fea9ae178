"""Keys and values are kept in eight bits, with a scale for each head and place, and are made bf16 again by every step.

A step is one pass through the model and the draw of a token, until `.item()` has it: a prefill step takes in one prompt, a decode
step one token. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch

from contract import Record, arguments, ranges
from parts import MADE, SIZE, Plain, attended, begun, drawn, in_bands, one_text, prompt, shares_of

VOCABULARY, LENGTH = 32000, 512
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 20, 16, 4
BANDS = ((120, 200), (30, 80), (300, 420), (80, 120), (200, 280))  # of prompts' lengths, by turns


class Engine(Plain):
    def __init__(self):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH)
        self.cache = torch.zeros(2, LAYERS, KV_HEADS, LENGTH, SIZE, dtype=torch.int8, device="cuda")
        self.scales = torch.ones(2, LAYERS, KV_HEADS, LENGTH, 1, **MADE)

    def keep(self, which, i, new, start, end):
        """Files what is new of a layer's keys (0) or values (1), and gives all of them so far."""
        scale = new.abs().amax(-1, keepdim=True).clamp_(min=1e-6) / 127
        self.cache[which, i, :, start:end] = (new / scale).round_().clamp_(-127, 127)
        self.scales[which, i, :, start:end] = scale
        return self.cache[which, i, :, :end].to(torch.bfloat16) * self.scales[which, i, :, :end]

    def word(self, ids, start):
        end = start + ids.shape[0]
        hidden = self.columns[:end] > self.columns[start:end, None] if end - start > 1 else None

        def attend(i, q, k, v):
            keys, values = self.keep(0, i, k, start, end), self.keep(1, i, v, start, end)
            return attended(shares_of(q, keys, hidden), values)

        self.last = self.logits(self.through(ids, self.cos[start:end], self.sin[start:end], attend))
        self.ids = drawn(self.last, 0.8)[0]
        return self.ids.item()

    def prefill(self, tokens):
        return self.word(torch.tensor(tokens).to("cuda"), 0)

    def decode(self, place):
        return self.word(self.ids, place)


def write(engine, record, mark, tokens, steps, number, warm_up=False):
    one_text(record, mark, ("", "", ""), VOCABULARY, engine.prefill, engine.decode, tokens, steps, warm_up)
    assert bool(torch.isfinite(engine.last).all()) and len(tokens) + steps <= LENGTH


def main():
    options = arguments(__doc__)
    mark, record = ranges(False), Record()
    chance, engine = begun(options.seed), Engine()
    torch.cuda.synchronize()
    write(engine, record, mark, prompt(chance, VOCABULARY, 160), 4, 0, warm_up=True)
    in_bands(partial(write, engine, record, mark), chance, VOCABULARY, BANDS, options.steps, 3, 25)
    record.finish()


main()
