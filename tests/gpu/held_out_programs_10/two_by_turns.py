"""Two graphs by turns, each of which reads the tokens that the other left; the host reads those of a step when the next is queued.

A step is one pass through the model and the draw of four tokens, until an event says that they are in pinned memory. A
prefill step takes in four prompts of one length, eagerly, and is waited for. A decode step replays one of the two graphs;
only then does the host wait for the step before. Its time starts at its replay or, if that is later, at the end of the
step before. A request is one text. With --ranges there are "opening" for the prefill step, "queue" around a replay and
"take" around the wait for the step before it.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch

from contract import Record, arguments, now, ranges
from parts import Decoder, begun, captured, drawn, finished, in_batches

VOCABULARY, LENGTH, BATCH = 32000, 512, 4
LENGTHS = (128, 72, 256, 192)  # of prompts, by turns


class Engine:
    def __init__(self):
        self.model = Decoder(VOCABULARY, 2048, 8192, 22, 16, 8, BATCH, LENGTH, gated=False)
        self.ids = [torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda") for _ in range(2)]
        self.places = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.fetched = [torch.zeros(BATCH, 1, dtype=torch.int64, pin_memory=True) for _ in range(2)]
        self.events = [torch.cuda.Event() for _ in range(2)]

    def step(self, turn):
        self.last = self.model.logits(self.ids[turn], self.places, LENGTH)
        self.ids[1 - turn].copy_(drawn(self.last, 0.8))
        self.places.add_(1)

    def capture(self):
        self.graphs = [captured(lambda: self.step(turn)) for turn in range(2)]

    def send(self, turn):
        """What the step of this turn has left goes to the host."""
        self.fetched[turn].copy_(self.ids[1 - turn], non_blocking=True)
        self.events[turn].record()

    def prefill(self, prompts):
        """Leaves its tokens for the graph of turn 0, as a step of turn 1 does."""
        count = len(prompts[0])
        places = self.model.columns[:count].expand(BATCH, count)
        self.last = self.model.logits(torch.tensor(prompts).to("cuda"), places, count)
        self.ids[0].copy_(drawn(self.last, 0.8))
        self.places.fill_(count)
        self.send(1)

    def replay(self, turn):
        self.graphs[turn].replay()
        self.send(turn)

    def take(self, turn):
        self.events[turn].synchronize()
        return self.fetched[turn][:, 0].tolist()


def serve(engine, record, mark, prompts, steps, warm_up=False):
    count = len(prompts[0])
    start = now()
    with mark("opening"):
        engine.prefill(prompts)
        texts = [[token] for token in engine.take(1)]
    first = end = now()
    record.step("prefill", start, first, count * BATCH, BATCH, warm_up)
    begins = []
    for i in range(steps + 1):
        if i < steps:
            begins.append(now())
            with mark("queue"):
                engine.replay(i % 2)
        if i > 0:
            with mark("take"):
                tokens = engine.take((i - 1) % 2)
            begin, end = max(begins[i - 1], end), now()
            record.step("decode", begin, end, BATCH, BATCH, warm_up)
            for text, token in zip(texts, tokens):
                text.append(token)
    finished(record, texts, VOCABULARY, start, first, end, count, warm_up)
    assert bool(torch.isfinite(engine.last).all())
    assert engine.places[:, 0].tolist() == [count + steps] * BATCH


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, engine = begun(options.seed), Engine()
    engine.capture()
    in_batches(partial(serve, engine, record, mark), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(100, 4))
    record.finish()


main()
