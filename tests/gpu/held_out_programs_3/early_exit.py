"""Early exit: behind each of the later layers the host asks whether the hidden state has settled, and leaves the model when it has."""
import bisect, math, os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH = 32000, 640
LAYERS, HEADS, KV_HEADS, SIZE, INNER = 22, 32, 8, 64, 5632
WIDTH, GROUP = HEADS * SIZE, HEADS // KV_HEADS
EARLIEST = 8  # the first layer that may be the last
SETTLED = 0.9  # the share of similarities seen so far that a layer's has to exceed
SIGMAS = 1.5
PROMPTS = (70, 140, 35, 200, 110, 88)
WARM_UP_PROMPT, WARM_UP_STEPS = 24, 2


def weight(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.float16).mul_(columns ** -0.5)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Layer:
    """Norms before and behind attention and MLP, grouped heads, GeGLU."""

    def __init__(self):
        self.norms = torch.ones(4, WIDTH, device="cuda", dtype=torch.float16)
        self.q, self.kv = weight(WIDTH, WIDTH), weight(2 * KV_HEADS * SIZE, WIDTH)
        self.out = weight(WIDTH, WIDTH)
        self.gate, self.up, self.down = weight(INNER, WIDTH), weight(INNER, WIDTH), weight(WIDTH, INNER)
        self.keys = torch.zeros(KV_HEADS, LENGTH, SIZE, device="cuda", dtype=torch.float16)
        self.values = torch.zeros_like(self.keys)

    def norm(self, x, i):
        return F.rms_norm(x, (WIDTH,), self.norms[i])

    def remember(self, h, start, cos, sin):
        """Keys and values of the normed `h` into the cache."""
        end = start + h.shape[0]
        k, v = F.linear(h, self.kv).view(h.shape[0], 2, KV_HEADS, SIZE).unbind(1)
        self.keys[:, start:end] = rotate(k, cos, sin).transpose(0, 1)
        self.values[:, start:end] = v.transpose(0, 1)

    def __call__(self, x, start, cos, sin, hidden):
        count, end = x.shape[0], start + x.shape[0]
        h = self.norm(x, 0)
        self.remember(h, start, cos, sin)
        q = rotate(F.linear(h, self.q).view(count, HEADS, SIZE), cos, sin)
        q = q.view(count, KV_HEADS, GROUP, SIZE).permute(1, 2, 0, 3).reshape(KV_HEADS, GROUP * count, SIZE)
        scores = torch.matmul(q, self.keys[:, :end].transpose(1, 2)).float() * SIZE ** -0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        y = torch.matmul(torch.softmax(scores, dim=-1).to(torch.float16), self.values[:, :end])
        y = y.view(KV_HEADS, GROUP, count, SIZE).permute(2, 0, 1, 3).reshape(count, WIDTH)
        x = x + self.norm(F.linear(y, self.out), 1)
        h = self.norm(x, 2)
        return x + self.norm(F.linear(F.gelu(F.linear(h, self.gate)) * F.linear(h, self.up), self.down), 3)


class Model:
    def __init__(self):
        self.embedding = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.float16)
        self.layers = [Layer() for _ in range(LAYERS)]
        self.norm = torch.ones(WIDTH, device="cuda", dtype=torch.float16)
        self.head = weight(VOCABULARY, WIDTH)
        frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        angles = torch.outer(torch.arange(LENGTH, device="cuda", dtype=torch.float32), frequencies)[:, None]
        self.cos, self.sin = angles.cos().to(torch.float16), angles.sin().to(torch.float16)
        self.seen = [[] for _ in range(LAYERS)]

    def settled(self, i, before, x):
        similarity = F.cosine_similarity(before.float(), x.float(), dim=-1).item()
        assert math.isfinite(similarity)
        seen = self.seen[i]
        rank = bisect.bisect_left(seen, similarity)
        seen.insert(rank, similarity)
        return len(seen) > 4 and rank >= SETTLED * len(seen)

    def draw(self, x):
        """Top-n-sigma sampling: of the tokens whose logit is within some standard deviations of the largest."""
        logits = F.linear(F.rms_norm(x, (WIDTH,), self.norm), self.head).float()
        limit = logits.max() - SIGMAS * logits.std()
        probabilities = torch.softmax(logits.masked_fill(logits < limit, float("-inf")), dim=-1)
        token = torch.multinomial(probabilities, 1).item()
        return token, torch.log(probabilities[token]).item()

    def prefill(self, prompt):
        count = len(prompt)
        order = torch.arange(count, device="cuda")
        hidden = (order[None] > order[:, None]).repeat(GROUP, 1)
        cos, sin = self.cos[:count], self.sin[:count]
        x = F.embedding(torch.tensor(prompt, device="cuda"), self.embedding)
        for layer in self.layers:
            x = layer(x, 0, cos, sin, hidden)
        return self.draw(x[-1])

    def decode(self, token, position, mark):
        cos, sin = self.cos[position:position + 1], self.sin[position:position + 1]
        x = F.embedding(torch.tensor([token], device="cuda"), self.embedding)
        used = LAYERS
        for i, layer in enumerate(self.layers):
            before = x
            x = layer(x, position, cos, sin, None)
            if EARLIEST <= i + 1 < LAYERS:
                with mark("confident?"):
                    if self.settled(i, before, x):
                        used = i + 1
                        break
        # Later tokens look into the caches of all layers, so those left out take the state as it is.
        for layer in self.layers[used:]:
            layer.remember(layer.norm(x, 0), position, cos, sin)
        with mark("lm_head"):
            return *self.draw(x[-1]), used


def complete(model, prompt, steps, record, mark, warm_up=False):
    start = now()
    with mark("prefill"):
        token, log = model.prefill(prompt)
    first = end = now()
    record.step("prefill", start, first, len(prompt), 1, warm_up)
    tokens, logs, depths = [token], [log], []
    for i in range(steps):
        step = now()
        with mark("decode"):
            token, log, used = model.decode(token, len(prompt) + i, mark)
        end = now()
        record.step("decode", step, end, 1, 1, warm_up)
        tokens.append(token)
        logs.append(log)
        depths.append(used)
    record.request(start, first, end, len(prompt), 1 + steps, warm_up)
    assert all(0 <= token < VOCABULARY for token in tokens) and all(math.isfinite(log) for log in logs)
    assert all(EARLIEST <= used <= LAYERS for used in depths)


@torch.inference_mode()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    complete(model, torch.randint(0, VOCABULARY, (WARM_UP_PROMPT,)).tolist(), WARM_UP_STEPS, record, mark, warm_up=True)
    for length, steps in zip(PROMPTS, split(args.steps, len(PROMPTS))):
        complete(model, torch.randint(0, VOCABULARY, (length,)).tolist(), steps, record, mark)
    assert all(torch.isfinite(layer.keys).all().item() for layer in model.layers)
    record.finish()


if __name__ == "__main__":
    main()
