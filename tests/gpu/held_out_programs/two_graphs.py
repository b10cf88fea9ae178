"""An engine with a CUDA graph for batches of four and one for batches of eight, used in turns, each replay waited for by an event."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH = 32000, 512
LAYERS, HEADS, SIZE, INNER = 30, 16, 128, 8192
WIDTH = HEADS * SIZE
BATCHES = (4, 8)
SPELLS = 6
PROMPTS = (64, 120, 40, 64, 160, 40)
WARM_UP_PROMPT, WARM_UP_STEPS = 64, 3


class Model:
    """Attention and MLP side by side on one norm, and one key and value head for all query heads."""

    def __init__(self):
        def weight(rows, columns):
            return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).mul_(columns ** -0.5)

        self.embedding = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.head = weight(VOCABULARY, WIDTH)
        self.norms = torch.ones(LAYERS + 1, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.layers = [(weight(WIDTH + 2 * SIZE, WIDTH), weight(WIDTH, WIDTH), weight(INNER, WIDTH), weight(WIDTH, INNER))
                       for _ in range(LAYERS)]
        self.order = torch.arange(LENGTH, device="cuda")
        self.frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)

    def angles(self, positions):
        angles = positions[..., None].float() * self.frequencies
        return torch.cos(angles), torch.sin(angles)

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(torch.bfloat16)

    def choose(self, x):
        return F.linear(F.rms_norm(x, (WIDTH,), self.norms[LAYERS]), self.head).argmax(-1)

    def prefill(self, lane, prompts):
        """`prompts` is batch x length; fills the lane and leaves the first tokens in it."""
        batch, length = prompts.shape
        cos, sin = self.angles(self.order[:length])
        hidden = self.order[None, :length] > self.order[:length, None]
        x = F.embedding(prompts, self.embedding)
        for i, (qkv, out, up, down) in enumerate(self.layers):
            h = F.rms_norm(x, (WIDTH,), self.norms[i])
            q, k, v = F.linear(h, qkv).split([WIDTH, SIZE, SIZE], dim=-1)
            q = self.rotate(q.view(batch, length, HEADS, SIZE).transpose(1, 2), cos, sin)
            k = self.rotate(k, cos, sin)
            lane.keys[i][:, :length] = k
            lane.values[i][:, :length] = v
            scores = torch.matmul(q, k[:, None].transpose(-1, -2)).float() * SIZE ** -0.5
            weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1).to(torch.bfloat16)
            y = torch.matmul(weights, v[:, None]).transpose(1, 2).reshape(batch, length, WIDTH)
            x = x + F.linear(y, out) + F.linear(F.gelu(F.linear(h, up)), down)
        lane.tokens.copy_(self.choose(x[:, -1]))
        lane.positions.fill_(length)

    def step(self, lane):
        """One token more for each sequence of the lane, all on the GPU."""
        cos, sin = self.angles(lane.positions)
        visible = (self.order[None, :] <= lane.positions[:, None])[:, None, None, :]
        x = F.embedding(lane.tokens, self.embedding)
        for i, (qkv, out, up, down) in enumerate(self.layers):
            h = F.rms_norm(x, (WIDTH,), self.norms[i])
            q, k, v = F.linear(h, qkv).split([WIDTH, SIZE, SIZE], dim=-1)
            q = self.rotate(q.view(lane.batch, HEADS, SIZE), cos[:, None], sin[:, None])
            lane.keys[i][lane.rows, lane.positions] = self.rotate(k, cos, sin)
            lane.values[i][lane.rows, lane.positions] = v
            # The query heads share their keys, so they are as many queries of one head.
            y = F.scaled_dot_product_attention(q[:, None], lane.keys[i][:, None], lane.values[i][:, None], attn_mask=visible)
            x = x + F.linear(y.reshape(lane.batch, WIDTH), out) + F.linear(F.gelu(F.linear(h, up)), down)
        lane.tokens.copy_(self.choose(x))
        lane.positions.add_(1)


class Lane:
    """The buffers of one batch size, and its graph."""

    def __init__(self, model, batch):
        self.batch = batch
        self.tokens = torch.zeros(batch, device="cuda", dtype=torch.int64)
        self.positions = torch.zeros(batch, device="cuda", dtype=torch.int64)
        self.rows = torch.arange(batch, device="cuda")
        self.keys = [torch.zeros(batch, LENGTH, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.host = torch.zeros(batch, dtype=torch.int64).pin_memory()
        self.event = torch.cuda.Event()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model.step(self)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            model.step(self)

    def fetch(self):
        self.host.copy_(self.tokens, non_blocking=True)
        self.event.record()
        self.event.synchronize()
        values = self.host.tolist()
        assert all(0 <= value < VOCABULARY for value in values)
        return values


def spell(model, lane, length, steps, record, mark, warm_up=False):
    prompts = torch.randint(0, VOCABULARY, (lane.batch, length))
    start = now()
    with mark("ctx"):
        model.prefill(lane, prompts.cuda())
        lane.fetch()
    first = end = now()
    record.step("prefill", start, first, lane.batch * length, lane.batch, warm_up)
    for _ in range(steps):
        step = now()
        with mark(f"gen bs={lane.batch}"):
            lane.graph.replay()
            lane.fetch()
        end = now()
        record.step("decode", step, end, lane.batch, lane.batch, warm_up)
    for _ in range(lane.batch):
        record.request(start, first, end, length, 1 + steps, warm_up)
    assert lane.positions.tolist() == [length + steps] * lane.batch


@torch.no_grad()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    lanes = [Lane(model, batch) for batch in BATCHES]
    torch.cuda.synchronize()
    for lane in lanes:
        spell(model, lane, WARM_UP_PROMPT, WARM_UP_STEPS, record, mark, warm_up=True)
    for i, steps in enumerate(split(args.steps, SPELLS)):
        spell(model, lanes[i % len(lanes)], PROMPTS[i], steps, record, mark)
    assert all(torch.isfinite(lane.keys[-1]).all().item() for lane in lanes)
    record.finish()


if __name__ == "__main__":
    main()
