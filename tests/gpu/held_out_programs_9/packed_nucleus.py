"""Four letters at a time: prompts packed end to end in one row without padding, answers drawn from the nucleus.

A step is one pass through the model and the draw of four tokens, until these are in a list on the host. A prefill step
takes in four prompts of four lengths as one long row: matmuls and norms run over all tokens at once, attention over
each prompt by itself. A decode step is one token of each letter, each at a place of its own. A request is one letter.
With --ranges a batch has one range, with the number of its tokens, and inside "layers" and "nucleus" side by side for
each step.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
import random

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 48000, 1024, 4
WIDTH, INNER, LAYERS = 2048, 6144, 20
HEADS, KV_HEADS, SIZE = 16, 4, 128
GROUP = HEADS // KV_HEADS
NUCLEUS, TEMPERATURE = 0.92, 0.9
BANDS = ((64, 128), (560, 768), (64, 768))  # of prompt lengths, by turns
MADE = dict(device="cuda", dtype=torch.bfloat16)


def weight(rows, columns):
    return torch.empty(rows, columns, **MADE).normal_(0, columns ** -0.5)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Model:
    """Grouped heads, SwiGLU; every fourth layer has no positions."""

    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.layers = [dict(qkv=weight((HEADS + 2 * KV_HEADS) * SIZE, WIDTH), out=weight(WIDTH, HEADS * SIZE),
                            up=weight(2 * INNER, WIDTH), down=weight(WIDTH, INNER)) for _ in range(LAYERS)]
        self.keys = torch.zeros(LAYERS, BATCH, KV_HEADS, LENGTH, SIZE, **MADE)
        self.values = torch.zeros_like(self.keys)
        self.columns, self.rows = torch.arange(LENGTH, device="cuda"), torch.arange(BATCH, device="cuda")
        speeds = 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE)
        angle = torch.outer(self.columns.float(), speeds)[:, None]
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)

    def norm(self, x):
        return F.rms_norm(x, (WIDTH,), self.one, 1e-6)

    def each_alone(self, i, q, k, v, ends):
        """Attention of packed prompts, one after the other; their keys and values go to the cache."""
        heads, begin = [], 0
        for row, end in enumerate(ends):
            own = k[begin:end].transpose(0, 1), v[begin:end].transpose(0, 1)
            self.keys[i, row, :, :end - begin], self.values[i, row, :, :end - begin] = own
            wide = [part.repeat_interleave(GROUP, 0)[None] for part in own]
            out = F.scaled_dot_product_attention(q[begin:end].transpose(0, 1)[None], *wide, is_causal=True)
            heads.append(out[0].transpose(0, 1).reshape(end - begin, HEADS * SIZE))
            begin = end
        return torch.cat(heads)

    def together(self, i, q, k, v, places, hidden):
        """Attention of one token for each letter over the cache, up to the longest letter."""
        longest = hidden.shape[1]
        self.keys[i][self.rows, :, places] = k
        self.values[i][self.rows, :, places] = v
        q = q.reshape(BATCH, KV_HEADS, GROUP, SIZE)
        scores = (q @ self.keys[i, :, :, :longest].transpose(2, 3)).float() * SIZE ** -0.5
        shares = scores.masked_fill(hidden[:, None, None], -math.inf).softmax(-1).to(torch.bfloat16)
        return (shares @ self.values[i, :, :, :longest]).reshape(BATCH, HEADS * SIZE)

    def forward(self, ids, places, attention):
        """The last states of all of `ids`, which stand at `places`."""
        cos, sin = self.cos[places], self.sin[places]
        x = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            qkv = F.linear(self.norm(x), layer["qkv"]).view(-1, HEADS + 2 * KV_HEADS, SIZE)
            q, k, v = qkv.split((HEADS, KV_HEADS, KV_HEADS), 1)
            if i % 4 != 3:
                q, k = turned(q, cos, sin), turned(k, cos, sin)
            x = x + F.linear(attention(i, q, k, v), layer["out"])
            gate, up = F.linear(self.norm(x), layer["up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer["down"])
        return x

    def prefill(self, prompts):
        ends, total, places = [], 0, []
        for prompt in prompts:
            total += len(prompt)
            ends.append(total)
            places += range(len(prompt))
        sent = torch.tensor([[token for prompt in prompts for token in prompt], places]).to("cuda")
        x = self.forward(sent[0], sent[1], lambda i, q, k, v: self.each_alone(i, q, k, v, ends))
        last = torch.cat([x[end - 1:end] for end in ends])
        return F.linear(self.norm(last), self.head)

    def decode(self, ids, places, longest):
        hidden = self.columns[:longest] > places[:, None]
        x = self.forward(ids, places, lambda i, q, k, v: self.together(i, q, k, v, places, hidden))
        return F.linear(self.norm(x), self.head)


def nucleus(logits):
    """Top-p: of the likeliest tokens that have most of the chances together, one, by a number drawn for each letter."""
    chances, which = (logits.float() / TEMPERATURE).softmax(-1).sort(-1, descending=True)
    chances = chances.masked_fill(chances.cumsum(-1) - chances > NUCLEUS, 0.0)
    heights = chances.cumsum(-1)
    drawn = torch.rand(logits.shape[0], 1, device="cuda") * heights[:, -1:]
    at = torch.searchsorted(heights, drawn).clamp_(max=VOCABULARY - 1)
    return which.gather(-1, at)[:, 0]


def reply(model, record, mark, prompts, steps, warm_up=False):
    lengths = [len(prompt) for prompt in prompts]
    with mark(f"batch of {sum(lengths)}"):
        start = now()
        with mark("layers"):
            logits = model.prefill(prompts)
        with mark("nucleus"):
            ids = nucleus(logits)
            letters = [[token] for token in ids.tolist()]
        first = end = now()
        record.step("prefill", start, first, sum(lengths), BATCH, warm_up)
        places = torch.tensor(lengths).to("cuda")
        for i in range(steps):
            begin = now()
            with mark("layers"):
                logits = model.decode(ids, places, max(lengths) + i + 1)
                places = places + 1
            with mark("nucleus"):
                ids = nucleus(logits)
                tokens = ids.tolist()
            end = now()
            record.step("decode", begin, end, BATCH, BATCH, warm_up)
            for letter, token in zip(letters, tokens):
                letter.append(token)
    for length, letter in zip(lengths, letters):
        record.request(start, first, end, length, len(letter), warm_up)
        assert all(0 <= token < VOCABULARY for token in letter)
    assert bool(torch.isfinite(logits).all())


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    torch.backends.cuda.enable_cudnn_sdp(False)  # else a plan is built for each length
    chance, model = random.Random(options.seed), Model()
    torch.cuda.synchronize()

    def prompts(low, high):
        return [[chance.randrange(VOCABULARY) for _ in range(chance.randrange(low, high + 1))] for _ in range(BATCH)]

    reply(model, record, mark, prompts(100, 300), 3, warm_up=True)
    for number, steps in enumerate(split(options.steps, max(3, min(24, options.steps // 8)))):
        reply(model, record, mark, prompts(*BANDS[number % len(BANDS)]), steps)
    record.finish()


main()
