"""Best of four: one prompt, four answers side by side, the likeliest is kept; the prompt's pass is a CUDA graph, too.

A step is one replay, from the first upload before it until the host has the tokens: a prefill step takes in the
prompt, padded to 64, 128 or 256 places, and draws the four first tokens, a decode step draws one more for each
answer. A request is one prompt. With --ranges the captures, the warm-up and each request have a range; inside a
request "prompt" (with its padded length) and each "token" have one.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
import random

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, ANSWERS, SIZES = 32000, 320, 4, (64, 128, 256)
WIDTH, INNER, LAYERS, HEADS, KV_HEADS, SIZE = 2048, 7168, 18, 16, 8, 128
GROUP, TOP, TEMPERATURE = HEADS // KV_HEADS, 50, 0.8
MADE = dict(device="cuda", dtype=torch.bfloat16)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def spread(x):
    """Each key and value head as often as it has query heads."""
    batch, _, count, _ = x.shape
    return x[:, :, None].expand(-1, -1, GROUP, -1, -1).reshape(batch, HEADS, count, SIZE)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH, 1e-6, **MADE), nn.RMSNorm(WIDTH, 1e-6, **MADE)
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * SIZE, bias=False, **MADE)
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False, **MADE)
        self.gate_up = nn.Linear(WIDTH, 2 * INNER, bias=False, **MADE)
        self.down = nn.Linear(INNER, WIDTH, bias=False, **MADE)
        self.keys = torch.zeros(ANSWERS, KV_HEADS, LENGTH, SIZE, **MADE)
        self.values = torch.zeros_like(self.keys)

    def projected(self, x, cos, sin):
        batch, count, _ = x.shape
        heads = self.qkv(self.before(x)).view(batch, count, HEADS + 2 * KV_HEADS, SIZE).transpose(1, 2)
        q, k, v = heads.split((HEADS, KV_HEADS, KV_HEADS), 1)
        return turned(q, cos, sin), turned(k, cos, sin), v

    def finished(self, x, heads):
        x = x + self.out(heads)
        gate, up = self.gate_up(self.between(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def read(self, x, cos, sin):
        """The prompt, as one row; its keys and values go to all four rows of the cache."""
        _, count, _ = x.shape
        q, k, v = self.projected(x, cos, sin)
        self.keys[:, :, :count] = k
        self.values[:, :, :count] = v
        heads = F.scaled_dot_product_attention(q, spread(k), spread(v), is_causal=True)
        return self.finished(x, heads.transpose(1, 2).reshape(1, count, HEADS * SIZE))

    def go_on(self, x, place, cos, sin, later):
        q, k, v = self.projected(x, cos, sin)
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v)
        scores = (q.reshape(ANSWERS, KV_HEADS, GROUP, SIZE) @ self.keys.transpose(2, 3)).float() * SIZE ** -0.5
        weights = scores.masked_fill(later, -math.inf).softmax(-1).to(torch.bfloat16)
        return self.finished(x, (weights @ self.values).reshape(ANSWERS, 1, HEADS * SIZE))


class Engine(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.last_norm, self.head = nn.RMSNorm(WIDTH, 1e-6, **MADE), nn.Linear(WIDTH, VOCABULARY, bias=False, **MADE)
        speeds = 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE)
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(), speeds)
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)
        self.columns = torch.arange(LENGTH, device="cuda")
        # What the graphs read and write, and its places on the host.
        self.ids = {size: torch.zeros(1, size, dtype=torch.long, device="cuda") for size in SIZES}
        self.end = torch.zeros(1, dtype=torch.long, device="cuda")
        self.place = torch.zeros(1, dtype=torch.long, device="cuda")
        self.tokens = torch.zeros(ANSWERS, 1, dtype=torch.long, device="cuda")
        self.scores = torch.zeros(ANSWERS, 1, device="cuda")
        self.host_ids = torch.zeros(1, max(SIZES), dtype=torch.long).pin_memory()
        self.host_end = torch.zeros(1, dtype=torch.long).pin_memory()
        self.host_tokens = torch.zeros(ANSWERS, 1, dtype=torch.long).pin_memory()
        self.host_scores = torch.zeros(ANSWERS, 1).pin_memory()

    def draw(self, logits):
        """Draws a token for each answer and adds its log-probability to the answer's."""
        values, places = logits.float().topk(TOP, -1)
        chances = (values / TEMPERATURE).softmax(-1)
        chosen = (chances / torch.empty_like(chances).exponential_()).argmax(-1, keepdim=True)
        self.tokens.copy_(places.gather(-1, chosen))
        self.scores.add_(chances.gather(-1, chosen).log())

    def read(self, size):
        x, cos, sin = self.embedding(self.ids[size]), self.cos[:size], self.sin[:size]
        for layer in self.layers:
            x = layer.read(x, cos, sin)
        self.scores.zero_()
        self.draw(self.head(self.last_norm(x.index_select(1, self.end)[:, 0])).repeat(ANSWERS, 1))
        self.place.copy_(self.end + 1)

    def go_on(self):
        x = self.embedding(self.tokens)
        cos, sin = self.cos.index_select(0, self.place), self.sin.index_select(0, self.place)
        later = self.columns > self.place
        for layer in self.layers:
            x = layer.go_on(x, self.place, cos, sin, later)
        self.draw(self.head(self.last_norm(x[:, 0])))
        self.place.add_(1)

    def capture(self, work, pool):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                work()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            work()
        return graph

    def prepare(self, mark):
        pool, self.reading = torch.cuda.graph_pool_handle(), {}
        for size in reversed(SIZES):
            with mark(f"capture prompt {size}"):
                self.reading[size] = self.capture(lambda: self.read(size), pool)
        with mark("capture token"):
            self.writing = self.capture(self.go_on, pool)

    def upload(self, prompt, size):
        self.host_ids[0, :len(prompt)] = torch.tensor(prompt)  # behind it is what earlier prompts left there
        self.host_end[0] = len(prompt) - 1
        self.ids[size].copy_(self.host_ids[:, :size], non_blocking=True)
        self.end.copy_(self.host_end, non_blocking=True)

    def fetch(self):
        self.host_tokens.copy_(self.tokens, non_blocking=True)
        self.host_scores.copy_(self.scores, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return self.host_tokens[:, 0].tolist(), self.host_scores[:, 0].tolist()


def answer(record, mark, engine, prompt, steps, warm_up=False):
    size = next(size for size in SIZES if len(prompt) <= size)
    texts = [[] for _ in range(ANSWERS)]
    with mark("request"):
        start = now()
        with mark(f"prompt {size}"):
            engine.upload(prompt, size)
            engine.reading[size].replay()
            tokens, scores = engine.fetch()
        first = end = now()
        record.step("prefill", start, first, len(prompt), 1, warm_up)
        for text, token in zip(texts, tokens):
            text.append(token)
        for _ in range(steps):
            begin = now()
            with mark("token"):
                engine.writing.replay()
                tokens, scores = engine.fetch()
            end = now()
            record.step("decode", begin, end, 1, 1, warm_up)
            for text, token in zip(texts, tokens):
                text.append(token)
    kept = texts[scores.index(max(scores))]
    record.request(start, first, end, len(prompt), len(kept), warm_up)
    assert all(math.isfinite(score) for score in scores)
    assert all(0 <= token < VOCABULARY for text in texts for token in text)


def words(chance, fewest, most):
    return [chance.randrange(VOCABULARY) for _ in range(chance.randint(fewest, most))]


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    chance, mark, record = random.Random(options.seed), ranges(options.ranges), Record()
    engine = Engine().eval()
    engine.prepare(mark)
    torch.cuda.synchronize()
    with mark("warm-up"):
        for size in SIZES:
            answer(record, mark, engine, words(chance, size - 20, size), 2, warm_up=True)
    lengths = ((20, 64), (65, 128), (129, 256))
    for steps in split(options.steps, max(8, min(25, options.steps // 6))):
        answer(record, mark, engine, words(chance, *chance.choice(lengths)), steps)
    record.finish()


main()
