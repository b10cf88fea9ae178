"""A loop whose author wants to know where the time goes: behind each stage of a pass the device is waited for and a clock is read.

A step is one pass through the model and the draw of three tokens, until `.tolist()` has them: a prefill step takes in three
prompts of one length, a decode step a token of each. In both `torch.cuda.synchronize()` waits behind the embedding, behind each
fourth layer and behind the head. A request is one text. With --ranges a batch has "trial" around it, inside are "context" for the
prefill step and "answer" for each decode step.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import time
from functools import partial

import torch

from contract import Record, arguments, ranges
from parts import Reader, begun, in_batches, together

VOCABULARY, LENGTH, BATCH = 32000, 512, 3
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 1792, 5120, 24, 14, 2
LENGTHS = (130, 320, 70, 200, 400)  # of prompts, by turns
STAGES = ["embedding"] + ["layer %d" % i for i in range(3, LAYERS, 4)] + ["head"]


class Timed(Reader):
    def __init__(self):
        self.spent = {stage: [] for stage in STAGES}
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH, rows=(BATCH,))

    def passed(self, stage):
        if stage in self.spent:
            torch.cuda.synchronize()
            at = time.perf_counter()
            self.spent[stage].append(at - self.since)
            self.since = at

    def word(self, ids, start):
        self.since = time.perf_counter()
        self.run(ids, start)
        self.count = start + ids.shape[1]
        return self.ids[:, 0].tolist()

    def prefill(self, prompts):
        return self.word(torch.tensor(prompts).to("cuda"), 0)

    def decode(self):
        return self.word(self.ids, self.count)


def serve(engine, record, mark, prompts, steps, warm_up=False):
    for times in engine.spent.values():
        times.clear()
    count = together(record, mark, ("trial", "context", "answer"), VOCABULARY, engine, prompts, steps, warm_up)
    assert bool(torch.isfinite(engine.last).all()) and engine.count == count + steps <= LENGTH
    assert all(len(times) == steps + 1 and min(times) > 0 for times in engine.spent.values())


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, engine = begun(options.seed), Timed()
    torch.cuda.synchronize()
    in_batches(partial(serve, engine, record, mark), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(96, 4))
    record.finish()


main()
