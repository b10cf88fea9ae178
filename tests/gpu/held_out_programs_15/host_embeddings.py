"""Each layer has an embedding of its own for each word, in a table in the host's memory: a step looks them up and sends them.

A step is the look-up, one pass through the model and the draw of a token, until `.item()` has it: a prefill step takes in one
prompt, a decode step one token. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, ranges
from parts import MADE, Reader, begun, in_bands, one_text, prompt, swiglu, weight

VOCABULARY, LENGTH, SIDE = 32000, 512, 256
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 18, 16, 4
BANDS = ((90, 150), (300, 420), (40, 80), (180, 260), (120, 200))  # of prompts' lengths, by turns


class Engine(Reader):
    def __init__(self):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH)
        for number, layer in enumerate(self.layers):
            layer.update(number=number, narrow=weight(SIDE, WIDTH), widen=weight(WIDTH, SIDE))
        self.table = torch.empty(VOCABULARY, LAYERS * SIDE, **MADE).normal_().cpu()
        self.found = torch.zeros(LENGTH, LAYERS * SIDE, dtype=torch.bfloat16, pin_memory=True)

    def look_up(self, tokens):
        """What the layers are to be given of these words, words x layers x SIDE. The last copy has been waited for."""
        found = self.found[:len(tokens)]
        torch.index_select(self.table, 0, torch.tensor(tokens), out=found)
        self.side = found.to("cuda", non_blocking=True).view(len(tokens), LAYERS, SIDE)

    def feed(self, layer, h):
        more = swiglu(layer, h)
        return more + F.linear(F.gelu(F.linear(h + more, layer["narrow"])) * self.side[:, layer["number"]], layer["widen"])

    def word(self, ids, start):
        self.run(ids, start)
        self.token = self.ids.item()
        return self.token

    def prefill(self, tokens):
        self.look_up(tokens)
        return self.word(torch.tensor(tokens).to("cuda"), 0)

    def decode(self, place):
        self.look_up([self.token])
        return self.word(self.ids, place)


def write(engine, record, mark, tokens, steps, number, warm_up=False):
    one_text(record, mark, ("", "", ""), VOCABULARY, engine.prefill, engine.decode, tokens, steps, warm_up)
    assert bool(torch.isfinite(engine.last).all()) and len(tokens) + steps <= LENGTH


def main():
    options = arguments(__doc__)
    mark, record = ranges(False), Record()
    chance, engine = begun(options.seed), Engine()
    torch.cuda.synchronize()
    write(engine, record, mark, prompt(chance, VOCABULARY, 140), 4, 0, warm_up=True)
    in_bands(partial(write, engine, record, mark), chance, VOCABULARY, BANDS, options.steps, 3, 25)
    record.finish()


main()
