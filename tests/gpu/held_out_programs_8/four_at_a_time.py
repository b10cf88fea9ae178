"""A server of four decode steps a turn: a graph is replayed four times, then the tokens of all four are fetched.

A prefill step is one prompt, eager, from its upload to its first token on the host. Decode steps are queued four at a
time (fewer when no text needs as many) and only the end of the last is known, so the time from the first replay to the
fetched tokens is divided evenly among them. A text that ends within a turn is computed on to the turn's end, and these
tokens are thrown away. A request is one prompt, from its arrival in the queue. With --ranges a turn has "turn", with
the number of texts, with "replays" and "fetch" inside, and a prompt "prompt".
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import collections
import math
import random

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges

VOCABULARY, LENGTH, ROWS, TURN = 50000, 512, 8, 4
WIDTH, INNER, LAYERS, HEADS, KV_HEADS, SIZE = 1280, 4480, 36, 20, 5, 64
GROUP = HEADS // KV_HEADS
MADE = dict(device="cuda", dtype=torch.bfloat16)


def weight(rows, columns):
    return torch.randn(rows, columns, **MADE) * columns ** -0.5


def norm(x, scale):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5) * scale).to(x.dtype)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Engine:
    def __init__(self):
        self.embedding, self.head = torch.randn(VOCABULARY, WIDTH, **MADE), weight(VOCABULARY, WIDTH)
        self.layers = [dict(q=weight(HEADS * SIZE, WIDTH), k=weight(KV_HEADS * SIZE, WIDTH),
                            v=weight(KV_HEADS * SIZE, WIDTH), out=weight(WIDTH, HEADS * SIZE),
                            up=weight(2 * INNER, WIDTH), down=weight(WIDTH, INNER),
                            before=torch.ones(WIDTH, device="cuda"), between=torch.ones(WIDTH, device="cuda"),
                            keys=torch.zeros(ROWS, KV_HEADS, LENGTH, SIZE, **MADE),
                            values=torch.zeros(ROWS, KV_HEADS, LENGTH, SIZE, **MADE)) for _ in range(LAYERS)]
        self.last = torch.ones(WIDTH, device="cuda")
        speeds = 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE)
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(), speeds)
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)
        # What the graph reads and writes: each row's last token and its place.
        self.token = torch.zeros(ROWS, 1, dtype=torch.int64, device="cuda")
        self.place = torch.zeros(ROWS, dtype=torch.int64, device="cuda")
        self.turn = torch.zeros(TURN, ROWS, dtype=torch.int64, device="cuda")
        self.rows, self.places = torch.arange(ROWS, device="cuda"), torch.arange(LENGTH, device="cuda")
        self.fetched = torch.zeros(TURN, ROWS, dtype=torch.int64).pin_memory()
        self.event, self.graph = torch.cuda.Event(), None

    def body(self, ids, cos, sin, hidden, cached):
        """`cached(layer, keys, values)` puts new keys and values away and returns those to attend to."""
        rows, count = ids.shape
        x = F.embedding(ids, self.embedding)
        for layer in self.layers:
            y = norm(x, layer["before"])
            q = turned(F.linear(y, layer["q"]).view(rows, count, HEADS, SIZE).transpose(1, 2), cos, sin)
            k = turned(F.linear(y, layer["k"]).view(rows, count, KV_HEADS, SIZE).transpose(1, 2), cos, sin)
            keys, values = cached(layer, k, F.linear(y, layer["v"]).view(rows, count, KV_HEADS, SIZE).transpose(1, 2))
            q = q.reshape(rows, KV_HEADS, GROUP * count, SIZE)
            scores = (q @ keys.transpose(2, 3)).float().view(rows, KV_HEADS, GROUP, count, -1) * SIZE ** -0.5
            weights = scores.masked_fill(hidden, -math.inf).softmax(-1).to(q.dtype)
            heads = (weights.view(rows, KV_HEADS, GROUP * count, -1) @ values).view(rows, HEADS, count, SIZE)
            x = x + F.linear(heads.transpose(1, 2).reshape(rows, count, HEADS * SIZE), layer["out"])
            gate, up = F.linear(norm(x, layer["between"]), layer["up"]).chunk(2, -1)
            x = x + F.linear(F.gelu(gate) * up, layer["down"])
        self.logits = F.linear(norm(x[:, -1], self.last), self.head).float()
        values, numbers = self.logits.topk(50, -1)
        chosen = (values.softmax(-1) / torch.empty_like(values).exponential_()).argmax(-1, keepdim=True)
        return numbers.gather(-1, chosen)

    def decode(self):
        """One decode step of all rows, used or not; the graph holds this."""
        hidden = (self.places > self.place[:, None])[:, None, None, None]
        cos, sin = self.cos[self.place][:, None, None], self.sin[self.place][:, None, None]

        def cached(layer, keys, values):
            layer["keys"][self.rows, :, self.place] = keys[:, :, 0]
            layer["values"][self.rows, :, self.place] = values[:, :, 0]
            return layer["keys"], layer["values"]

        self.token.copy_(self.body(self.token, cos, sin, hidden, cached))
        # A row without a text counts on too, so it must stop at the cache's end.
        self.place.add_(1).clamp_(max=LENGTH - 1)

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.decode()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.decode()
        torch.cuda.synchronize()

    def prefill(self, row, prompt):
        """Returns the first token."""
        count = len(prompt)
        ids = torch.tensor([prompt]).pin_memory().to("cuda", non_blocking=True)
        hidden = self.places[:count] > self.places[:count, None]

        def cached(layer, keys, values):
            layer["keys"][row, :, :count] = keys[0]
            layer["values"][row, :, :count] = values[0]
            return keys, values

        token = self.body(ids, self.cos[:count], self.sin[:count], hidden, cached)
        self.token[row] = token[0]
        self.place[row] = count
        return token.item()

    def replay(self, count):
        for i in range(count):
            self.graph.replay()
            self.turn[i].copy_(self.token[:, 0])

    def fetch(self, count):
        """The tokens of the last `count` replays, a list for each."""
        self.fetched.copy_(self.turn, non_blocking=True)
        self.event.record()
        self.event.synchronize()
        return self.fetched[:count].tolist()


class Request:
    def __init__(self, prompt, limit):
        self.prompt, self.limit = prompt, limit
        self.text, self.start, self.first, self.end = [], now(), 0, 0


def admit(engine, record, mark, request, row, warm_up):
    begin = now()
    with mark("prompt"):
        request.text = [engine.prefill(row, request.prompt)]
    request.first = request.end = now()
    record.step("prefill", begin, request.first, len(request.prompt), 1, warm_up)


def turn(engine, record, mark, running, most, warm_up):
    """Up to `most` decode steps of `running` (row: request). Returns how many."""
    count = min(TURN, most, max(request.limit - len(request.text) for request in running.values()))
    begin = now()
    with mark(f"turn {len(running)}"):
        with mark("replays"):
            engine.replay(count)
        with mark("fetch"):
            tokens = engine.fetch(count)
    end = now()
    for i, of_step in enumerate(tokens):
        wanted = [row for row, request in running.items() if len(request.text) < request.limit]
        for row in wanted:
            running[row].text.append(of_step[row])
            running[row].end = end
        edges = [begin + (end - begin) * edge // count for edge in (i, i + 1)]
        record.step("decode", *edges, len(wanted), len(wanted), warm_up)
    return count


def serve(engine, record, mark, steps, arrivals, warm_up=False):
    """`arrivals()` gives the requests that arrive between two turns."""
    waiting, running, done = collections.deque(), {}, []
    left = steps
    while left:
        waiting.extend(arrivals())
        for row in range(ROWS):
            if row not in running and waiting:
                running[row] = waiting.popleft()
                admit(engine, record, mark, running[row], row, warm_up)
        if not running:
            continue
        left -= turn(engine, record, mark, running, left, warm_up)
        for row in [row for row, request in running.items() if len(request.text) == request.limit]:
            done.append(running.pop(row))
    for request in done + list(running.values()):
        record.request(request.start, request.first, request.end, len(request.prompt), len(request.text), warm_up)
        assert all(0 <= token < VOCABULARY for token in request.text) and len(request.text) <= request.limit
    assert bool(torch.isfinite(engine.logits).all())


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance = random.Random(options.seed)
    engine = Engine()
    engine.capture()

    def request(low, high, limit):
        return Request([chance.randrange(VOCABULARY) for _ in range(chance.randrange(low, high))], limit)

    first = [[request(48, 49, 9), request(100, 101, 7)]]
    serve(engine, record, mark, 8, lambda: first.pop() if first else [], warm_up=True)

    turns = 0

    def arrivals():
        # Two before the first turn, later none, one or three.
        nonlocal turns
        turns += 1
        many = 2 if turns == 1 else chance.choice((0, 0, 0, 0, 1, 1, 1, 3))
        return [request(24, 240, chance.randrange(10, 60)) for _ in range(many)]

    serve(engine, record, mark, options.steps, arrivals)
    record.finish()


main()
