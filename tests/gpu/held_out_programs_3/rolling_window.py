"""Long texts through a rolling cache: sliding-window attention with sinks, the prompt in blocks, a few words of answer."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY = 32000
LAYERS, HEADS, KV_HEADS, SIZE, INNER = 26, 16, 4, 128, 7168
WIDTH, GROUP = HEADS * SIZE, HEADS // KV_HEADS
WINDOW, BLOCK = 1024, 512
TEMPERATURE, MASS = 0.9, 0.9
PROMPTS = (5200, 3100, 8000, 2400, 6500, 4096)


def weight(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).mul_(columns ** -0.5)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Layer:
    def __init__(self):
        self.norm_1 = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.norm_2 = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.qkv = weight((HEADS + 2 * KV_HEADS) * SIZE, WIDTH)
        self.out = weight(WIDTH, WIDTH)
        self.gate_up = weight(2 * INNER, WIDTH)
        self.down = weight(WIDTH, INNER)
        # A score for each head that every query has besides those of its keys, and that takes its share of the softmax.
        self.sinks = torch.randn(KV_HEADS, GROUP, 1, 1, device="cuda")
        # Position p is at place p % WINDOW.
        self.keys = torch.zeros(WINDOW, KV_HEADS, SIZE, device="cuda", dtype=torch.bfloat16)
        self.values = torch.zeros_like(self.keys)

    def attend(self, q, keys, values, hidden):
        """`q` is queries x heads x size, `keys` and `values` places x KV heads x size, `hidden` queries x places or None."""
        count, places = q.shape[0], keys.shape[0]
        q = q.view(count, KV_HEADS, GROUP, SIZE).permute(1, 2, 0, 3).reshape(KV_HEADS, GROUP * count, SIZE)
        scores = torch.matmul(q, keys.permute(1, 2, 0)).float().view(KV_HEADS, GROUP, count, places) * SIZE ** -0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        scores = torch.cat([scores, self.sinks.expand(KV_HEADS, GROUP, count, 1)], dim=-1)
        weights = torch.softmax(scores, dim=-1)[..., :places].to(torch.bfloat16).reshape(KV_HEADS, GROUP * count, places)
        y = torch.matmul(weights, values.transpose(0, 1))
        return y.view(KV_HEADS, GROUP, count, SIZE).permute(2, 0, 1, 3).reshape(count, WIDTH)

    def __call__(self, x, cos, sin, slots, hidden):
        count = x.shape[0]
        qkv = F.linear(F.rms_norm(x, (WIDTH,), self.norm_1), self.qkv).view(count, HEADS + 2 * KV_HEADS, SIZE)
        q, k, v = qkv.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if hidden is None:
            self.keys.index_copy_(0, slots, k)
            self.values.index_copy_(0, slots, v)
            y = self.attend(q, self.keys, self.values, None)
        else:
            # The block may overwrite what its first queries still see, so it is written afterwards.
            y = self.attend(q, torch.cat([self.keys, k]), torch.cat([self.values, v]), hidden)
            self.keys.index_copy_(0, slots, k)
            self.values.index_copy_(0, slots, v)
        x = x + F.linear(y, self.out)
        gate, up = F.linear(F.rms_norm(x, (WIDTH,), self.norm_2), self.gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.down)


class Model:
    def __init__(self):
        self.embedding = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.layers = [Layer() for _ in range(LAYERS)]
        self.norm = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.head = weight(VOCABULARY, WIDTH)
        self.order = torch.arange(WINDOW, device="cuda")
        self.frequencies = 1000000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        self.answer = torch.zeros(1, dtype=torch.int64).pin_memory()

    def forward(self, ids, start):
        """Takes in `ids` from position `start` on and returns the last one's hidden state."""
        count = ids.shape[0]
        positions = torch.arange(start, start + count, device="cuda")
        angles = positions[:, None, None].float() * self.frequencies
        cos, sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
        hidden = None
        if count > 1 or start < WINDOW:
            held = start - 1 - torch.remainder(start - 1 - self.order, WINDOW)
            there = torch.cat([held, positions])[None]
            hidden = (there < 0) | (there > positions[:, None]) | (there <= positions[:, None] - WINDOW)
        x = F.embedding(ids, self.embedding)
        for layer in self.layers:
            x = layer(x, cos, sin, positions % WINDOW, hidden)
        return x[-1]

    def draw(self, x):
        """Locally typical sampling: of the tokens whose surprise is nearest to the mean one, as many as hold most of the mass."""
        logits = F.linear(F.rms_norm(x, (WIDTH,), self.norm), self.head).float() / TEMPERATURE
        logs = torch.log_softmax(logits, dim=-1)
        probabilities = logs.exp()
        mean = -(probabilities * logs).sum()
        order = torch.argsort((logs + mean).abs())
        sorted_ = probabilities[order]
        kept = sorted_.masked_fill(sorted_.cumsum(0) - sorted_ >= MASS, 0.0)
        token = order[torch.multinomial(kept, 1)]
        self.answer.copy_(token, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return token, int(self.answer[0])

    def read(self, text):
        ids = torch.tensor(text, device="cuda")
        for start in range(0, len(text), BLOCK):
            x = self.forward(ids[start:start + BLOCK], start)
        return self.draw(x)


def answer(model, text, steps, record, mark, cold):
    start = now()
    with mark("read document"):
        token, value = model.read(text)
    first = end = now()
    record.step("prefill", start, first, len(text), 1, cold)
    values = [value]
    for i in range(steps):
        step = now()
        with mark("next word"):
            token, value = model.draw(model.forward(token, len(text) + i))
        end = now()
        record.step("decode", step, end, 1, 1, cold and i == 0)
        values.append(value)
    record.request(start, first, end, len(text), 1 + steps, cold)
    assert all(0 <= value < VOCABULARY for value in values)


@torch.inference_mode()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    texts = [torch.randint(0, VOCABULARY, (length,)).tolist() for length in PROMPTS]
    for i, steps in enumerate(split(args.steps, len(texts))):
        answer(model, texts[i], steps, record, mark, cold=i == 0)
    assert torch.isfinite(model.layers[-1].keys).all().item()
    record.finish()


if __name__ == "__main__":
    main()
