"""Each batch has caches of its own, so its decode step is captured anew: eager prefill, capture, replays.

A step is a whole batch's pass, from its first call (a prefill's upload, a decode step's replay) until its tokens, copied to pinned
memory behind it, are there, for which the host waits by an event. The capture between a batch's prefill and its first decode step is
in no step. A request is one sequence of a batch and has the batch's times, so the capture lies between its first token and its end.
With --ranges there is one range each for prefill, capture and decode step, none inside, and one around the whole warm-up.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 32000, 160, 6
LAYERS, HEADS, KV_HEADS, SIZE, INNER = 20, 16, 4, 128, 6144
WIDTH, GROUP = HEADS * SIZE, HEADS // KV_HEADS
STREAMS = 4  # the residual's
PROMPTS = (96, 104, 92, 100, 88)
WARM_UP_PROMPT, WARM_UP_STEPS = 96, 4


def weight(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).mul_(columns ** -0.5)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Batch:
    """What belongs to one batch: its caches, its tokens and where it stands."""

    def __init__(self):
        self.keys = [torch.zeros(BATCH, KV_HEADS, LENGTH, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.tokens = torch.zeros(BATCH, device="cuda", dtype=torch.int64)
        self.position = torch.zeros(1, device="cuda", dtype=torch.int64)


class Model:
    """Grouped heads and SwiGLU, with hyper-connections: the residual is four streams, which each sublayer reads as one, mixes, and is
    added to with a weight for each stream that depends on its input. bf16."""

    def __init__(self):
        self.embedding = weight(VOCABULARY, WIDTH)
        self.norms = torch.ones(2 * LAYERS + 1, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.layers = [(weight((HEADS + 2 * KV_HEADS) * SIZE, WIDTH), weight(WIDTH, WIDTH), weight(2 * INNER, WIDTH), weight(WIDTH, INNER))
                       for _ in range(LAYERS)]
        # One row makes the sublayer's input of the streams, the others the new streams.
        mixing = torch.cat([torch.full((1, STREAMS), 1 / STREAMS, device="cuda"), torch.eye(STREAMS, device="cuda")])
        self.mixing = [(mixing + 0.02 * torch.randn(1 + STREAMS, STREAMS, device="cuda")).to(torch.bfloat16) for _ in range(2 * LAYERS)]
        self.spreading = [weight(STREAMS, WIDTH) for _ in range(2 * LAYERS)]
        self.order = torch.arange(LENGTH, device="cuda")
        frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        angles = torch.outer(self.order.float(), frequencies)
        self.cos, self.sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
        self.host_tokens = torch.zeros(BATCH, dtype=torch.int64).pin_memory()
        self.fetched = torch.cuda.Event()

    def gather(self, streams, i):
        """A sublayer's input and the mixed streams."""
        mixed = torch.matmul(self.mixing[i].expand(*streams.shape[:-2], 1 + STREAMS, STREAMS), streams)
        return F.rms_norm(mixed[..., 0, :], (WIDTH,), self.norms[i]), mixed[..., 1:, :]

    def spread(self, streams, h, y, i):
        shares = 1 + 0.1 * torch.tanh(F.linear(h, self.spreading[i]))
        return streams + shares[..., None] * y[..., None, :]

    def embed(self, ids):
        return F.embedding(ids, self.embedding)[..., None, :].expand(*ids.shape, STREAMS, WIDTH)

    def project(self, h, i):
        qkv = F.linear(h, self.layers[i][0]).view(*h.shape[:-1], HEADS + 2 * KV_HEADS, SIZE)
        return qkv.split([HEADS, KV_HEADS, KV_HEADS], dim=-2)

    def attend(self, q, keys, values, hidden):
        """`q` is batch x KV heads x queries x size, where the heads that share their keys are as many queries."""
        scores = torch.matmul(q, keys.transpose(-1, -2)).float() * SIZE ** -0.5
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1).to(torch.bfloat16)
        return torch.matmul(weights, values)

    def finish(self, streams, h, y, i):
        """What comes behind attention in a layer."""
        streams = self.spread(streams, h, F.linear(y, self.layers[i][1]), 2 * i)
        h, streams = self.gather(streams, 2 * i + 1)
        gate, up = F.linear(h, self.layers[i][2]).chunk(2, dim=-1)
        return self.spread(streams, h, F.linear(F.silu(gate) * up, self.layers[i][3]), 2 * i + 1)

    def choose(self, streams):
        x = F.rms_norm(streams.sum(dim=-2), (WIDTH,), self.norms[2 * LAYERS])
        return F.linear(x, self.embedding).argmax(dim=-1)

    def prefill(self, batch, prompts):
        count = prompts.shape[1]
        cos, sin = self.cos[:count, None], self.sin[:count, None]
        hidden = (self.order[None, :count] > self.order[:count, None]).repeat(GROUP, 1)
        streams = self.embed(prompts)
        for i in range(LAYERS):
            h, streams = self.gather(streams, 2 * i)
            q, k, v = self.project(h, i)
            q, k, v = rotate(q, cos, sin), rotate(k, cos, sin).transpose(1, 2), v.transpose(1, 2)
            batch.keys[i][:, :, :count] = k
            batch.values[i][:, :, :count] = v
            q = q.view(BATCH, count, KV_HEADS, GROUP, SIZE).permute(0, 2, 3, 1, 4).reshape(BATCH, KV_HEADS, GROUP * count, SIZE)
            y = self.attend(q, k, v, hidden).view(BATCH, KV_HEADS, GROUP, count, SIZE)
            streams = self.finish(streams, h, y.permute(0, 3, 1, 2, 4).reshape(BATCH, count, WIDTH), i)
        batch.tokens.copy_(self.choose(streams[:, -1]))
        batch.position.fill_(count)

    def decode(self, batch):
        """What is captured."""
        cos, sin = self.cos[batch.position], self.sin[batch.position]
        hidden = self.order > batch.position
        streams = self.embed(batch.tokens)
        for i in range(LAYERS):
            h, streams = self.gather(streams, 2 * i)
            q, k, v = self.project(h, i)
            batch.keys[i].index_copy_(2, batch.position, rotate(k, cos, sin)[:, :, None])
            batch.values[i].index_copy_(2, batch.position, v[:, :, None])
            q = rotate(q, cos, sin).view(BATCH, KV_HEADS, GROUP, SIZE)
            y = self.attend(q, batch.keys[i], batch.values[i], hidden).reshape(BATCH, WIDTH)
            streams = self.finish(streams, h, y, i)
        batch.tokens.copy_(self.choose(streams))
        batch.position.add_(1)

    def fetch(self, batch):
        self.host_tokens.copy_(batch.tokens, non_blocking=True)
        self.fetched.record()
        self.fetched.synchronize()
        return self.host_tokens.tolist()


