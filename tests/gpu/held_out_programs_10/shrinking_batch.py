"""Twelve texts begin together and end one after the other; the rest moves up and goes on in the graph of a smaller batch.

A step is one pass through the model and the draw of a token for each text, until `.tolist()` has them on the host: a
prefill step takes in twelve prompts of one length, eagerly, a decode step replays the graph of the smallest of four batch
sizes that has room for the texts still running. Moving up is done between steps. A request is one text. With --ranges a
batch of texts has "wave" around it, inside are "prompts", "move" and, with the size of the graph in its words, each step.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch

from contract import Record, arguments, now, ranges
from parts import Decoder, begun, captured, drawn, in_batches

VOCABULARY, LENGTH, BATCH, SIZES = 32000, 384, 12, (12, 8, 4, 2)
LENGTHS = (96, 160, 64, 240, 128, 200)  # of prompts, by turns


class Engine:
    def __init__(self):
        self.model = Decoder(VOCABULARY, 2048, 5632, 20, 16, 4, BATCH, LENGTH)
        self.ids = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.places = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")

    def step(self, size):
        self.last = self.model.logits(self.ids[:size], self.places[:size], LENGTH)
        self.ids[:size].copy_(drawn(self.last))
        self.places[:size].add_(1)

    def capture(self):
        self.graphs = {}
        for size in SIZES:
            self.places.zero_()
            self.graphs[size] = captured(lambda: self.step(size))

    def prefill(self, prompts):
        count = len(prompts[0])
        places = self.model.columns[:count].expand(BATCH, count)
        self.last = self.model.logits(torch.tensor(prompts).to("cuda"), places, count)
        self.ids.copy_(drawn(self.last))
        self.places.fill_(count)

    def move(self, rows):
        """The texts of `rows` become the first ones."""
        which, count = torch.tensor(rows).to("cuda"), len(rows)
        for cache in self.model.keys + self.model.values:
            cache[:count] = cache.index_select(0, which)
        self.ids[:count] = self.ids.index_select(0, which)
        self.places[:count] = self.places.index_select(0, which)


def serve(engine, record, mark, prompts, steps, warm_up=False):
    count = len(prompts[0])
    wanted = [max(1, round(steps * (i + 1) / BATCH)) for i in range(BATCH)]  # decode steps of each text
    with mark("wave"):
        start = now()
        with mark("prompts"):
            engine.prefill(prompts)
            texts = [tokens[:] for tokens in engine.ids.tolist()]
        first = now()
        record.step("prefill", start, first, count * BATCH, BATCH, warm_up)
        rows, ends, size = list(range(BATCH)), [0] * BATCH, BATCH  # `rows`: which text is in which row
        for done in range(1, steps + 1):
            begin = now()
            with mark(f"one token, {size}"):
                engine.graphs[size].replay()
                tokens = engine.ids[:size].tolist()
            end = now()
            running = [row for row, text in enumerate(rows) if wanted[text] >= done]
            record.step("decode", begin, end, len(running), len(running), warm_up)
            for row in running:
                texts[rows[row]].append(tokens[row][0])
                ends[rows[row]] = end
            left = [row for row in running if wanted[rows[row]] > done]
            fitting = min((s for s in SIZES if s >= len(left)), default=BATCH)
            if left and fitting < size:
                with mark("move"):
                    engine.move(left)
                rows, size = [rows[row] for row in left], fitting
    for text, end in zip(texts, ends):
        record.request(start, first, end, count, len(text), warm_up)
    assert all(0 <= token < VOCABULARY for text in texts for token in text) and bool(torch.isfinite(engine.last).all())
    assert [len(text) - 1 for text in texts] == wanted


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, engine = begun(options.seed), Engine()
    engine.capture()
    in_batches(partial(serve, engine, record, mark), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(80, 4))
    record.finish()


main()
