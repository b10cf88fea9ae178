"""One captured decode step and a sampler on the host: the likeliest tokens are fetched, mirostat draws, the choice is sent back."""
import math, os, random, sys, time; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 49152, 512, 4
LAYERS, HEADS, KV_HEADS, SIZE, INNER = 32, 32, 8, 64, 6144
WIDTH, GROUP = HEADS * SIZE, HEADS // KV_HEADS
EMBEDDING_SCALE, RESIDUAL_SCALE, ATTENTION_SCALE, LOGITS_SCALE = 12.0, 0.22, 1 / 64, 4.0
CANDIDATES = 64
SURPRISE, RATE = 5.0, 0.1
PROMPTS = (96, 30, 180, 140, 55, 220)
WARM_UP_PROMPT, WARM_UP_STEPS = 24, 3


def weight(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).mul_(columns ** -0.5)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def captured(function):
    """A graph of `function`, which leaves its results in buffers of its own."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph


class Model:
    """In the manner of Granite: grouped heads, SwiGLU, constants on embedding, residual, attention and logits, one matrix for both
    ends; bf16. All sequences of a batch are at one position."""

    def __init__(self):
        self.embedding = weight(VOCABULARY, WIDTH)
        self.norms = torch.ones(2 * LAYERS + 1, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.layers = [(weight((HEADS + 2 * KV_HEADS) * SIZE, WIDTH), weight(WIDTH, WIDTH), weight(2 * INNER, WIDTH), weight(WIDTH, INNER))
                       for _ in range(LAYERS)]
        self.keys = [torch.zeros(BATCH, KV_HEADS, LENGTH, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.order = torch.arange(LENGTH, device="cuda")
        frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        angles = torch.outer(self.order.float(), frequencies)
        self.cos, self.sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
        # What the graph reads and what it leaves.
        self.tokens = torch.zeros(BATCH, device="cuda", dtype=torch.int64)
        self.position = torch.zeros(1, device="cuda", dtype=torch.int64)
        self.logs = torch.zeros(BATCH, CANDIDATES, device="cuda")
        self.ids = torch.zeros(BATCH, CANDIDATES, device="cuda", dtype=torch.int64)
        # Their likes on the host.
        self.host_tokens = torch.zeros(BATCH, dtype=torch.int64).pin_memory()
        self.host_logs = torch.zeros(BATCH, CANDIDATES).pin_memory()
        self.host_ids = torch.zeros(BATCH, CANDIDATES, dtype=torch.int64).pin_memory()
        self.fetched = torch.cuda.Event()

    def norm(self, x, i):
        return F.rms_norm(x, (WIDTH,), self.norms[i])

    def embed(self, ids):
        return F.embedding(ids, self.embedding) * EMBEDDING_SCALE

    def project(self, x, i):
        qkv = F.linear(self.norm(x, 2 * i), self.layers[i][0]).view(*x.shape[:-1], HEADS + 2 * KV_HEADS, SIZE)
        return qkv.split([HEADS, KV_HEADS, KV_HEADS], dim=-2)

    def attend(self, q, keys, values, hidden):
        """`q` is batch x KV heads x queries x size, where the heads that share their keys are as many queries."""
        scores = torch.matmul(q, keys.transpose(-1, -2)).float() * ATTENTION_SCALE
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1).to(torch.bfloat16)
        return torch.matmul(weights, values)

    def finish(self, x, y, i):
        x = x + F.linear(y, self.layers[i][1]) * RESIDUAL_SCALE
        gate, up = F.linear(self.norm(x, 2 * i + 1), self.layers[i][2]).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.layers[i][3]) * RESIDUAL_SCALE

    def candidates(self, x):
        logits = F.linear(self.norm(x, 2 * LAYERS), self.embedding).float() * LOGITS_SCALE
        logs, ids = torch.log_softmax(logits, dim=-1).topk(CANDIDATES, dim=-1)
        self.logs.copy_(logs)
        self.ids.copy_(ids)

    def prefill(self, prompts):
        count = prompts.shape[1]
        cos, sin = self.cos[:count, None], self.sin[:count, None]
        hidden = (self.order[None, :count] > self.order[:count, None]).repeat(GROUP, 1)
        x = self.embed(prompts)
        for i in range(LAYERS):
            q, k, v = self.project(x, i)
            q, k, v = rotate(q, cos, sin), rotate(k, cos, sin).transpose(1, 2), v.transpose(1, 2)
            self.keys[i][:, :, :count] = k
            self.values[i][:, :, :count] = v
            q = q.view(BATCH, count, KV_HEADS, GROUP, SIZE).permute(0, 2, 3, 1, 4).reshape(BATCH, KV_HEADS, GROUP * count, SIZE)
            y = self.attend(q, k, v, hidden).view(BATCH, KV_HEADS, GROUP, count, SIZE)
            x = self.finish(x, y.permute(0, 3, 1, 2, 4).reshape(BATCH, count, WIDTH), i)
        self.candidates(x[:, -1])
        self.position.fill_(count)

    def step(self):
        cos, sin = self.cos[self.position], self.sin[self.position]
        hidden = self.order > self.position
        x = self.embed(self.tokens)
        for i in range(LAYERS):
            q, k, v = self.project(x, i)
            self.keys[i].index_copy_(2, self.position, rotate(k, cos, sin)[:, :, None])
            self.values[i].index_copy_(2, self.position, v[:, :, None])
            q = rotate(q, cos, sin).view(BATCH, KV_HEADS, GROUP, SIZE)
            x = self.finish(x, self.attend(q, self.keys[i], self.values[i], hidden).reshape(BATCH, WIDTH), i)
        self.candidates(x)
        self.position.add_(1)

    def fetch(self):
        """The candidates as lists. The host looks now and then whether they are there."""
        self.host_logs.copy_(self.logs, non_blocking=True)
        self.host_ids.copy_(self.ids, non_blocking=True)
        self.fetched.record()
        while not self.fetched.query():
            time.sleep(20e-6)
        return self.host_logs.tolist(), self.host_ids.tolist()

    def send(self, tokens):
        for row, token in enumerate(tokens):
            self.host_tokens[row] = token
        self.tokens.copy_(self.host_tokens, non_blocking=True)


class Mirostat:
    """Keeps the surprise of one text near to SURPRISE bits by a limit that moves with what was drawn."""

    def __init__(self, rng):
        self.rng, self.limit = rng, 2 * SURPRISE

    def __call__(self, logs, ids):
        surprises = [-value / math.log(2) for value in logs]
        kept = max(1, sum(value <= self.limit for value in surprises))
        i = self.rng.choices(range(kept), weights=[2.0 ** (surprises[0] - value) for value in surprises[:kept]])[0]
        self.limit -= RATE * (surprises[i] - SURPRISE)
        return ids[i]


def serve(model, length, steps, record, mark, rng, warm_up=False):
    prompts = torch.randint(0, VOCABULARY, (BATCH, length))
    samplers = [Mirostat(rng) for _ in range(BATCH)]
    outputs = []

    def pick():
        with mark("fetch"):
            logs, ids = model.fetch()
        with mark("mirostat"):
            outputs.append([sampler(*row) for sampler, row in zip(samplers, zip(logs, ids))])

    start = now()
    with mark("prompt"):
        model.prefill(prompts.cuda())
        pick()
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    for _ in range(steps):
        step = now()
        with mark("launch"):
            model.send(outputs[-1])
            model.graph.replay()
        pick()
        end = now()
        record.step("decode", step, end, BATCH, BATCH, warm_up)
    for _ in range(BATCH):
        record.request(start, first, end, length, 1 + steps, warm_up)
    assert all(0 <= token < VOCABULARY for row in outputs for token in row)
    assert all(math.isfinite(sampler.limit) for sampler in samplers) and model.position.item() == length + steps


@torch.no_grad()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    model.graph = captured(model.step)
    torch.cuda.synchronize()
    with mark("warm the engine"):
        serve(model, WARM_UP_PROMPT, WARM_UP_STEPS, record, mark, rng, warm_up=True)
    for length, steps in zip(PROMPTS, split(args.steps, len(PROMPTS))):
        serve(model, length, steps, record, mark, rng)
    assert torch.isfinite(model.keys[-1]).all().item()
    record.finish()


if __name__ == "__main__":
    main()