def serve(model, side, length, steps, record, mark, warm_up=False):
    batch = Batch()
    prompts = torch.randint(0, VOCABULARY, (BATCH, length))
    torch.cuda.synchronize()
    start = now()
    with mark("prefill"):
        model.prefill(batch, prompts.cuda())
        outputs = [model.fetch(batch)]
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    with mark("capture"):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            model.decode(batch)
    for _ in range(steps):
        step = now()
        with mark("decode"):
            graph.replay()
            outputs.append(model.fetch(batch))
        end = now()
        record.step("decode", step, end, BATCH, BATCH, warm_up)
    for _ in range(BATCH):
        record.request(start, first, end, length, 1 + steps, warm_up)
    assert all(0 <= token < VOCABULARY for row in outputs for token in row)
    assert batch.position.item() == length + steps and torch.isfinite(batch.values[-1]).all().item()


@torch.no_grad()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    side = torch.cuda.Stream()
    with mark("warm-up"):
        # Three eager steps on the stream that captures, so that nothing is set up or loaded within a capture.
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            spare = Batch()
            for _ in range(3):
                model.decode(spare)
        torch.cuda.synchronize()
        del spare
        serve(model, side, WARM_UP_PROMPT, WARM_UP_STEPS, record, mark, warm_up=True)
    batches = max(5, min(10, args.steps // 6), args.steps // 20)
    for i, steps in enumerate(split(args.steps, batches)):
        serve(model, side, PROMPTS[i % len(PROMPTS)], steps, record, mark)
    record.finish()


if __name__ == "__main__":
    main()
