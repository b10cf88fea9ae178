"""Captions for pictures by two CUDA graphs: one sees four pictures, the other writes one word of each of four captions.

There are three kinds of step. A vision step sends four pictures up and replays the tower's graph, which leaves keys and values
for all layers that will look at them, until an event behind the pictures' scores, copied to pinned memory, has been waited for.
A prefill step takes in the questions, eagerly, a decode step replays the other graph; both end when `.tolist()` has four tokens.
A request is one picture and begins with the vision step. With --ranges four pictures have "album" around them, inside are "see",
"ask" and, for each decode step, "tell".
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split
from parts import MADE, SIZE, attended, begun, captured, drawn, prompt, shares_of, tables, turned, weight

VOCABULARY, LENGTH, BATCH = 32000, 96, 4
EDGE, PATCH, EYE, EYE_INNER, EYE_LAYERS, EYE_HEADS = 336, 14, 1024, 4096, 20, 8
PATCHES = (EDGE // PATCH) ** 2
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 1536, 4096, 20, 12, 4
QUESTIONS = (16, 40, 8, 28, 60)  # lengths, by turns


class Engine:
    def __init__(self):
        self.patch, self.spots = weight(EYE, 3 * PATCH * PATCH), weight(PATCHES, EYE)
        self.tower = [dict(qkv=weight(3 * EYE, EYE), out=weight(EYE, EYE), up=weight(EYE_INNER, EYE), down=weight(EYE, EYE_INNER))
                      for _ in range(EYE_LAYERS)]
        self.judge, self.eye_one = weight(1, EYE), torch.ones(EYE, **MADE)
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.layers = [dict(qkv=weight((HEADS + 2 * KV_HEADS) * SIZE, WIDTH), out=weight(WIDTH, HEADS * SIZE),
                            look=weight(HEADS * SIZE, WIDTH), seen=weight(2 * KV_HEADS * SIZE, EYE),
                            back=weight(WIDTH, HEADS * SIZE), gate=weight(INNER, WIDTH), up=weight(INNER, WIDTH),
                            down=weight(WIDTH, INNER)) for _ in range(LAYERS)]
        self.keys, self.values = (torch.zeros(LAYERS, BATCH, KV_HEADS, LENGTH, SIZE, **MADE) for _ in range(2))
        self.seen = torch.zeros(LAYERS, 2, BATCH, KV_HEADS, PATCHES, SIZE, **MADE)
        self.cos, self.sin = tables(LENGTH, SIZE)
        self.columns = torch.arange(LENGTH, device="cuda")
        self.pinned = torch.zeros(BATCH, 3, EDGE, EDGE, dtype=torch.uint8, pin_memory=True)
        self.pictures = torch.zeros(BATCH, 3, EDGE, EDGE, dtype=torch.uint8, device="cuda")
        self.scores, self.fetched = torch.zeros(BATCH, device="cuda"), torch.zeros(BATCH, pin_memory=True)
        self.ids = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.place = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.event = torch.cuda.Event()
        self.seeing, self.telling = captured(self.look), captured(self.word)

    def look(self):
        side = EDGE // PATCH
        x = self.pictures.view(BATCH, 3, side, PATCH, side, PATCH).permute(0, 2, 4, 1, 3, 5).reshape(BATCH, PATCHES, -1)
        x = F.linear((x.float() / 127.5 - 1).to(torch.bfloat16), self.patch) + self.spots
        for layer in self.tower:
            h = F.linear(F.layer_norm(x, (EYE,), self.eye_one), layer["qkv"]).view(BATCH, PATCHES, 3 * EYE_HEADS, SIZE)
            q, k, v = h.transpose(1, 2).split(EYE_HEADS, 1)
            x = x + F.linear(attended(shares_of(q, k), v), layer["out"])
            x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (EYE,), self.eye_one), layer["up"])), layer["down"])
        x = F.layer_norm(x, (EYE,), self.eye_one)
        for i, layer in enumerate(self.layers):
            h = F.linear(x, layer["seen"]).view(BATCH, PATCHES, 2, KV_HEADS, SIZE)
            self.seen[i].copy_(h.permute(2, 0, 3, 1, 4))
        self.scores.copy_(torch.sigmoid(F.linear(x.mean(1), self.judge).float())[:, 0])

    def through(self, ids, places, span):
        """Draws a token behind the last of `ids`; attention sees the cache up to `span`."""
        count = ids.shape[1]
        cos, sin = self.cos.index_select(0, places), self.sin.index_select(0, places)
        hidden = self.columns[:span] > places[:, None]
        x = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            h = F.linear(F.layer_norm(x, (WIDTH,), self.one), layer["qkv"]).view(BATCH, count, -1, SIZE).transpose(1, 2)
            q, k, v = h.split((HEADS, KV_HEADS, KV_HEADS), 1)
            self.keys[i].index_copy_(2, places, turned(k, cos, sin))
            self.values[i].index_copy_(2, places, v)
            shares = shares_of(turned(q, cos, sin), self.keys[i, :, :, :span], hidden)
            x = x + F.linear(attended(shares, self.values[i, :, :, :span]), layer["out"])
            q = F.linear(F.layer_norm(x, (WIDTH,), self.one), layer["look"]).view(BATCH, count, HEADS, SIZE).transpose(1, 2)
            x = x + F.linear(attended(shares_of(q, self.seen[i, 0]), self.seen[i, 1]), layer["back"])
            h = F.layer_norm(x, (WIDTH,), self.one)
            x = x + F.linear(F.silu(F.linear(h, layer["gate"])) * F.linear(h, layer["up"]), layer["down"])
        self.last = F.linear(F.layer_norm(x[:, -1], (WIDTH,), self.one), self.head).float()
        self.ids.copy_(drawn(self.last, 0.8))

    def word(self):
        self.through(self.ids, self.place, LENGTH)
        self.place.add_(1)

    def see(self):
        """How good the four pictures in pinned memory are."""
        self.pictures.copy_(self.pinned, non_blocking=True)
        self.seeing.replay()
        self.fetched.copy_(self.scores, non_blocking=True)
        self.event.record()
        self.event.synchronize()
        return self.fetched.tolist()

    def ask(self, questions):
        count = len(questions[0])
        self.through(torch.tensor(questions).to("cuda"), self.columns[:count], count)
        self.place.fill_(count)
        return self.ids[:, 0].tolist()

    def tell(self):
        self.telling.replay()
        return self.ids[:, 0].tolist()


def opened(engine, generator):
    """The host's work: four pictures out of noise, each twice as large as is wanted, made smaller and put into pinned memory."""
    for picture in engine.pinned:
        large = torch.randint(0, 256, (3, 2 * EDGE, 2 * EDGE), generator=generator, dtype=torch.uint8)
        picture.copy_(large[:, ::2, ::2])


