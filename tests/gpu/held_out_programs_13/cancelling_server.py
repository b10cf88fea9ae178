"""A small server: six seats, questions that come between steps, answers that end or whose client goes away before they do.

A step is one pass through the model and the draw of its tokens, until `.tolist()` has them: a prefill step takes in one question,
a decode step a token of each answer that is in a seat, one to six of them, each with a temperature and a least chance of its own.
A request is one question, from its arrival in the queue on. With --ranges "admit" is around each prefill step and "advance", with
the number of answers, around each decode step.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))

import random

import torch

from contract import Record, arguments, now, ranges
from parts import MADE, SIZE, Plain, attended, begun, prompt, shares_of

VOCABULARY, LENGTH, SEATS, FIRST = 32000, 352, 6, 3  # how many questions wait when it opens
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 1536, 5120, 26, 12, 4
SPELL, BUSY, CALM = 20, 0.5, 0.12  # how many steps a spell has, and how often a question comes before one of them


class Request:
    def __init__(self, chance, plan, at):
        self.prompt, self.text = prompt(chance, VOCABULARY, plan.randrange(40, 300)), []
        self.wanted, self.at, self.patience = plan.randrange(8, 25), at, plan.randrange(4, 16)
        if plan.random() < 0.2:  # the client goes away after that many tokens
            self.wanted = plan.randrange(2, self.wanted)
        self.heat, self.floor = plan.randrange(600, 1000), plan.randrange(20, 100)  # in thousandths
        self.start = now()


class Server(Plain):
    def __init__(self):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH)
        self.keys, self.values = (torch.zeros(LAYERS, SEATS, KV_HEADS, LENGTH, SIZE, **MADE) for _ in range(2))

    def choose(self, x, heats, floors):
        self.last = self.logits(x)
        chances = (self.last / (heats[:, None] / 1000)).softmax(-1)
        least = chances.amax(-1, keepdim=True) * (floors[:, None] / 1000)
        chances = chances.masked_fill(chances < least, 0.0)
        return (chances / torch.empty_like(chances).exponential_().clamp_(min=1e-20)).argmax(-1).tolist()

    def admit(self, request):
        count, seat = len(request.prompt), request.seat
        sent = torch.tensor(request.prompt + [request.heat, request.floor]).to("cuda")
        hidden = self.columns[:count] > self.columns[:count, None]

        def attend(i, q, k, v):
            self.keys[i, seat, :, :count] = k
            self.values[i, seat, :, :count] = v
            return attended(shares_of(q, k, hidden), v)

        x = self.through(sent[:count], self.cos[:count], self.sin[:count], attend)
        return self.choose(x, sent[count:count + 1], sent[count + 1:])[0]

    def advance(self, running):
        stand = [len(request.prompt) + len(request.text) - 1 for request in running]
        span = max(stand) + 1
        ids, seats, places, heats, floors = torch.tensor(
            [[request.text[-1] for request in running], [request.seat for request in running], stand,
             [request.heat for request in running], [request.floor for request in running]]).to("cuda")
        hidden = (self.columns[:span] > places[:, None])[:, None, None, None]

        def attend(i, q, k, v):
            self.keys[i][seats, :, places] = k[:, :, 0]
            self.values[i][seats, :, places] = v[:, :, 0]
            keys, values = (cache[i, :, :, :span].index_select(0, seats) for cache in (self.keys, self.values))
            return attended(shares_of(q, keys, hidden), values)

        cos, sin = (table.index_select(0, places)[:, None, None] for table in (self.cos, self.sin))
        return self.choose(self.through(ids[:, None], cos, sin, attend), heats, floors)


def over(record, request, warm_up):
    record.request(request.start, request.first, request.end, len(request.prompt), len(request.text), warm_up)
    assert all(0 <= token < VOCABULARY for token in request.text) and len(request.prompt) + len(request.text) <= LENGTH


def serve(server, record, mark, arrivals, steps, warm_up=False):
    """`arrivals` gives the requests that come before a decode step, from its number and whether there is anything to do."""
    waiting, running, free = [], [], list(range(SEATS))
    for done in range(steps):
        waiting = [request for request in waiting if done - request.at <= request.patience]  # the others' clients are gone
        waiting += arrivals(done, bool(waiting or running))
        while waiting and free:
            request = waiting.pop(0)
            request.seat = free.pop(0)
            begin = now()
            with mark("admit"):
                token = server.admit(request)
            request.first = request.end = now()
            record.step("prefill", begin, request.first, len(request.prompt), 1, warm_up)
            request.text.append(token)
            running.append(request)
        count = len(running)
        begin = now()
        with mark("advance %d" % count):
            tokens = server.advance(running)
        end = now()
        record.step("decode", begin, end, count, count, warm_up)
        for request, token in zip(running, tokens):
            request.text.append(token)
            request.end = end
            if len(request.text) > request.wanted:
                free.append(request.seat)
                over(record, request, warm_up)
        running = [request for request in running if len(request.text) <= request.wanted]
    for request in running:
        over(record, request, warm_up)
    assert bool(torch.isfinite(server.last).all())


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, plan, server = begun(options.seed), random.Random(options.seed), Server()
    torch.cuda.synchronize()

    def arrivals(done, busy):
        if done == 0:
            return [Request(chance, plan, 0) for _ in range(FIRST)]
        often = CALM if done // SPELL % 2 else BUSY
        return [Request(chance, plan, done)] if plan.random() < often or not busy else []

    def single(done, busy):
        return [] if busy else [Request(chance, plan, done)]

    serve(server, record, mark, single, 4, warm_up=True)
    serve(server, record, mark, arrivals, options.steps)
    record.finish()


main()
