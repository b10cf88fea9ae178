"""Translation by an encoder and a decoder in the manner of T5: batches of four sentences, encoded once; eager, cold."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
import random

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, BATCH, LONGEST = 32128, 4, 256
LAYERS, HEADS, SIZE, INNER = 24, 16, 64, 2816
WIDTH = HEADS * SIZE
BUCKETS, FARTHEST = 32, 128
PAD = START = 0
BATCHES = 4


def buckets(distances, both_ways):
    """T5's classes of distances (place of the key less place of the query): the near ones exact, the far ones by logarithm."""
    count, base = BUCKETS, 0
    if both_ways:
        count //= 2
        base = (distances > 0).long() * count
        distances = distances.abs()
    else:
        distances = (-distances).clamp(min=0)
    exact = count // 2
    far = torch.log(distances.clamp(min=1).float() / exact) / math.log(FARTHEST / exact) * (count - exact)
    far = (exact + far.long()).clamp(max=count - 1)
    return base + torch.where(distances < exact, distances, far)


def heads(x):
    return x.view(x.shape[0], x.shape[1], HEADS, SIZE).transpose(1, 2)


def attend(q, k, v, bias):
    weights = torch.softmax((torch.matmul(q, k.transpose(-1, -2)) * SIZE ** -0.5).float() + bias, dim=-1)
    y = torch.matmul(weights.to(v.dtype), v)
    return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], WIDTH)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.q, self.k = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.v, self.o = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.gate, self.up = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(F.gelu(self.gate(h), approximate="tanh") * self.up(h))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.distance = nn.Embedding(BUCKETS, HEADS)
        self.attentions = nn.ModuleList(Attention() for _ in range(LAYERS))
        self.feeds = nn.ModuleList(FeedForward() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)

    def forward(self, x, padding):
        """`padding` is batch x 1 x 1 x length: 0 where there is a token, very low where not."""
        order = torch.arange(x.shape[1], device=x.device)
        classes = buckets(order[None, :] - order[:, None], True)
        bias = self.distance(classes).permute(2, 0, 1)[None].float() + padding
        for attention, feed in zip(self.attentions, self.feeds):
            h = attention.norm(x)
            y = attend(heads(attention.q(h)), heads(attention.k(h)), heads(attention.v(h)), bias)
            x = feed(x + attention.o(y))
        return self.norm(x)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.distance = nn.Embedding(BUCKETS, HEADS)
        self.selves = nn.ModuleList(Attention() for _ in range(LAYERS))
        self.crosses = nn.ModuleList(Attention() for _ in range(LAYERS))
        self.feeds = nn.ModuleList(FeedForward() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)

    def look_at(self, memory):
        """Keys and values of the source, and room for those of the target."""
        def room():
            return memory.new_zeros(BATCH, HEADS, LONGEST, SIZE)

        return [(heads(cross.k(memory)), heads(cross.v(memory)), room(), room()) for cross in self.crosses]

    def forward(self, x, place, caches, padding):
        """One token for each sentence, at `place`."""
        classes = buckets(torch.arange(place + 1, device=x.device) - place, False)
        bias = self.distance(classes).t()[None, :, None, :].float()
        for own, cross, feed, (source_k, source_v, keys, values) in zip(self.selves, self.crosses, self.feeds, caches):
            h = own.norm(x)
            keys[:, :, place:place + 1] = heads(own.k(h))
            values[:, :, place:place + 1] = heads(own.v(h))
            x = x + own.o(attend(heads(own.q(h)), keys[:, :, :place + 1], values[:, :, :place + 1], bias))
            x = x + cross.o(attend(heads(cross.q(cross.norm(x))), source_k, source_v, padding))
            x = feed(x)
        return self.norm(x)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder, self.decoder = Encoder(), Decoder()

    def next(self, tokens, place, caches, padding):
        x = self.decoder(self.embedding(tokens)[:, None], place, caches, padding)
        return F.linear(x[:, -1], self.embedding.weight) * WIDTH ** -0.5


@torch.inference_mode()
def translate(model, sentences, steps, record, mark, cold):
    start = now()
    with mark("translate batch"):
        with mark("encode"):
            width = max(len(sentence) for sentence in sentences)
            source = torch.tensor([sentence + [PAD] * (width - len(sentence)) for sentence in sentences]).to("cuda")
            padding = (source == PAD)[:, None, None, :].float() * -1e9
            memory = model.encoder(model.embedding(source), padding)
        with mark("cross kv"):
            caches = model.decoder.look_at(memory)
        with mark("decode_one"):
            tokens = torch.full((BATCH,), START, device="cuda")
            logits = model.next(tokens, 0, caches, padding)
            tokens = logits.argmax(-1)
            targets = [tokens.tolist()]
        first = end = now()
        record.step("prefill", start, first, sum(len(sentence) for sentence in sentences), BATCH, cold)
        for i in range(steps):
            step = now()
            with mark("decode_one"):
                logits = model.next(tokens, 1 + i, caches, padding)
                tokens = logits.argmax(-1)
                targets.append(tokens.tolist())
            end = now()
            record.step("decode", step, end, BATCH, BATCH, cold and i == 0)
    for sentence in sentences:
        record.request(start, first, end, len(sentence), 1 + steps, cold)
    assert all(0 <= value < VOCABULARY for row in targets for value in row)
    assert torch.isfinite(logits).all().item()


def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Translator()
    torch.set_default_dtype(torch.float32)
    model.eval().requires_grad_(False)
    torch.cuda.synchronize()
    for i, steps in enumerate(split(args.steps, BATCHES)):
        sentences = [[rng.randrange(1, VOCABULARY) for _ in range(rng.randint(20, 180))] for _ in range(BATCH)]
        translate(model, sentences, steps, record, mark, cold=i == 0)
    record.finish()


if __name__ == "__main__":
    main()
