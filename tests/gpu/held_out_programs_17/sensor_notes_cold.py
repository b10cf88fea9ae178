"""Starts cold: recordings of a machine's sensors, lines of numbers in text, are put in front of a question as 48 vectors.

The host turns the lines to numbers first, in plain Python, with nothing on the GPU. A step is one pass until `.item()` has what
comes of it: of kind other for the encoder, with convolutions, layers and 48 vectors that ask them, until its guess how unusual
the recording is; a prefill step takes in the vectors and a question, a decode step one token. A request is one recording, from
its text on. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, now
from parts import MADE, SIZE, Reader, attended, begun, evened, heads_of, in_bands, layer_of, shares_of, swiglu, tables, weight

VOCABULARY, LENGTH, NOTES, CHANNELS = 32000, 256, 48, 4
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 16, 16, 4
SEEN, SEEN_INNER, SEEN_LAYERS, SEEN_HEADS = 1024, 2816, 10, 8  # of the encoder
LINES = (1800, 3600, 1200, 2600)  # of a recording, by turns
BANDS = ((20, 50), (80, 120), (8, 16))  # of questions' lengths, by turns


def recorded(chance, lines):
    level, text = [0.0] * CHANNELS, []
    for _ in range(lines):
        level = [0.98 * value + chance.gauss(0.0, 0.2) for value in level]
        text.append(",".join("%.4f" % value for value in level))
    return "\n".join(text)


def numbers(text):
    """One list of all channels' numbers, line by line."""
    return [float(number) for line in text.split("\n") for number in line.split(",")]


class Encoder:
    def __init__(self):
        self.first = torch.empty(512, CHANNELS, 8, **MADE).normal_(0, (CHANNELS * 8) ** -0.5)
        self.second = torch.empty(SEEN, 512, 8, **MADE).normal_(0, (512 * 8) ** -0.5)
        self.layers = [layer_of(SEEN, SEEN_INNER, SEEN_HEADS, SEEN_HEADS) for _ in range(SEEN_LAYERS)]
        self.cos, self.sin = tables(max(LINES) // 16, SIZE)
        self.asking = torch.empty(SEEN_HEADS, NOTES, SIZE, **MADE).normal_()
        self.keys, self.values = weight(SEEN_HEADS * SIZE, SEEN), weight(SEEN_HEADS * SIZE, SEEN)
        self.out, self.unusual = weight(WIDTH, SEEN_HEADS * SIZE), weight(1, WIDTH)

    def see(self, values):
        """Keeps the recording's vectors, and returns how unusual it is, from 0 to 1."""
        x = torch.tensor(values).to("cuda").view(-1, CHANNELS).t()[None].to(torch.bfloat16)  # 1 x channels x lines
        x = F.gelu(F.conv1d(F.pad(x, (2, 2)), self.first, stride=4))
        x = F.gelu(F.conv1d(F.pad(x, (2, 2)), self.second, stride=4))[0].t().contiguous()  # a sixteenth as many x SEEN
        cos, sin = self.cos[:x.shape[0]], self.sin[:x.shape[0]]
        for layer in self.layers:
            q, k, v = heads_of(layer, evened(x), cos, sin)
            x = x + F.linear(attended(shares_of(q, k), v), layer["out"])
            x = x + swiglu(layer, evened(x))
        x = evened(x)
        keys, values = (F.linear(x, matrix).view(x.shape[0], -1, SIZE).transpose(0, 1) for matrix in (self.keys, self.values))
        self.notes = evened(F.linear(attended(shares_of(self.asking, keys), values), self.out))
        return F.linear(self.notes.mean(0), self.unusual).float().sigmoid().item()


class Writer(Reader):
    def __init__(self, encoder):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH)
        self.encoder = encoder

    def through(self, ids, cos, sin, attend):
        x = F.embedding(ids, self.embedding)
        if ids.shape[0] > 1:  # a prompt, whose first ids stand for the recording's vectors
            x[:NOTES] = self.encoder.notes
        for i, layer in enumerate(self.layers):
            q, k, v = heads_of(layer, evened(x), cos, sin)
            x = x + F.linear(attend(i, q, k, v), layer["out"])
            x = x + swiglu(layer, evened(x))
        return x


def answer(writer, record, chance, tokens, steps, number):
    """`number` 0 is the process's first, so it, and the first step of each kind, count as warm-up."""
    text, cold = recorded(chance, LINES[number % len(LINES)]), number == 0
    start = now()
    values = numbers(text)
    begin = now()
    unusual = writer.encoder.see(values)
    end = now()
    record.step("other", begin, end, len(values) // CHANNELS // 16, 1, cold)
    prompt = [0] * NOTES + tokens
    begin = now()
    said = [writer.prefill(prompt)]
    first = end = now()
    record.step("prefill", begin, first, len(prompt), 1, cold)
    for i in range(steps):
        begin = now()
        said.append(writer.decode(len(prompt) + i))
        end = now()
        record.step("decode", begin, end, 1, 1, cold and i == 0)
    record.request(start, first, end, len(prompt), len(said), cold)
    assert 0 <= unusual <= 1 and all(0 <= token < VOCABULARY for token in said) and len(prompt) + steps <= LENGTH
    assert bool(torch.isfinite(writer.last).all())


def main():
    options = arguments(__doc__)
    record, chance = Record(), begun(options.seed)
    writer = Writer(Encoder())
    torch.cuda.synchronize()
    in_bands(partial(answer, writer, record, chance), chance, VOCABULARY, BANDS, options.steps, 4, 30)
    record.finish()


main()
