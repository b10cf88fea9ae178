"""A batch of eight prompts at a time, decoded by CUDA graphs: one graph for each stretch of the cache that attention has to look at.

A step is one pass through the model, until the eight next tokens have been copied to pinned memory and the stream waited for: a
prefill step is eager and takes in eight prompts of one length, a decode step replays the graph of the smallest bucket in which
the texts still fit. A request is one prompt. With --ranges a prefill step has "prompts", a decode step one with its bucket in
its words, with "fetch" inside it; one more range is around the warm-up, and one around each capture.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, BATCH = 49152, 8
BUCKETS = (96, 128, 160, 192)  # the prompts have at most 120 tokens, the answers of the longest run twenty-one
WIDTH, INNER, LAYERS = 2304, 6144, 24
HEADS, KV_HEADS, SIZE = 18, 6, 128
GROUP, ALL_HEADS = HEADS // KV_HEADS, HEADS + 2 * KV_HEADS
TYPE = torch.bfloat16


def weights(*shape):
    return torch.empty(*shape, device="cuda", dtype=TYPE).normal_(0, shape[-1] ** -0.5)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def draw(logits):
    """One of the forty likeliest by a race of exponential clocks, which can be captured and needs no wait."""
    likeliest, which = (logits.float() / 0.8).topk(40)
    chances = likeliest.softmax(-1)
    return which.gather(1, (chances / torch.empty_like(chances).exponential_()).argmax(-1, keepdim=True))


class Engine:
    def __init__(self):
        self.embedding, self.head = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=TYPE), weights(VOCABULARY, WIDTH)
        self.one, self.head_one = torch.ones(WIDTH, device="cuda", dtype=TYPE), torch.ones(SIZE, device="cuda", dtype=TYPE)
        self.layers = [dict(qkv=weights(ALL_HEADS * SIZE, WIDTH), out=weights(WIDTH, HEADS * SIZE), up=weights(2 * INNER, WIDTH),
                            down=weights(WIDTH, INNER)) for _ in range(LAYERS)]
        self.keys = torch.zeros(LAYERS, BATCH, KV_HEADS, BUCKETS[-1], SIZE, device="cuda", dtype=TYPE)
        self.values = torch.zeros_like(self.keys)
        self.columns = torch.arange(BUCKETS[-1], device="cuda")
        angle = torch.outer(self.columns.float(), 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE))
        self.cos, self.sin = angle.cos().to(TYPE), angle.sin().to(TYPE)
        # What the graphs read and write: the last tokens, and the place that they go to.
        self.ids = torch.zeros(BATCH, 1, dtype=torch.long, device="cuda")
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")
        self.fetched = torch.zeros(BATCH, 1, dtype=torch.long, pin_memory=True)
        self.graphs = {}

    def logits(self, ids, places, span):
        """The logits behind the last of `ids`, which go to `places` of the cache; attention sees the cache up to `span`."""
        count = ids.shape[1]
        later = self.columns[:span] > places[:, None]
        cos, sin = self.cos.index_select(0, places), self.sin.index_select(0, places)
        x = F.embedding(ids, self.embedding)
        for layer, keys, values in zip(self.layers, self.keys, self.values):
            y = F.rms_norm(x, (WIDTH,), self.one, 1e-6)
            qkv = F.linear(y, layer["qkv"]).view(BATCH, count, ALL_HEADS, SIZE).transpose(1, 2)
            q, k, v = qkv.split((HEADS, KV_HEADS, KV_HEADS), 1)
            q, k = F.rms_norm(q, (SIZE,), self.head_one, 1e-6), F.rms_norm(k, (SIZE,), self.head_one, 1e-6)
            keys.index_copy_(2, places, turned(k, cos, sin))
            values.index_copy_(2, places, v.contiguous())
            q = turned(q, cos, sin).reshape(BATCH, KV_HEADS, GROUP * count, SIZE)
            scores = (q @ keys[:, :, :span].transpose(2, 3)).view(BATCH, KV_HEADS, GROUP, count, span).float() * SIZE ** -0.5
            shares = scores.masked_fill(later, float("-inf")).softmax(-1).to(TYPE).view(BATCH, KV_HEADS, GROUP * count, span)
            heads = (shares @ values[:, :, :span]).view(BATCH, HEADS, count, SIZE).transpose(1, 2)
            x = x + F.linear(heads.reshape(BATCH, count, HEADS * SIZE), layer["out"])
            gate, up = F.linear(F.rms_norm(x, (WIDTH,), self.one, 1e-6), layer["up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer["down"])
        return F.linear(F.rms_norm(x[:, -1], (WIDTH,), self.one, 1e-6), self.head)

    def step(self, span):
        """What a graph holds; it leaves its tokens and the next place where the next replay, of whichever graph, looks for them."""
        self.ids.copy_(draw(self.logits(self.ids, self.position, span)))
        self.position.add_(1)

    def capture(self, mark):
        pool, side = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        for span in reversed(BUCKETS):  # the largest first, so that the others find memory in the pool
            with mark(f"capture {span}"):
                self.position.zero_()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    for _ in range(2):
                        self.step(span)
                torch.cuda.current_stream().wait_stream(side)
                self.graphs[span] = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graphs[span], pool=pool):
                    self.step(span)
        torch.cuda.synchronize()

    def prefill(self, prompts):
        length = len(prompts[0])
        logits = self.logits(torch.tensor(prompts).to("cuda"), self.columns[:length], length)
        self.ids.copy_(draw(logits))
        self.position.fill_(length)
        return logits

    def fetch(self):
        self.fetched.copy_(self.ids, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return self.fetched[:, 0].tolist()


def answer(record, mark, engine, prompts, steps, warm_up=False):
    length = len(prompts[0])
    start = now()
    with mark("prompts"):
        logits = engine.prefill(prompts)
        texts = [[token] for token in engine.fetch()]
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    for place in range(length, length + steps):
        begin = now()
        span = next(bucket for bucket in BUCKETS if bucket > place)
        with mark(f"token, bucket {span}"):
            engine.graphs[span].replay()
            with mark("fetch"):
                tokens = engine.fetch()
        end = now()
        record.step("decode", begin, end, BATCH, BATCH, warm_up)
        for text, token in zip(texts, tokens):
            text.append(token)
    for text in texts:
        record.request(start, first, end, length, len(text), warm_up)
    assert bool(torch.isfinite(logits).all()) and all(0 <= token < VOCABULARY for text in texts for token in text)


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance, mark, record = random.Random(options.seed), ranges(options.ranges), Record()
    engine = Engine()
    torch.cuda.synchronize()
    engine.capture(mark)

    def prompts(length):
        return [[chance.randrange(VOCABULARY) for _ in range(length)] for _ in range(BATCH)]

    with mark("warm-up"):  # two replays of the graph of 96 and two of that of 128
        answer(record, mark, engine, prompts(94), 4, warm_up=True)
    for steps in split(options.steps, max(8, min(25, options.steps // 6))):
        answer(record, mark, engine, prompts(chance.randrange(84, 121)), steps)
    assert int(engine.position) <= BUCKETS[-1]
    record.finish()


main()
