"""A graph that is captured anew when its texts outgrow the cache, which happens seldom and in the middle of a batch.

A step is one pass through the model and the choice of three tokens, until they have been copied to pinned memory and the
stream waited for: a prefill step takes in three prompts of one length, eagerly, a decode step replays the graph, which
attends to the whole cache, and counts up by two kernels outside of it. A cache that is full is copied into one of 32
places more; the capture that follows is in no step. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch

from contract import Record, arguments, now
from parts import MADE, Decoder, answered, begun, captured, in_batches

VOCABULARY, REACH, MORE, BATCH = 32000, 1024, 32, 3


class Engine:
    def __init__(self):
        self.room = 96
        self.model = Decoder(VOCABULARY, 1792, 4864, 24, 14, 7, BATCH, self.room, reach=REACH)
        self.ids = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.chosen = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.places = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.fetched = torch.zeros(BATCH, 1, dtype=torch.int64, pin_memory=True)
        self.graph, self.captures = None, 0

    def step(self):
        """May be done over and over: counting up is not part of it."""
        self.last = self.model.logits(self.ids, self.places, self.room)
        self.chosen.copy_(self.last.argmax(-1, keepdim=True))

    def make_room(self, count):
        """Room for `count` places. The graph of the smaller cache is thrown away."""
        if count <= self.room:
            return
        old, self.room, self.graph = self.room, -(-count // MORE) * MORE, None
        torch.cuda.synchronize()
        for caches in (self.model.keys, self.model.values):
            for i, cache in enumerate(caches):
                larger = torch.zeros(BATCH, self.model.kv_heads, self.room, self.model.size, **MADE)
                larger[:, :, :old] = cache
                caches[i] = larger

    def capture(self):
        self.graph = captured(self.step, 2)
        self.captures += 1

    def fetch(self):
        self.fetched.copy_(self.ids, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return self.fetched[:, 0].tolist()

    def prefill(self, prompts):
        count = len(prompts[0])
        self.make_room(count)
        places = self.model.columns[:count].expand(BATCH, count)
        self.last = self.model.logits(torch.tensor(prompts).to("cuda"), places, count)
        self.ids.copy_(self.last.argmax(-1, keepdim=True))
        self.places.fill_(count)
        return self.fetch()

    def decode(self):
        self.graph.replay()
        self.ids.copy_(self.chosen)
        self.places.add_(1)
        return self.fetch()


def serve(engine, record, prompts, steps, warm_up=False):
    count = len(prompts[0])

    def ready(i):
        engine.make_room(count + i + 1)
        if engine.graph is None:
            engine.capture()

    start = now()
    texts = [[token] for token in engine.prefill(prompts)]
    answered(record, texts, VOCABULARY, start, count, steps, engine.decode, warm_up, ready)
    assert bool(torch.isfinite(engine.last).all())
    assert engine.places[:, 0].tolist() == [count + steps] * BATCH and engine.captures > 0


def main():
    options = arguments(__doc__)
    record = Record()
    chance, engine = begun(options.seed), Engine()
    in_batches(partial(serve, engine, record), chance, VOCABULARY, BATCH, range(75, 525, 15), options.steps, 30, warm_up=(72, 4))
    record.finish()


main()
