"""Text in bytes: a small network spells one patch after the other, and a large one goes over patches, not bytes.

A step ends when the host has a patch's last byte: a prefill step takes in a prompt's bytes and patches and spells one byte, a
decode step takes in the patch before, asks whether what came of it is finite, and spells one to six bytes; behind each of them
`.tolist()` says what it is and how much the small network was in doubt, which is where the host ends a patch. Tokens are bytes.
A request is one text. With --ranges it has "text" around it, inside are "prompt" and "patch", and in both "large" and "byte".
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from collections import deque
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges
from parts import (MADE, SIZE, attended, begun, drawn, evened, heads_of, in_bands, layer_of, prompt, shares_of, swiglu, tables,
                   weight)

BYTES, MOST = 256, 6  # of a patch
LENGTH, PATCHES = 640, 256
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 20, 16, 4
SMALL, SMALL_INNER, SMALL_LAYERS, SMALL_HEADS = 1024, 2816, 4, 8
BANDS = ((150, 220), (360, 480), (60, 110), (240, 320))  # of prompts' lengths, by turns


class Network:
    """Layers over vectors, with a preallocated cache of which a growing slice is read."""

    def __init__(self, width, inner, layers, heads, kv_heads, length):
        self.layers = [layer_of(width, inner, heads, kv_heads) for _ in range(layers)]
        self.cache = torch.zeros(2, layers, kv_heads, length, SIZE, **MADE)
        self.cos, self.sin = tables(length, SIZE)
        self.columns = torch.arange(length, device="cuda")

    def over(self, x, start):
        """What the layers make of x (count x width), the first of which stands at `start`."""
        end = start + x.shape[0]
        hidden = self.columns[:end] > self.columns[start:end, None] if end - start > 1 else None
        for i, layer in enumerate(self.layers):
            keys, values = self.cache[0, i], self.cache[1, i]
            q, keys[:, start:end], values[:, start:end] = heads_of(layer, evened(x), self.cos[start:end], self.sin[start:end])
            heads = attended(shares_of(q, keys[:, :end], hidden), values[:, :end])
            x = x + F.linear(heads, layer["out"])
            x = x + swiglu(layer, evened(x))
        return evened(x)


class Speller:
    def __init__(self, mark):
        self.mark = mark
        self.large = Network(WIDTH, INNER, LAYERS, HEADS, KV_HEADS, PATCHES)
        self.small = Network(SMALL, SMALL_INNER, SMALL_LAYERS, SMALL_HEADS, SMALL_HEADS, LENGTH)
        self.embedding, self.head = torch.empty(BYTES, SMALL, **MADE).normal_(), weight(BYTES, SMALL)
        self.up, self.down = weight(WIDTH, SMALL), weight(SMALL, WIDTH)
        self.doubts = deque(maxlen=60)

    def understand(self, patches):
        """The large network goes over these patches (count x SMALL), behind those it has."""
        with self.mark("large"):
            states = self.large.over(F.linear(patches, self.up), self.patches)
            self.patches += len(patches)
            self.context = F.linear(states[-1:], self.down)
            if not bool(torch.isfinite(self.context).all()):
                raise RuntimeError("numbers that are not finite")

    def spell(self, most):
        """Up to so many bytes, of which the first is behind the last byte that the small network has not yet seen."""
        spelt, states = [], []
        while len(spelt) < most:
            with self.mark("byte"):
                state = self.small.over(F.embedding(self.ids, self.embedding) + self.context, self.bytes)
                chances = F.linear(state, self.head).float().log_softmax(-1)
                self.ids = drawn(chances)[0]
                doubt = -(chances.exp() * chances).sum(-1)
                byte, doubt = torch.cat((self.ids.float(), doubt)).tolist()
            self.bytes += 1
            states.append(state)
            spelt.append(int(byte))
            usual = sorted(self.doubts)[len(self.doubts) * 7 // 10] if self.doubts else doubt
            self.doubts.append(doubt)
            if doubt > usual:
                break
        self.patch = torch.cat(states).mean(0, keepdim=True)
        return spelt

    def prefill(self, tokens, sizes):
        """`sizes` are those of the patches of all but the last byte."""
        of = [number for number, size in enumerate(sizes) for _ in range(size)]
        ids, of = torch.tensor([tokens[:-1], of]).to("cuda")
        states = self.small.over(F.embedding(ids, self.embedding), 0)
        sums = torch.zeros(len(sizes), SMALL, device="cuda").index_add_(0, of, states.float())
        counts = torch.tensor(sizes).to("cuda")[:, None]
        self.bytes, self.patches = len(tokens) - 1, 0
        self.ids = torch.tensor(tokens[-1:]).to("cuda")
        self.understand((sums / counts).to(torch.bfloat16))
        return self.spell(1)

    def decode(self):
        self.understand(self.patch)
        return self.spell(MOST)


def write(speller, record, chance, tokens, steps, number, warm_up=False):
    sizes, count = [], len(tokens)
    while sum(sizes) < count - 1:
        sizes.append(min(chance.randrange(3, MOST + 1), count - 1 - sum(sizes)))
    with speller.mark("text"):
        start = now()
        with speller.mark("prompt"):
            text = speller.prefill(tokens, sizes)
        first = end = now()
        record.step("prefill", start, first, count, 1, warm_up)
        for _ in range(steps):
            begin = now()
            with speller.mark("patch"):
                spelt = speller.decode()
            end = now()
            record.step("decode", begin, end, len(spelt), 1, warm_up)
            text += spelt
    record.request(start, first, end, count, len(text), warm_up)
    assert all(0 <= byte < BYTES for byte in text) and len(bytes(text)) == len(text)
    assert speller.bytes == count + len(text) - 1 <= LENGTH and speller.patches == len(sizes) + steps <= PATCHES


def main():
    options = arguments(__doc__)
    record, chance, speller = Record(), begun(options.seed), Speller(ranges(options.ranges))
    torch.cuda.synchronize()
    write(speller, record, chance, prompt(chance, BYTES, 180), 4, 0, warm_up=True)
    in_bands(partial(write, speller, record, chance), chance, BYTES, BANDS, options.steps, 3, 25)
    record.finish()


main()
