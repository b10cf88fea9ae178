"""Four players of a game in words: the host paints what each sees, a vision tower looks at it, a CUDA graph writes their moves.

The host paints four pictures in plain Python before a turn's first call on the GPU. A step ends when the host has what comes of
it: a vision step looks at four pictures, until `.tolist()` has how bright they seem, a prefill step takes in the 64 vectors of
each with some words behind them, on top of the turns before, and a decode step replays the graph, copies the tokens down and
waits for an event. A request is one player's turn, from before its picture is painted. With --ranges a game of three turns has a
sentence around it, and each painting, in which nothing is launched, has its file's name; passes have none.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split
from parts import (MADE, SIZE, Plain, attended, begun, captured, drawn, evened, heads_of, layer_of, prompt, shares_of, swiglu,
                   tables, weight)

VOCABULARY, LENGTH, PLAYERS, TURNS = 32000, 384, 4, 3
LARGE = (2048, 5632, 18, 16, 4)  # width, inner width, layers, heads, heads of keys and values
EYE_WIDTH, EYE_INNER, EYE_LAYERS, EYE_HEADS = 1024, 2816, 12, 8
SIDE, PATCH = 224, 14
ACROSS = SIDE // PATCH  # patches in a row; two by two of them become a vector
SPOTS = (ACROSS // 2) ** 2
WORDS = ((14, 22), (6, 10), (10, 16))  # how many come with a picture, by turns
GAMES = ("Uma and three more: step into the hall, decode the runes", "next generation, room by room",
         "the vision of Pim, Quy, Ros and Sil", "no prefill of lamps allowed")
FILES = ("image-%s.png", "context_shot_%s.png", "step-%s-final.jpg")


def paint(chance, canvas, first):
    """A room of a dozen boxes, row by row, into the canvas from byte `first` on."""
    for _ in range(12):
        wide, high = chance.randrange(20, 120), chance.randrange(20, 120)
        left, top = chance.randrange(SIDE - wide), chance.randrange(SIDE - high)
        line = bytes([chance.randrange(256)]) * wide
        for y in range(top, top + high):
            at = first + y * SIDE + left
            canvas[at:at + wide] = line


class Eye:
    """All patches of a picture see each other. What comes of the pictures is written to `seen`."""

    def __init__(self, seen):
        self.seen, self.patches = seen, weight(EYE_WIDTH, PATCH * PATCH)
        self.layers = [layer_of(EYE_WIDTH, EYE_INNER, EYE_HEADS, EYE_HEADS) for _ in range(EYE_LAYERS)]
        self.cos, self.sin = tables(ACROSS * ACROSS, SIZE)
        self.out, self.bright = weight(LARGE[0], EYE_WIDTH), weight(1, LARGE[0])

    def look(self, canvas):
        """How bright each picture seems, from 0 to 1."""
        x = torch.frombuffer(canvas, dtype=torch.uint8).to("cuda").view(PLAYERS, ACROSS, PATCH, ACROSS, PATCH)
        x = x.permute(0, 1, 3, 2, 4).reshape(PLAYERS, ACROSS * ACROSS, PATCH * PATCH).to(torch.bfloat16) / 128.0 - 1.0
        x = F.linear(x, self.patches)
        for layer in self.layers:
            q, k, v = heads_of(layer, evened(x), self.cos, self.sin)
            x = x + F.linear(attended(shares_of(q, k), v), layer["out"])
            x = x + swiglu(layer, evened(x))
        x = x.view(PLAYERS, ACROSS // 2, 2, ACROSS // 2, 2, EYE_WIDTH).mean((2, 4)).reshape(PLAYERS, SPOTS, EYE_WIDTH)
        x = evened(F.linear(evened(x), self.out))
        self.seen.copy_(x.view(-1, LARGE[0]))
        return F.linear(x.mean(1), self.bright).float().sigmoid()[:, 0].tolist()


class Writer(Plain):
    def __init__(self):
        super().__init__(VOCABULARY, *LARGE, LENGTH)
        # Behind the words' vectors are those of the pictures, as if they were words.
        self.embedding, self.length = torch.cat((self.embedding, torch.zeros(PLAYERS * SPOTS, LARGE[0], **MADE))), 0
        self.cache = torch.zeros(2, LARGE[2], PLAYERS, LARGE[4], LENGTH, SIZE, **MADE)
        self.ids = torch.zeros(PLAYERS, 1, dtype=torch.int64, device="cuda")
        self.place = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.last = torch.zeros(PLAYERS, VOCABULARY, device="cuda")
        self.fetched, self.done = torch.zeros(PLAYERS, dtype=torch.int64, pin_memory=True), torch.cuda.Event()
        self.graph = captured(self.forward)

    def run(self, ids, places, span):
        """Attention sees the cache up to `span`."""
        hidden = self.columns[:span] > places[:, None]

        def attend(i, q, k, v):
            keys, values = self.cache[0, i], self.cache[1, i]
            keys.index_copy_(2, places, k)
            values.index_copy_(2, places, v)
            return attended(shares_of(q, keys[:, :, :span], hidden), values[:, :, :span])

        x = self.through(ids, self.cos.index_select(0, places), self.sin.index_select(0, places), attend)
        self.last.copy_(self.logits(x))
        self.ids.copy_(drawn(self.last, 0.8))

    def forward(self):
        self.run(self.ids, self.place, LENGTH)
        self.place.add_(1)

    def fetch(self):
        self.fetched.copy_(self.ids[:, 0], non_blocking=True)
        self.done.record()
        self.done.synchronize()
        return self.fetched.tolist()

    def read(self, given):
        start, self.length = self.length, self.length + len(given[0])
        self.run(torch.tensor(given).to("cuda"), self.columns[start:self.length], self.length)
        self.place.fill_(self.length)
        return self.fetch()

    def decode(self):
        self.graph.replay()
        self.length += 1
        return self.fetch()


class Game:
    def __init__(self, record, mark, chance):
        self.record, self.mark, self.chance, self.writer, self.turns = record, mark, chance, Writer(), 0
        self.eye = Eye(self.writer.embedding[VOCABULARY:])

    def timed(self, kind, tokens, call, *given):
        begin = now()
        result = call(*given)
        end = now()
        self.record.step(kind, begin, end, PLAYERS * tokens, PLAYERS, self.warm_up)
        return result, end

    def turn(self, said, steps):
        """`said` are the players' last words, which are not in the cache yet; returns what they are now."""
        start, canvas = now(), bytearray(PLAYERS * SIDE * SIDE)
        for player in range(PLAYERS):
            name = FILES[self.turns % len(FILES)] % ("%d%s" % (self.turns, "umqr"[player]))
            with self.mark(name):
                paint(self.chance, canvas, player * SIDE * SIDE)
        bright, _ = self.timed("vision", ACROSS * ACROSS, self.eye.look, canvas)
        count = self.chance.randrange(*WORDS[self.turns % len(WORDS)])
        given = [[VOCABULARY + player * SPOTS + spot for spot in range(SPOTS)] + last + prompt(self.chance, VOCABULARY, count)
                 for player, last in enumerate(said)]
        tokens, first = self.timed("prefill", len(given[0]), self.writer.read, given)
        texts, end = [[token] for token in tokens], first
        for _ in range(steps):
            tokens, end = self.timed("decode", 1, self.writer.decode)
            for text, token in zip(texts, tokens):
                text.append(token)
        for text in texts:
            self.record.request(start, first, end, len(given[0]), len(text), self.warm_up)
            assert len(text) == steps + 1 and all(0 <= token < VOCABULARY for token in text)
        assert all(map(math.isfinite, bright)) and self.writer.length <= LENGTH and bool(torch.isfinite(self.writer.last).all())
        self.turns += 1
        return [text[-1:] for text in texts]

    def play(self, number, counts, warm_up=False):
        said, self.warm_up, self.writer.length = [[]] * PLAYERS, warm_up, 0
        with self.mark(GAMES[number % len(GAMES)]):
            for steps in counts:
                said = self.turn(said, steps)


def main():
    options = arguments(__doc__)
    record, chance = Record(), begun(options.seed)
    game = Game(record, ranges(options.ranges), chance)
    torch.cuda.synchronize()
    game.play(0, [4], warm_up=True)
    counts = split(options.steps, max(3, min(25, options.steps // 8)))
    for number, first in enumerate(range(0, len(counts), TURNS)):
        game.play(number + 1, counts[first:first + TURNS])
    record.finish()


main()
