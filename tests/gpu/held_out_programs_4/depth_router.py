"""Mixture of depths: in every second layer the host asks which rows go through the MLP; then it sets each text's temperature.

A step is a whole batch's pass and the choice of its next tokens, from its first call (the upload of the ids) until the log-
probabilities of the tokens are on the host, by the last of some thirteen waits: a `nonzero()` in each routed layer, then three
`.tolist()`, for entropies, tokens and log-probabilities. A request is one sequence of a batch and has the batch's times. With --ranges
a step has one range, "batch's prompt" or "batch's tokens", with two inside, for the model and for drawing.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 50304, 160, 4
LAYERS, HEADS, SIZE, INNER = 20, 20, 96, 5120
WIDTH = HEADS * SIZE
PROMPTS = (84, 80, 90, 76, 86)
WARM_UP_PROMPT, WARM_UP_STEPS = 60, 3


def weight(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).mul_(columns ** -0.5)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Model:
    """Layer norms, as many KV heads as heads, GELU with a gate; layers 1, 3, 5 and so on have a router before the MLP. bf16."""

    def __init__(self):
        self.embedding, self.head = weight(VOCABULARY, WIDTH), weight(VOCABULARY, WIDTH)
        self.norms = torch.ones(2 * LAYERS + 1, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.layers = [(weight(3 * WIDTH, WIDTH), weight(WIDTH, WIDTH), weight(2 * INNER, WIDTH), weight(WIDTH, INNER))
                       for _ in range(LAYERS)]
        self.routers = {i: weight(1, WIDTH) for i in range(1, LAYERS, 2)}
        self.keys = [torch.zeros(BATCH, HEADS, LENGTH, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.order = torch.arange(LENGTH, device="cuda")
        frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        angles = torch.outer(self.order.float(), frequencies)
        self.cos, self.sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)

    def norm(self, x, i):
        return F.layer_norm(x, (WIDTH,), self.norms[i])

    def attend(self, h, i, start, count):
        end = start + count
        cos, sin = self.cos[start:end], self.sin[start:end]
        q, k, v = F.linear(h, self.layers[i][0]).view(BATCH, count, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
        self.keys[i][:, :, start:end] = rotate(k, cos, sin)
        self.values[i][:, :, start:end] = v
        scores = torch.matmul(rotate(q, cos, sin), self.keys[i][:, :, :end].transpose(-1, -2)).float() * SIZE ** -0.5
        if count > 1:
            scores = scores.masked_fill(self.order[None, :end] > self.order[start:end, None], float("-inf"))
        y = torch.matmul(torch.softmax(scores, dim=-1).to(torch.bfloat16), self.values[i][:, :, :end])
        return F.linear(y.transpose(1, 2).reshape(BATCH * count, WIDTH), self.layers[i][1])

    def mlp(self, h, i):
        gate, up = F.linear(h, self.layers[i][2]).chunk(2, dim=-1)
        return F.linear(F.gelu(gate) * up, self.layers[i][3])

    def forward(self, ids, start):
        """Logits behind the last of `ids` (batch x count), in fp32. The rows are those of all texts, one text behind the other."""
        count = ids.shape[1]
        x = F.embedding(ids.reshape(-1), self.embedding)
        for i in range(LAYERS):
            x = x + self.attend(self.norm(x, 2 * i), i, start, count)
            h = self.norm(x, 2 * i + 1)
            if i not in self.routers:
                x = x + self.mlp(h, i)
                continue
            score = F.linear(h, self.routers[i])
            rows = (score[:, 0] > 0).nonzero()[:, 0]
            if rows.numel():
                x = x.index_add(0, rows, self.mlp(h[rows], i) * torch.sigmoid(score[rows]))
        last = x.view(BATCH, count, WIDTH)[:, -1]
        return F.linear(self.norm(last, 2 * LAYERS), self.head).float()


def temperature(entropy):
    """The surer the model is, the cooler the draw."""
    return max(0.3, 0.8 ** (4.0 / max(entropy, 0.1)))


def draw(logits):
    logs = torch.log_softmax(logits, dim=-1)
    entropies = (-(logs.exp() * logs).sum(dim=-1)).tolist()
    temperatures = torch.tensor([temperature(entropy) for entropy in entropies]).cuda()
    drawn = torch.multinomial(torch.softmax(logits / temperatures[:, None], dim=-1), 1)
    tokens = drawn[:, 0].tolist()
    return tokens, logs.gather(1, drawn)[:, 0].tolist()


def serve(model, length, steps, record, mark, warm_up=False):
    prompts = torch.randint(0, VOCABULARY, (BATCH, length))
    tokens, chances = [], []

    def advance(ids, position):
        with mark("model"):
            logits = model.forward(ids.cuda(), position)
        with mark("draw"):
            row, chance = draw(logits)
        tokens.append(row)
        chances.append(chance)

    start = now()
    with mark("batch's prompt"):
        advance(prompts, 0)
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    for i in range(steps):
        step = now()
        with mark("batch's tokens"):
            advance(torch.tensor(tokens[-1])[:, None], length + i)
        end = now()
        record.step("decode", step, end, BATCH, BATCH, warm_up)
    for _ in range(BATCH):
        record.request(start, first, end, length, 1 + steps, warm_up)
    assert all(0 <= token < VOCABULARY for row in tokens for token in row)
    assert all(-1000 < chance < 0.001 for row in chances for chance in row)


@torch.no_grad()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    serve(model, WARM_UP_PROMPT, WARM_UP_STEPS, record, mark, warm_up=True)
    batches = max(5, min(10, args.steps // 6), args.steps // 20)
    for i, steps in enumerate(split(args.steps, batches)):
        serve(model, PROMPTS[i % len(PROMPTS)], steps, record, mark)
    record.finish()


if __name__ == "__main__":
    main()
