"""A server whose batches are put together: questions that wait are taken in as a batch of their own, which then joins the others.

A step is one pass through the model and the draw of its tokens, until `.tolist()` has them: a prefill step takes in one or two
questions, padded on the left, into a cache of their own; a decode step makes one cache of all that run, where any came or went,
and takes in a token of each. A request is one question, from its arrival in the queue on. With --ranges each has a range from its
prefill step to its end, which overlaps those of others, and "prefill", "decode", and in the latter "regroup" are around the work.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import json
import random

import torch

from contract import Record, arguments, now, ranges
from parts import MADE, SIZE, Plain, attended, begun, drawn, prompt, shares_of

VOCABULARY, LENGTH, ROWS, GROUP, FIRST = 32000, 256, 8, 2, 6  # how many run at most, are taken in at once, wait when it opens
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 1792, 5120, 24, 14, 2
OFTEN, PATIENCE = 0.3, 5  # how often a question comes before a decode step, and how many of these it waits for another one


class Request:
    def __init__(self, chance, plan, at):
        self.prompt, self.text, self.lines = prompt(chance, VOCABULARY, plan.randrange(24, 220)), [], []
        self.wanted, self.at, self.start = plan.randrange(6, 25), at, now()

    def gets(self, token, at):
        self.text.append(token)
        self.end = at

    def over(self):
        return len(self.text) > self.wanted


class Batch:
    """Requests whose newest tokens stand in one column, `end` - 1 of the cache, each behind so many columns of padding."""

    def __init__(self, requests, end, pads):
        self.requests, self.end, self.pads = requests, end, pads
        self.cache = torch.zeros(2, LAYERS, len(requests), KV_HEADS, LENGTH, SIZE, **MADE)


def regrouped(batches):
    """One batch of all requests that go on."""
    kept = [[row for row, request in enumerate(batch.requests) if not request.over()] for batch in batches]
    end = max(batch.end - batch.pads[row] for batch, rows in zip(batches, kept) for row in rows)
    new, at = Batch([batch.requests[row] for batch, rows in zip(batches, kept) for row in rows], end, []), 0
    for batch, rows in zip(batches, kept):
        if not rows:
            continue
        shift = end - batch.end
        some = batch.cache[..., max(0, -shift):batch.end, :].index_select(2, torch.tensor(rows).to("cuda"))
        new.cache[:, :, at:at + len(rows), :, max(0, shift):end] = some
        new.pads += [batch.pads[row] + shift for row in rows]
        at += len(rows)
    return new


class Server(Plain):
    def __init__(self, mark):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH)
        self.mark, self.groups = mark, 0

    def choose(self, x):
        self.last = self.logits(x)
        return drawn(self.last, 0.8)[:, 0].tolist()

    def prefill(self, requests):
        span = max(len(request.prompt) for request in requests)
        batch = Batch(requests, span, [span - len(request.prompt) for request in requests])
        sent = torch.tensor([[pad] + [0] * pad + request.prompt for pad, request in zip(batch.pads, requests)]).to("cuda")
        pads, ids, columns = sent[:, :1], sent[:, 1:], self.columns[:span]
        # A column sees itself, so that padding sees something.
        hidden = ((columns > columns[:, None]) | (columns < pads)[:, None]) & (columns != columns[:, None])

        def attend(i, q, k, v):
            batch.cache[0, i, :, :, :span] = k
            batch.cache[1, i, :, :, :span] = v
            return attended(shares_of(q, k, hidden[:, None, None]), v)

        places = (columns - pads).clamp_(min=0)
        return batch, self.choose(self.through(ids, self.cos[places][:, None], self.sin[places][:, None], attend))

    def decode(self, batches):
        batch = batches[0]
        if len(batches) > 1 or any(request.over() for request in batch.requests):
            with self.mark("regroup"):
                batch = regrouped(batches)
                self.groups += 1
        column, span = batch.end, batch.end + 1
        ids, pads = torch.tensor([[request.text[-1] for request in batch.requests], batch.pads]).to("cuda")
        hidden = (self.columns[:span] < pads[:, None])[:, None, None, None]

        def attend(i, q, k, v):
            batch.cache[0, i, :, :, column] = k[:, :, 0]
            batch.cache[1, i, :, :, column] = v[:, :, 0]
            return attended(shares_of(q, batch.cache[0, i, :, :, :span], hidden), batch.cache[1, i, :, :, :span])

        cos, sin = (table.index_select(0, column - pads)[:, None, None] for table in (self.cos, self.sin))
        batch.end = span
        return batch, self.choose(self.through(ids[:, None], cos, sin, attend))


class Loop:
    def __init__(self, server, record, marked, warm_up=False):
        self.server, self.record, self.marked, self.warm_up = server, record, marked, warm_up
        self.waiting, self.batches, self.numbers = [], [], 0

    def running(self):
        return [request for batch in self.batches for request in batch.requests if not request.over()]

    def due(self, done):
        """Whether questions are to be taken in: nothing runs, two wait, or one has waited for long."""
        running, room = len(self.running()), min(len(self.waiting), GROUP)
        return room > 0 and running + room <= ROWS and (not running or room == GROUP or done - self.waiting[0].at >= PATIENCE)

    def admit(self):
        requests, self.waiting = self.waiting[:GROUP], self.waiting[GROUP:]
        for request in requests:
            self.numbers += 1
            request.range = torch.cuda.nvtx.range_start("question %d" % self.numbers) if self.marked else None
        begin = now()
        with self.server.mark("prefill"):
            batch, tokens = self.server.prefill(requests)
        end = now()
        self.record.step("prefill", begin, end, sum(len(request.prompt) for request in requests), len(requests), self.warm_up)
        for request, token in zip(requests, tokens):
            request.first = end
            request.gets(token, end)
        self.batches.append(batch)

    def advance(self):
        begin = now()
        with self.server.mark("decode"):
            batch, tokens = self.server.decode(self.batches)
        end = now()
        self.record.step("decode", begin, end, len(tokens), len(tokens), self.warm_up)
        for request, token in zip(batch.requests, tokens):
            request.gets(token, end)
            request.lines.append(json.dumps({"token": token, "index": len(request.text)}))
            if request.over():
                self.leave(request)
        self.batches = [batch] if not all(request.over() for request in batch.requests) else []

    def leave(self, request):
        if request.range is not None:
            torch.cuda.nvtx.range_end(request.range)
        self.record.request(request.start, request.first, request.end, len(request.prompt), len(request.text), self.warm_up)
        assert all(0 <= token < VOCABULARY for token in request.text) and len(request.lines) == len(request.text) - 1

    def serve(self, arrivals, steps):
        """`arrivals` gives the requests that come before a decode step, from its number and whether there is anything to do."""
        for done in range(steps):
            self.waiting += arrivals(done, bool(self.waiting or self.batches))
            while self.due(done):
                self.admit()
            self.advance()
        for request in self.running():
            self.leave(request)
        assert bool(torch.isfinite(self.server.last).all())


def main():
    options = arguments(__doc__)
    record, chance, plan = Record(), begun(options.seed), random.Random(options.seed)
    server = Server(ranges(options.ranges))
    torch.cuda.synchronize()

    def arrivals(done, busy):
        if done == 0:
            return [Request(chance, plan, 0) for _ in range(FIRST)]
        return [Request(chance, plan, done)] if plan.random() < OFTEN or not busy else []

    def single(done, busy):
        return [] if busy else [Request(chance, plan, done)]

    Loop(server, record, options.ranges, warm_up=True).serve(single, 4)
    Loop(server, record, options.ranges).serve(arrivals, options.steps)
    assert server.groups > 0
    record.finish()


main()
