"""Starts cold: pictures of pages are read aloud by a tower and a decoder that attends to what the tower saw.

A step lasts until `.item()` has its token: a prefill step sends a page up, runs the tower, makes the decoder's keys and values of
what it saw, and takes in a task of a few tokens; a decode step takes in one token. A request is one page. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, ranges
from parts import SIZE, Reader, attended, begun, evened, heads_of, in_bands, layer_of, one_text, shares_of, swiglu, tables, weight

VOCABULARY, LENGTH, PATCH = 32000, 128, 16
WIDTH, INNER, LAYERS, HEADS = 1536, 4608, 14, 12
TOWER, TOWER_INNER, TOWER_LAYERS, TOWER_HEADS = 1024, 4096, 16, 8
PAGES = ((44, 32), (32, 24), (48, 34), (24, 32), (40, 28))  # rows and columns of patches, by turns
BANDS = ((6, 12), (16, 30))  # of tasks' lengths, by turns


def split_heads(x):
    """Heads x count x size."""
    return x.view(x.shape[0], -1, SIZE).transpose(0, 1)


class Page(Reader):
    def __init__(self):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, HEADS, LENGTH)
        for layer in self.layers:
            layer.update(ask=weight(HEADS * SIZE, WIDTH), answer=weight(WIDTH, HEADS * SIZE),
                         page_keys=weight(HEADS * SIZE, TOWER), page_values=weight(HEADS * SIZE, TOWER))
        self.patches = weight(TOWER, 3 * PATCH * PATCH)
        self.tower = [layer_of(TOWER, TOWER_INNER, TOWER_HEADS, TOWER_HEADS) for _ in range(TOWER_LAYERS)]
        self.tower_cos, self.tower_sin = tables(max(rows * columns for rows, columns in PAGES), SIZE)

    def feed(self, layer, h):
        """What the decoder's attention to the page and its MLP add."""
        q = split_heads(F.linear(h, layer["ask"]))
        more = F.linear(attended(shares_of(q, layer["seen"][0]), layer["seen"][1]), layer["answer"])
        return more + swiglu(layer, evened(h + more))

    def see(self, page):
        """A page is height x width x 3 numbers of eight bits, in ordinary memory."""
        pixels = page.to("cuda").to(torch.bfloat16) / 127.5 - 1
        pixels = pixels.unflatten(0, (-1, PATCH)).unflatten(2, (-1, PATCH)).permute(0, 2, 1, 3, 4)
        x = F.linear(pixels.reshape(-1, 3 * PATCH * PATCH), self.patches)
        cos, sin = self.tower_cos[:x.shape[0]], self.tower_sin[:x.shape[0]]
        for layer in self.tower:
            q, k, v = heads_of(layer, evened(x), cos, sin)
            x = x + F.linear(attended(shares_of(q, k), v), layer["out"])
            x = x + swiglu(layer, evened(x))
        x = evened(x)
        for layer in self.layers:
            layer["seen"] = [split_heads(F.linear(x, layer[name])) for name in ("page_keys", "page_values")]

    def prefill(self, tokens):
        self.see(self.page)
        return super().prefill(tokens)


def read(reader, record, mark, tokens, steps, number):
    rows, columns = PAGES[number % len(PAGES)]
    reader.page = torch.randint(0, 256, (rows * PATCH, columns * PATCH, 3), dtype=torch.uint8)
    one_text(record, mark, ("", "", ""), VOCABULARY, reader.prefill, reader.decode, tokens, steps, cold=number == 0)
    assert bool(torch.isfinite(reader.last).all()) and len(tokens) + steps <= LENGTH


def main():
    options = arguments(__doc__)
    mark, record = ranges(False), Record()
    chance, reader = begun(options.seed), Page()
    torch.cuda.synchronize()
    in_bands(partial(read, reader, record, mark), chance, VOCABULARY, BANDS, options.steps, 4, 30)
    record.finish()


main()
