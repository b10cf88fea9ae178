"""Keeps what goes on inside: behind every fourth layer `.cpu()` brings the states of all new tokens to the host, in every step.

A step is one pass through the model and the draw of two tokens, until `.tolist()` has them: a prefill step takes in two prompts
of one length, a decode step a token of each. Behind a batch all that was kept goes into a file. A request is one text. With
--ranges each copy to the host has "dump" around it, and nothing else is marked.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import tempfile
from functools import partial

import torch

from contract import Record, arguments, ranges
from parts import Reader, begun, in_batches, together

VOCABULARY, LENGTH, BATCH, EVERY, LIKELIEST = 32000, 512, 2, 4, 20
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 1792, 5120, 24, 14, 2
LENGTHS = (120, 260, 48, 330, 180)  # of prompts, by turns


class Watched(Reader):
    def __init__(self, mark):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH, rows=(BATCH,))
        self.mark, self.kept = mark, []
        for layer in self.layers[EVERY - 1::EVERY]:
            layer["watched"] = True

    def dump(self, tensor):
        with self.mark("dump"):
            self.kept.append(tensor.cpu())

    def feed(self, layer, h):
        more = super().feed(layer, h)
        if layer.get("watched"):
            self.dump(h + more)
        return more

    def word(self, ids, start):
        self.run(ids, start)
        top = self.last.log_softmax(-1).topk(LIKELIEST, -1)
        self.dump(top.values)
        self.dump(top.indices)
        self.count = start + ids.shape[1]
        return self.ids[:, 0].tolist()

    def prefill(self, prompts):
        return self.word(torch.tensor(prompts).to("cuda"), 0)

    def decode(self):
        return self.word(self.ids, self.count)


def serve(engine, record, prompts, steps, warm_up=False):
    engine.kept = []
    count = together(record, ranges(False), ("", "", ""), VOCABULARY, engine, prompts, steps, warm_up)
    with tempfile.TemporaryFile() as file:
        torch.save(engine.kept, file)
    assert len(engine.kept) == (steps + 1) * (LAYERS // EVERY + 2)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in engine.kept) and engine.count == count + steps <= LENGTH


def main():
    options = arguments(__doc__)
    record, chance, engine = Record(), begun(options.seed), Watched(ranges(options.ranges))
    torch.cuda.synchronize()
    in_batches(partial(serve, engine, record), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(90, 4))
    record.finish()


main()
