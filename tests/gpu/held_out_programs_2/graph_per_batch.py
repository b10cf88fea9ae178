"""Continuous batching with a captured decode step for each of four batch sizes; prompts are prefilled eagerly between replays."""
import collections, os, random, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges

VOCABULARY, LENGTH = 48000, 512
LAYERS, HEADS, KV_HEADS, SIZE, INNER = 28, 20, 4, 128, 7680
WIDTH, GROUP = HEADS * SIZE, HEADS // KV_HEADS
GRAPHS = (8, 4, 2, 1)
SLOTS = max(GRAPHS)
WARM_UP_PROMPT, WARM_UP_STEPS = 40, 2


class Model:
    """In the manner of Nemotron: layer norms, squared ReLU, grouped heads, no biases in the matmuls; bf16. The cache has a slot for
    each sequence and a spare one, to which the empty rows of a graph write."""

    def __init__(self):
        def weight(rows, columns):
            return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).mul_(columns ** -0.5)

        self.embedding = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.head = weight(VOCABULARY, WIDTH)
        self.norms = torch.ones(2 * LAYERS + 1, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.norm_bias = torch.randn(2 * LAYERS + 1, WIDTH, device="cuda", dtype=torch.bfloat16).mul_(0.02)
        self.layers = [(weight((HEADS + 2 * KV_HEADS) * SIZE, WIDTH), weight(WIDTH, WIDTH), weight(INNER, WIDTH), weight(WIDTH, INNER))
                       for _ in range(LAYERS)]
        self.keys = torch.zeros(LAYERS, SLOTS + 1, LENGTH, KV_HEADS, SIZE, device="cuda", dtype=torch.bfloat16)
        self.values = torch.zeros_like(self.keys)
        self.order = torch.arange(LENGTH, device="cuda")
        frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        angles = torch.outer(self.order.float(), frequencies)
        self.cos, self.sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)

    def norm(self, x, i):
        return F.layer_norm(x, (WIDTH,), self.norms[i], self.norm_bias[i])

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def attend(self, q, keys, values, hidden):
        """`q` is ... x KV heads x queries x size, where the heads that share their keys are as many queries."""
        scores = torch.matmul(q, keys.transpose(-1, -2)).float() * SIZE ** -0.5
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1).to(torch.bfloat16)
        return torch.matmul(weights, values)

    def project(self, x, i):
        """Queries, keys and values of each row of `x`."""
        qkv = F.linear(self.norm(x, 2 * i), self.layers[i][0]).view(x.shape[0], HEADS + 2 * KV_HEADS, SIZE)
        return qkv.split([HEADS, KV_HEADS, KV_HEADS], dim=1)

    def mlp(self, x, i):
        return F.linear(F.relu(F.linear(self.norm(x, 2 * i + 1), self.layers[i][2])).square(), self.layers[i][3])

    def prefill(self, ids, slot):
        count = ids.shape[0]
        cos, sin = self.cos[:count, None], self.sin[:count, None]
        hidden = (self.order[None, :count] > self.order[:count, None]).repeat(GROUP, 1)
        x = F.embedding(ids, self.embedding)
        for i in range(LAYERS):
            q, k, v = self.project(x, i)
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
            self.keys[i, slot, :count] = k
            self.values[i, slot, :count] = v
            q = q.view(count, KV_HEADS, GROUP, SIZE).permute(1, 2, 0, 3).reshape(KV_HEADS, GROUP * count, SIZE)
            y = self.attend(q, k.transpose(0, 1), v.transpose(0, 1), hidden)
            y = y.view(KV_HEADS, GROUP, count, SIZE).permute(2, 0, 1, 3).reshape(count, WIDTH)
            x = x + F.linear(y, self.layers[i][1])
            x = x + self.mlp(x, i)
        return F.linear(self.norm(x[-1:], 2 * LAYERS), self.head).argmax(-1)

    def step(self, tokens, positions, slots):
        rows = tokens.shape[0]
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        hidden = (self.order[None] > positions[:, None])[:, None, None]
        x = F.embedding(tokens, self.embedding)
        for i in range(LAYERS):
            q, k, v = self.project(x, i)
            self.keys[i][slots, positions] = self.rotate(k, cos, sin)
            self.values[i][slots, positions] = v
            q = self.rotate(q, cos, sin).view(rows, KV_HEADS, GROUP, SIZE)
            y = self.attend(q, self.keys[i][slots].transpose(1, 2), self.values[i][slots].transpose(1, 2), hidden)
            x = x + F.linear(y.reshape(rows, WIDTH), self.layers[i][1])
            x = x + self.mlp(x, i)
        return F.linear(self.norm(x, 2 * LAYERS), self.head).argmax(-1)


