"""Three CUDA graphs a token: with and without the instruction, at the same time on two streams, then the draw from both.

A step is from the upload or the first replay until an event behind four tokens, copied to pinned memory, has been waited for: a
prefill step takes in four texts of one length, and four of what is to be avoided, eagerly and one behind the other; a decode
step replays both models' graphs on streams of their own, ordered by events alone, and behind them the graph that weighs the
logits against each other and draws. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import copy
from functools import partial

import torch

from contract import Record, arguments
from parts import Decoder, begun, captured, captured_on, drawn, in_batches, prompt, served

VOCABULARY, LENGTH, BATCH, GUIDANCE = 32000, 512, 4, 1.5
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 1536, 4608, 28, 12, 4
LENGTHS = (140, 360, 90, 230, 64, 300)  # of texts, by turns
AVOIDED = (12, 20, 16)  # how long what is to be avoided is, by turns


class Side:
    """The model on a text of its own, with a cache, a stream and a graph."""

    def __init__(self, model):
        self.model = model
        self.stream = torch.cuda.Stream()
        self.places = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.logits = torch.zeros(BATCH, VOCABULARY, device="cuda")

    def step(self):
        self.logits.copy_(self.model.logits(self.ids, self.places, LENGTH))
        self.places.add_(1)

    def capture(self, ids):
        self.ids = ids
        self.graph = captured_on(self.stream, self.step)

    def prefill(self, tokens):
        ids = torch.tensor(tokens).to("cuda")
        count = ids.shape[1]
        places = self.model.columns[:count].expand(BATCH, count)
        self.logits.copy_(self.model.logits(ids, places, count))
        self.places.fill_(count)


class Engine:
    def __init__(self, chance):
        self.chance, self.batches = chance, 0
        model = Decoder(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, BATCH, LENGTH)
        other = copy.copy(model)  # the same weights
        other.caches(LENGTH)
        self.sides = [Side(model), Side(other)]
        self.ids = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.fetched = torch.zeros(BATCH, dtype=torch.int64, pin_memory=True)
        self.done = torch.cuda.Event()
        for side in self.sides:
            side.capture(self.ids)
        self.graph = captured(self.weigh)

    def weigh(self):
        wanted, avoided = (side.logits.log_softmax(-1) for side in self.sides)
        self.last = avoided + GUIDANCE * (wanted - avoided)
        self.ids.copy_(drawn(self.last, 0.8))

    def fetch(self):
        self.fetched.copy_(self.ids[:, 0], non_blocking=True)
        self.done.record()
        self.done.synchronize()
        return self.fetched.tolist()

    def prefill(self, prompts):
        count = AVOIDED[self.batches % len(AVOIDED)]
        self.batches += 1
        self.sides[0].prefill(prompts)
        self.sides[1].prefill([prompt(self.chance, VOCABULARY, count) for _ in range(BATCH)])
        self.weigh()
        return self.fetch()

    def decode(self):
        main = torch.cuda.current_stream()
        for side in self.sides:
            side.stream.wait_stream(main)
            with torch.cuda.stream(side.stream):
                side.graph.replay()
        for side in self.sides:
            main.wait_stream(side.stream)
        self.graph.replay()
        return self.fetch()


def serve(engine, record, prompts, steps, warm_up=False):
    count = served(record, engine, prompts, VOCABULARY, steps, warm_up)
    assert engine.sides[0].places[:, 0].tolist() == [count + steps] * BATCH and count + steps <= LENGTH
    assert all(bool(torch.isfinite(side.logits).all()) for side in engine.sides)


def main():
    options = arguments(__doc__)
    record = Record()
    chance = begun(options.seed)
    engine = Engine(chance)
    in_batches(partial(serve, engine, record), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(100, 4))
    record.finish()


main()
