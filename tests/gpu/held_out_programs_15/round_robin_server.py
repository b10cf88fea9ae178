"""A server that shares its time out: up to four of its conversations have six decode steps, then the next ones have theirs.

A step is one pass through the model and the draw of its tokens, until they are on the host: a prefill step takes in one
question, when it first comes to be among the four, a decode step a token of each that is and has not ended. A request is one
question, from its arrival in the queue on. With --ranges a round of six decode steps has "round" and its number around it,
inside are "prompt" for each question that is new and "tokens" for each decode step, in which "fetch" is around the wait.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import json
import random
from collections import deque

import torch

from contract import Record, arguments, now, ranges
from parts import MADE, SIZE, Plain, attended, begun, drawn, prompt, shares_of

VOCABULARY, LENGTH, DESKS, SEATS, ROUND, FIRST = 32000, 320, 12, 4, 6, 5  # FIRST: how many wait when it opens
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 18, 16, 4
OFTEN = 0.27  # how often a question comes before a decode step


class Request:
    def __init__(self, chance, plan):
        self.prompt, self.text, self.lines = prompt(chance, VOCABULARY, plan.randrange(30, 260)), [], []
        self.wanted, self.desk, self.start = plan.randrange(5, 22), None, now()

    def gets(self, token, at):
        self.text.append(token)
        self.lines.append(json.dumps({"token": token, "index": len(self.text)}))
        self.end = at

    def over(self):
        return len(self.text) > self.wanted


class Server(Plain):
    """Each conversation has a desk, which is a row of the cache, until it ends."""

    def __init__(self, mark):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH)
        self.mark = mark
        self.cache = torch.zeros(2, LAYERS, DESKS, KV_HEADS, LENGTH, SIZE, **MADE)

    def choose(self, x):
        self.last = self.logits(x)
        ids = drawn(self.last, 0.8)[:, 0]
        with self.mark("fetch"):
            return ids.tolist()

    def prefill(self, request):
        count = len(request.prompt)
        hidden = self.columns[:count] > self.columns[:count, None]

        def attend(i, q, k, v):
            self.cache[0, i, request.desk, :, :count] = k
            self.cache[1, i, request.desk, :, :count] = v
            return attended(shares_of(q, k, hidden), v)

        ids = torch.tensor(request.prompt).to("cuda")
        return self.choose(self.through(ids, self.cos[:count], self.sin[:count], attend))[0]

    def decode(self, requests):
        places = [len(request.prompt) + len(request.text) - 1 for request in requests]
        span = max(places) + 1
        ids, desks, places = torch.tensor([[request.text[-1] for request in requests], [request.desk for request in requests],
                                           places]).to("cuda")
        hidden = (self.columns[:span] > places[:, None])[:, None, None, None]

        def attend(i, q, k, v):
            keys, values = self.cache[0, i], self.cache[1, i]
            keys[desks, :, places] = k[:, :, 0]
            values[desks, :, places] = v[:, :, 0]
            return attended(shares_of(q, keys[:, :, :span][desks], hidden), values[:, :, :span][desks])

        cos, sin = self.cos[places][:, None, None], self.sin[places][:, None, None]
        return self.choose(self.through(ids[:, None], cos, sin, attend))


class Loop:
    def __init__(self, server, record, warm_up=False):
        self.server, self.record, self.warm_up = server, record, warm_up
        self.waiting, self.seated, self.desks, self.rounds, self.done = deque(), deque(), list(range(DESKS)), 0, 0

    def take_in(self, request):
        begin = now()
        with self.server.mark("prompt"):
            token = self.server.prefill(request)
        request.first = now()
        self.record.step("prefill", begin, request.first, len(request.prompt), 1, self.warm_up)
        request.gets(token, request.first)

    def advance(self, requests):
        begin = now()
        with self.server.mark("tokens"):
            tokens = self.server.decode(requests)
        end = now()
        self.record.step("decode", begin, end, len(tokens), len(tokens), self.warm_up)
        for request, token in zip(requests, tokens):
            request.gets(token, end)

    def leave(self, request):
        self.desks.append(request.desk)
        self.record.request(request.start, request.first, request.end, len(request.prompt), len(request.text), self.warm_up)
        assert all(0 <= token < VOCABULARY for token in request.text) and len(request.lines) == len(request.text)

    def round(self, arrivals, steps):
        """Up to SEATS conversations, each at a desk."""
        running = [self.seated.popleft() for _ in range(min(SEATS, len(self.seated)))]
        with self.server.mark("round %d" % self.rounds):
            for request in running:
                if not request.text:
                    self.take_in(request)
            for _ in range(ROUND):
                self.advance(running)
                self.done += 1
                self.waiting += arrivals()
                for request in running:
                    if request.over():
                        self.leave(request)
                running = [request for request in running if not request.over()]
                if not running or self.done == steps:
                    break
        self.seated += running
        self.rounds += 1

    def serve(self, arrivals, steps):
        """`arrivals` gives the requests that come behind a decode step; where there is nothing to do, it is asked again."""
        while self.done < steps:
            while self.waiting and self.desks:
                request = self.waiting.popleft()
                request.desk = self.desks.pop()
                self.seated.append(request)
            if self.seated:
                self.round(arrivals, steps)
            else:
                self.waiting += arrivals()
        for request in self.seated:
            if request.text:
                self.leave(request)
        assert bool(torch.isfinite(self.server.last).all())


def main():
    options = arguments(__doc__)
    record, chance, plan = Record(), begun(options.seed), random.Random(options.seed)
    server = Server(ranges(options.ranges))
    torch.cuda.synchronize()
    warming, serving = Loop(server, record, warm_up=True), Loop(server, record)
    warming.waiting.append(Request(chance, plan))
    warming.serve(list, 4)
    serving.waiting += [Request(chance, plan) for _ in range(FIRST)]
    serving.serve(lambda: [Request(chance, plan)] if plan.random() < OFTEN else [], options.steps)
    record.finish()


main()