class Request:
    def __init__(self, prompt, outputs):
        self.prompt, self.outputs, self.tokens = prompt, outputs, []

    @property
    def position(self):
        """Where the last token goes, which is not in the cache yet."""
        return len(self.prompt) + len(self.tokens) - 1


class Engine:
    def __init__(self, model, record, mark):
        self.model, self.record, self.mark = model, record, mark
        self.queue, self.running, self.free = collections.deque(), [], list(range(SLOTS))
        self.inputs = torch.zeros(3, SLOTS, device="cuda", dtype=torch.int64)
        self.staging = torch.zeros(3, SLOTS, dtype=torch.int64).pin_memory()
        self.graphs, self.results = {}, {}
        pool = None
        for size in GRAPHS:
            tokens, positions, slots = (row[:size] for row in self.inputs.unbind(0))
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    model.step(tokens, positions, slots)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                self.results[size] = model.step(tokens, positions, slots)
            self.graphs[size] = graph
            pool = graph.pool()

    def submit(self, request):
        request.start = now()
        self.queue.append(request)

    def admit(self, warm_up=False):
        """Prefills one request from the queue."""
        request = self.queue.popleft()
        request.slot = self.free.pop()
        start = now()
        with self.mark("admit"):
            ids = torch.tensor(request.prompt, device="cuda")
            request.tokens.append(self.model.prefill(ids, request.slot).item())
        request.first = request.end = now()
        self.record.step("prefill", start, request.first, len(request.prompt), 1, warm_up)
        self.running.append(request)

    def decode(self, size=None, warm_up=False):
        """One token more for each running sequence, by the smallest graph that holds them (or one of `size`)."""
        count = len(self.running)
        start = now()
        with self.mark("iterate"):
            size = size or min(size for size in GRAPHS if size >= count)
            empty = size - count
            self.staging[:, :size] = torch.tensor([[request.tokens[-1] for request in self.running] + [0] * empty,
                                                   [request.position for request in self.running] + [0] * empty,
                                                   [request.slot for request in self.running] + [SLOTS] * empty])
            self.inputs.copy_(self.staging, non_blocking=True)
            self.graphs[size].replay()
            tokens = self.results[size].tolist()
        end = now()
        self.record.step("decode", start, end, count, count, warm_up)
        for request, token in zip(self.running, tokens):
            assert 0 <= token < VOCABULARY
            request.tokens.append(token)
            request.end = end
        for request in [request for request in self.running if len(request.tokens) >= request.outputs]:
            self.close(request, warm_up)

    def close(self, request, warm_up=False):
        self.running.remove(request)
        self.free.append(request.slot)
        self.record.request(request.start, request.first, request.end, len(request.prompt), len(request.tokens), warm_up)


def arrivals(rng):
    """When requests come, in decode steps: two at once, then one every few steps, in busy spells many more."""
    clock = 0
    yield clock
    while True:
        yield clock
        clock += rng.randint(1, 3) if clock // 40 % 3 == 1 else rng.randint(3, 9)


@torch.no_grad()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    record = Record()

    def new_request(length, outputs):
        return Request([rng.randrange(VOCABULARY) for _ in range(length)], outputs)

    engine = Engine(Model(), record, ranges(args.ranges))
    torch.cuda.synchronize()
    engine.submit(new_request(WARM_UP_PROMPT, 1 + WARM_UP_STEPS * len(GRAPHS)))
    engine.admit(warm_up=True)
    for size in GRAPHS * WARM_UP_STEPS:
        engine.decode(size, warm_up=True)
    assert not engine.running

    plan, clock, done = arrivals(rng), 0, 0
    coming = next(plan)
    while done < args.steps:
        while coming <= clock:
            engine.submit(new_request(rng.randint(20, 360), rng.randint(8, 40)))
            coming = next(plan)
        while engine.queue and engine.free:
            engine.admit()
        if engine.running:
            engine.decode()
            done += 1
        clock += 1
    for request in list(engine.running):
        engine.close(request)
    assert len(engine.free) == SLOTS and torch.isfinite(engine.model.keys).all().item()
    record.finish()


if __name__ == "__main__":
    main()
