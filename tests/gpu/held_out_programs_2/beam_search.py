"""Beam search over an OPT-like model: two texts of four beams, the cache put into the order of the surviving beams at each step."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH = 50272, 512
LAYERS, HEADS, SIZE, INNER = 24, 32, 64, 8192
WIDTH = HEADS * SIZE
TEXTS, BEAMS = 2, 4
LENGTH_PENALTY = 0.8
PROMPTS = (100, 37, 180, 64, 230, 125)


class Layer:
    def __init__(self):
        def weight(rows, columns):
            return torch.randn(rows, columns, device="cuda", dtype=torch.float16).mul_(columns ** -0.5)

        def vector(size, value=0.0):
            return torch.full((size,), value, device="cuda", dtype=torch.float16)

        self.norm_1, self.norm_1_bias = vector(WIDTH, 1.0), vector(WIDTH)
        self.norm_2, self.norm_2_bias = vector(WIDTH, 1.0), vector(WIDTH)
        self.qkv, self.qkv_bias = weight(3 * WIDTH, WIDTH), vector(3 * WIDTH)
        self.out, self.out_bias = weight(WIDTH, WIDTH), vector(WIDTH)
        self.up, self.up_bias = weight(INNER, WIDTH), vector(INNER)
        self.down, self.down_bias = weight(WIDTH, INNER), vector(WIDTH)


class Model:
    """Learned positions, norms before, biases, ReLU, the embedding used for the logits again; fp16."""

    def __init__(self):
        self.embedding = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.float16).mul_(0.05)
        self.positions = torch.randn(LENGTH, WIDTH, device="cuda", dtype=torch.float16).mul_(0.05)
        self.layers = [Layer() for _ in range(LAYERS)]
        self.norm = torch.ones(WIDTH, device="cuda", dtype=torch.float16)
        self.norm_bias = torch.zeros(WIDTH, device="cuda", dtype=torch.float16)

    def __call__(self, ids, cache):
        """Log-probabilities after the last of `ids` (rows x count), and the cache with theirs at its end."""
        rows, count = ids.shape
        past = cache[0][0].shape[2] if cache else 0
        x = F.embedding(ids, self.embedding) + self.positions[past:past + count]
        hidden = torch.ones(count, count, device="cuda", dtype=torch.bool).triu(1) if count > 1 else None
        longer = []
        for i, layer in enumerate(self.layers):
            h = F.layer_norm(x, (WIDTH,), layer.norm_1, layer.norm_1_bias)
            qkv = F.linear(h, layer.qkv, layer.qkv_bias).view(rows, count, 3, HEADS, SIZE)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            if cache:
                k, v = torch.cat([cache[i][0], k], dim=2), torch.cat([cache[i][1], v], dim=2)
            longer.append((k, v))
            scores = torch.matmul(q * SIZE ** -0.5, k.transpose(-1, -2))
            if hidden is not None:
                scores = scores.masked_fill(hidden, float("-inf"))
            weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(torch.float16)
            y = torch.matmul(weights, v).transpose(1, 2).reshape(rows, count, WIDTH)
            x = x + F.linear(y, layer.out, layer.out_bias)
            h = F.layer_norm(x, (WIDTH,), layer.norm_2, layer.norm_2_bias)
            x = x + F.linear(F.relu(F.linear(h, layer.up, layer.up_bias)), layer.down, layer.down_bias)
        x = F.layer_norm(x[:, -1], (WIDTH,), self.norm, self.norm_bias)
        return torch.log_softmax(F.linear(x, self.embedding).float(), dim=-1), longer


class Beams:
    """The host's book of what the beams of each text have said."""

    def __init__(self, tokens):
        self.said = [[[token] for token in row] for row in tokens]

    def extend(self, parents, tokens):
        self.said = [[said[parent] + [token] for parent, token in zip(row_parents, row_tokens)]
                     for said, row_parents, row_tokens in zip(self.said, parents, tokens)]

    def best(self, scores):
        chosen = []
        for said, row in zip(self.said, scores):
            ranked = sorted(range(BEAMS), key=lambda beam: row[beam] / len(said[beam]) ** LENGTH_PENALTY, reverse=True)
            chosen.append(said[ranked[0]])
        return chosen


@torch.inference_mode()
def search(model, offsets, length, steps, record, mark, cold):
    prompts = torch.randint(0, VOCABULARY, (TEXTS, length)).tolist()
    start = now()
    with mark("prompt forward"):
        logprobs, cache = model(torch.tensor(prompts, device="cuda"), None)
        scores, tokens = logprobs.topk(BEAMS, dim=-1)
        cache = [(k.repeat_interleave(BEAMS, dim=0), v.repeat_interleave(BEAMS, dim=0)) for k, v in cache]
        beams = Beams(tokens.tolist())
    first = end = now()
    record.step("prefill", start, first, TEXTS * length, TEXTS, cold)
    for i in range(steps):
        step = now()
        with mark("beam step"):
            with mark("forward"):
                logprobs, cache = model(tokens.view(-1, 1), cache)
            with mark("select"):
                totals = scores[:, :, None] + logprobs.view(TEXTS, BEAMS, VOCABULARY)
                scores, flat = totals.view(TEXTS, BEAMS * VOCABULARY).topk(BEAMS, dim=-1)
                parents, tokens = flat // VOCABULARY, flat % VOCABULARY
            with mark("reorder"):
                rows = (parents + offsets).view(-1)
                cache = [(k.index_select(0, rows), v.index_select(0, rows)) for k, v in cache]
                beams.extend(parents.tolist(), tokens.tolist())
        end = now()
        record.step("decode", step, end, TEXTS, TEXTS, cold and i == 0)
    for _ in range(TEXTS):
        record.request(start, first, end, length, 1 + steps, cold)
    texts = beams.best(scores.tolist())
    assert all(len(text) == 1 + steps and all(0 <= token < VOCABULARY for token in text) for text in texts)
    assert torch.isfinite(scores).all().item() and cache[0][0].shape == (TEXTS * BEAMS, HEADS, length + steps, SIZE)


def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    offsets = torch.arange(TEXTS, device="cuda")[:, None] * BEAMS
    for i, (length, steps) in enumerate(zip(PROMPTS, split(args.steps, len(PROMPTS)))):
        search(model, offsets, length, steps, record, mark, cold=i == 0)
    record.finish()


if __name__ == "__main__":
    main()
