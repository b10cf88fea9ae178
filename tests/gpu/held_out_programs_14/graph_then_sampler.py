"""A CUDA graph of the layers alone: head and sampler run eagerly behind it, with settings of its own for each of eight texts.

A step ends when the tokens are in pinned memory, where a second stream has copied them, and an event says so: a prefill step
takes in eight prompts of one length, eagerly, a decode step replays the graph. A request is one text. With --ranges a batch has
"batch" around it, inside are "prefill" and, for each decode step, "decode", and in both "forward" and "sample".
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch

from contract import Record, arguments, ranges
from parts import MADE, SIZE, Plain, attended, begun, captured, in_batches, shares_of, together

VOCABULARY, LENGTH, BATCH, LIKELIEST = 32000, 448, 8, 64
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 20, 16, 4
LENGTHS = (140, 280, 60, 380, 200)  # of prompts, by turns


class Engine(Plain):
    def __init__(self, mark, chance):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH)
        self.mark, self.chance = mark, chance
        self.cache = torch.zeros(2, LAYERS, BATCH, KV_HEADS, LENGTH, SIZE, **MADE)
        self.ids = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.place = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.state = torch.zeros(BATCH, 1, WIDTH, **MADE)
        self.seen = torch.zeros(BATCH, VOCABULARY, dtype=torch.bool, device="cuda")
        self.fetched = torch.zeros(BATCH, dtype=torch.int64, pin_memory=True)
        self.copies, self.chosen, self.landed = torch.cuda.Stream(), torch.cuda.Event(), torch.cuda.Event()
        self.graph = captured(self.forward)

    def forward(self):
        hidden = self.columns > self.place[:, None]

        def attend(i, q, k, v):
            keys, values = self.cache[0, i], self.cache[1, i]
            keys.index_copy_(2, self.place, k)
            values.index_copy_(2, self.place, v)
            return attended(shares_of(q, keys, hidden), values)

        cos, sin = self.cos.index_select(0, self.place), self.sin.index_select(0, self.place)
        self.state.copy_(self.through(self.ids, cos, sin, attend))
        self.place.add_(1)

    def read(self, ids):
        count = ids.shape[1]
        hidden = self.columns[:count] > self.columns[:count, None]

        def attend(i, q, k, v):
            self.cache[0, i, :, :, :count] = k
            self.cache[1, i, :, :, :count] = v
            return attended(shares_of(q, k, hidden), v)

        x = self.through(ids, self.cos[:count], self.sin[:count], attend)
        self.state.copy_(x[:, -1:])
        self.place.fill_(count)

    def sample(self):
        """Words seen before count for less; then the likeliest, of these the nucleus, and the draw."""
        self.last = self.logits(self.state)
        less = torch.where(self.last > 0, self.last / self.penalties, self.last * self.penalties)
        top = (torch.where(self.seen, less, self.last) / self.heats).topk(LIKELIEST, -1)
        chances = top.values.softmax(-1)
        chances = chances.masked_fill(chances.cumsum(-1) - chances > self.nuclei, 0.0)
        picked = (chances / torch.empty_like(chances).exponential_().clamp_(min=1e-20)).argmax(-1, keepdim=True)
        self.ids.copy_(top.indices.gather(-1, picked))
        self.seen.scatter_(1, self.ids, True)

    def fetch(self):
        self.chosen.record()
        self.copies.wait_event(self.chosen)
        with torch.cuda.stream(self.copies):
            self.fetched.copy_(self.ids[:, 0], non_blocking=True)
            self.landed.record()
        self.landed.synchronize()
        return self.fetched.tolist()

    def prefill(self, prompts):
        settings = [[self.chance.uniform(*bounds) for _ in prompts] for bounds in ((0.6, 1.1), (0.8, 0.98), (1.0, 1.3))]
        ids, settings = torch.tensor(prompts).to("cuda"), torch.tensor(settings).to("cuda")
        self.heats, self.nuclei, self.penalties = settings[:, :, None]  # each is texts x 1
        self.seen.zero_()
        self.seen.scatter_(1, ids, True)
        with self.mark("forward"):
            self.read(ids)
        with self.mark("sample"):
            self.sample()
        return self.fetch()

    def decode(self):
        with self.mark("forward"):
            self.graph.replay()
        with self.mark("sample"):
            self.sample()
        return self.fetch()


def serve(engine, record, prompts, steps, warm_up=False):
    words = ("batch", "prefill", "decode")
    count = together(record, engine.mark, words, VOCABULARY, engine, prompts, steps, warm_up)
    assert engine.place.item() == count + steps <= LENGTH and bool(torch.isfinite(engine.last).all())


def main():
    options = arguments(__doc__)
    mark, record, chance = ranges(options.ranges), Record(), begun(options.seed)
    engine = Engine(mark, chance)
    in_batches(partial(serve, engine, record), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(100, 4))
    record.finish()


main()
