"""Half a million words in 512 families: each token is drawn twice, a family first, then one of its 1024 words.

The host is told the family of each text's word and has that family's vectors alone multiplied by the text's state. So a step,
one pass through the model and both draws, waits twice at its end: for the families by `.tolist()`, and for the words by another.
A prefill step takes in three prompts of one length, a decode step a token of each. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, ranges
from parts import MADE, Reader, begun, drawn, evened, heads_of, in_batches, swiglu, together, weight

FAMILIES, KIN, SHORT = 512, 1024, 512  # KIN: words of a family; SHORT: numbers of a word's vector
VOCABULARY, LENGTH, BATCH = FAMILIES * KIN, 512, 3
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 17, 16, 4
LENGTHS = (180, 90, 420, 260, 50)  # of prompts, by turns


class Engine(Reader):
    """Its embedding and head are those of the families."""

    def __init__(self):
        super().__init__(FAMILIES, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH, rows=(BATCH,))
        self.words = torch.empty(FAMILIES, KIN, SHORT, **MADE).normal_()
        self.longer, self.shorter = weight(WIDTH, SHORT), weight(SHORT, WIDTH)

    def through(self, ids, cos, sin, attend):
        x = F.embedding(ids // KIN, self.embedding) + F.linear(F.embedding(ids, self.words.view(-1, SHORT)), self.longer)
        for i, layer in enumerate(self.layers):
            q, k, v = heads_of(layer, evened(x), cos, sin)
            x = x + F.linear(attend(i, q, k, v), layer["out"])
            x = x + swiglu(layer, evened(x))
        self.state = F.linear(evened(x[:, -1]), self.shorter)  # BATCH x SHORT
        return x

    def chosen(self):
        """The words' numbers; `self.ids`, which the pass has drawn, are the families."""
        families = self.ids[:, 0].tolist()
        logits = [F.linear(state, self.words[family]) for state, family in zip(self.state, families)]
        self.kin = torch.stack(logits).float() * SHORT ** -0.5
        self.ids = self.ids * KIN + drawn(self.kin, 0.8)
        return self.ids[:, 0].tolist()

    def prefill(self, prompts):
        self.count = len(prompts[0])
        self.run(torch.tensor(prompts).to("cuda"), 0)
        return self.chosen()

    def decode(self):
        self.run(self.ids, self.count)
        self.count += 1
        return self.chosen()


def serve(engine, record, mark, prompts, steps, warm_up=False):
    count = together(record, mark, ("", "", ""), VOCABULARY, engine, prompts, steps, warm_up)
    assert engine.count == count + steps <= LENGTH
    assert bool(torch.isfinite(engine.last).all()) and bool(torch.isfinite(engine.kin).all())


def main():
    options = arguments(__doc__)
    mark, record = ranges(False), Record()
    chance, engine = begun(options.seed), Engine()
    torch.cuda.synchronize()
    in_batches(partial(serve, engine, record, mark), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(110, 5))
    record.finish()


main()