def album(engine, record, mark, questions, steps, warm_up=False):
    count = len(questions[0])
    with mark("album"):
        start = now()
        with mark("see"):
            scores = engine.see()
        end = now()
        record.step("vision", start, end, BATCH * PATCHES, BATCH, warm_up)
        assert all(0 <= score <= 1 for score in scores)
        begin = now()
        with mark("ask"):
            texts = [[token] for token in engine.ask(questions)]
        first = end = now()
        record.step("prefill", begin, first, BATCH * count, BATCH, warm_up)
        for _ in range(steps):
            begin = now()
            with mark("tell"):
                tokens = engine.tell()
            end = now()
            record.step("decode", begin, end, BATCH, BATCH, warm_up)
            for text, token in zip(texts, tokens):
                text.append(token)
    for text in texts:
        record.request(start, first, end, count, len(text), warm_up)
    assert all(0 <= token < VOCABULARY for text in texts for token in text) and bool(torch.isfinite(engine.last).all())
    assert engine.place.item() == count + steps <= LENGTH and bool(torch.isfinite(engine.seen).all())


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, engine = begun(options.seed), Engine()
    generator = torch.Generator().manual_seed(options.seed)

    def batch(length, steps, warm_up=False):
        opened(engine, generator)
        album(engine, record, mark, [prompt(chance, VOCABULARY, length) for _ in range(BATCH)], steps, warm_up)

    batch(24, 4, warm_up=True)
    for number, steps in enumerate(split(options.steps, max(3, min(25, options.steps // 8)))):
        batch(QUESTIONS[number % len(QUESTIONS)], steps)
    record.finish()


main()
