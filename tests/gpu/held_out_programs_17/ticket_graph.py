"""A CUDA graph answers four tickets at a time; a second thread, on a stream of its own, embeds those that were answered before.

A step of the answering model ends when the tokens are in pinned memory and its stream was waited for: a prefill step takes in
four tickets of one length, eagerly, a decode step replays the graph. Steps of kind other are the second thread's: a ticket with
its answer goes through an embedder, until `.tolist()` has the vector, while the next tickets are answered. A request is one
ticket, up to its answer's last token. With --ranges a batch has its id of letters and digits around it, with "context" around
its prefill step, and the second thread has "vec" with the id around what it does for a batch.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import contextlib
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges
from parts import MADE, SIZE, Plain, attended, begun, captured, drawn, in_batches, shares_of

VOCABULARY, LENGTH, BATCH = 32000, 448, 4
LARGE = (2048, 5632, 20, 16, 4)  # width, inner width, layers, heads, heads of keys and values
SMALL = (768, 2048, 12, 6, 2)
LENGTHS = (170, 330, 80, 250, 390)  # of tickets, by turns


class Answerer(Plain):
    def __init__(self):
        super().__init__(VOCABULARY, *LARGE, LENGTH)
        self.cache = torch.zeros(2, LARGE[2], BATCH, LARGE[4], LENGTH, SIZE, **MADE)
        self.ids = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.place = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.last = torch.zeros(BATCH, VOCABULARY, device="cuda")
        self.fetched = torch.zeros(BATCH, dtype=torch.int64, pin_memory=True)
        self.graph = captured(self.forward)

    def choose(self, x):
        self.last.copy_(self.logits(x))
        self.ids.copy_(drawn(self.last, 0.8))

    def forward(self):
        hidden = self.columns > self.place[:, None]

        def attend(i, q, k, v):
            keys, values = self.cache[0, i], self.cache[1, i]
            keys.index_copy_(2, self.place, k)
            values.index_copy_(2, self.place, v)
            return attended(shares_of(q, keys, hidden), values)

        cos, sin = self.cos.index_select(0, self.place), self.sin.index_select(0, self.place)
        self.choose(self.through(self.ids, cos, sin, attend))
        self.place.add_(1)

    def fetch(self):
        self.fetched.copy_(self.ids[:, 0], non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return self.fetched.tolist()

    def prefill(self, prompts):
        ids = torch.tensor(prompts).to("cuda")
        count = ids.shape[1]
        hidden = self.columns[:count] > self.columns[:count, None]

        def attend(i, q, k, v):
            self.cache[0, i, :, :, :count] = k
            self.cache[1, i, :, :, :count] = v
            return attended(shares_of(q, k, hidden), v)

        self.choose(self.through(ids, self.cos[:count], self.sin[:count], attend))
        self.place.fill_(count)
        return self.fetch()

    def decode(self):
        self.graph.replay()
        return self.fetch()


class Embedder(Plain):
    """All places of a text see each other; a text is alone in its pass."""

    def __init__(self):
        super().__init__(VOCABULARY, *SMALL, LENGTH)
        self.stream = torch.cuda.Stream()

    def vector(self, tokens):
        count = len(tokens)
        with torch.cuda.stream(self.stream):
            ids = torch.tensor(tokens).to("cuda")
            x = self.through(ids, self.cos[:count], self.sin[:count], lambda i, q, k, v: attended(shares_of(q, k), v))
            return F.normalize(x.float().mean(0), dim=0).tolist()


class Desk:
    def __init__(self, record, mark, chance):
        self.record, self.mark, self.chance, self.stored, self.under_way = record, mark, chance, {}, []
        self.answerer, self.embedder, self.pen = Answerer(), Embedder(), threading.Lock()
        # Whether gradients are wanted is asked in each thread for itself.
        self.second = ThreadPoolExecutor(1, initializer=torch.set_grad_enabled, initargs=(False,))

    def note(self, *step):
        with self.pen:  # both threads write down steps
            self.record.step(*step)

    def store(self, name, texts, warm_up):
        """Runs in the second thread."""
        with self.mark("vec " + name):
            for number, text in enumerate(texts):
                begin = now()
                vector = self.embedder.vector(text)
                end = now()
                self.stored[name, number] = vector
                self.note("other", begin, end, len(text), 1, warm_up)

    def timed(self, kind, tokens, words, call, *given):
        begin = now()
        with self.mark(words) if words else contextlib.nullcontext():
            result = call(*given)
        end = now()
        self.note(kind, begin, end, tokens, BATCH, self.warm_up)
        return result, begin, end

    def answer(self, prompts, steps, warm_up=False):
        name, count = "%08x" % self.chance.getrandbits(32), len(prompts[0])
        self.warm_up = warm_up
        with self.mark(name):
            tokens, start, first = self.timed("prefill", BATCH * count, "context", self.answerer.prefill, prompts)
            texts, end = [text + [token] for text, token in zip(prompts, tokens)], first
            for _ in range(steps):
                tokens, _, end = self.timed("decode", BATCH, None, self.answerer.decode)
                for text, token in zip(texts, tokens):
                    text.append(token)
        for text in texts:
            self.record.request(start, first, end, count, steps + 1, warm_up)
            assert len(text) == count + steps + 1 <= LENGTH and all(0 <= token < VOCABULARY for token in text)
        self.under_way.append(self.second.submit(self.store, name, texts, warm_up))
        if warm_up:
            self.wait()

    def wait(self):
        for future in self.under_way:
            future.result()
        self.under_way.clear()


def main():
    options = arguments(__doc__)
    record, chance = Record(), begun(options.seed)
    desk = Desk(record, ranges(options.ranges), chance)
    torch.cuda.synchronize()
    in_batches(desk.answer, chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(110, 4))
    desk.wait()
    desk.second.shutdown()
    assert bool(torch.isfinite(desk.answerer.last).all())
    assert all(len(vector) == SMALL[0] and all(map(math.isfinite, vector)) for vector in desk.stored.values())
    record.steps.sort(key=lambda step: step["start_ns"])
    record.finish()


main()
