"""Starts cold: in the manner of RWKV, by PyTorch alone, so what a prompt leaves behind is made place by place in a Python loop.

A step is one pass through the model and the draw of a token, until `.item()` has it: a prefill step takes in one prompt, whose
matmuls are those of all its places together, a decode step one token. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, ranges
from parts import MADE, begun, drawn, evened, in_bands, one_text, weight

VOCABULARY, WIDTH, INNER, LAYERS = 32000, 2048, 8192, 16
NOTHING = -1e30  # what the largest key is before there was any
BANDS = ((14, 20), (28, 40), (8, 12), (20, 28))  # of prompts' lengths, by turns


def layer_of():
    layer = {name: weight(WIDTH, WIDTH) for name in ("r", "k", "v", "out", "open")}
    for name in ("r_new", "k_new", "v_new", "open_new", "up_new"):
        layer[name] = torch.empty(WIDTH, **MADE).uniform_(0, 1)
    layer.update(up=weight(INNER, WIDTH), down=weight(WIDTH, INNER), before=torch.zeros(2, WIDTH, **MADE),
                 decay=-torch.linspace(-6, 1, WIDTH, device="cuda").exp(),
                 bonus=torch.empty(WIDTH, device="cuda").normal_(0, 0.5))
    return layer


def earlier(layer, which, h):
    """What stood one place before each place of h, of which the last is kept."""
    before = torch.cat((layer["before"][which:which + 1], h[:-1]))
    layer["before"][which] = h[-1]
    return before


def mixed(layer, name, h, before):
    return h * layer[name] + before * (1 - layer[name])


def taken_in(layer, k, v):
    """One place: the mean of all values so far by their keys, this one's with a bonus; then the state with it."""
    sums, total, largest = layer["state"].unbind(0)
    own = layer["bonus"] + k
    top = torch.maximum(largest, own)
    old, new = (largest - top).exp(), (own - top).exp()
    mean = (old * sums + new * v) / (old * total + new)
    faded = largest + layer["decay"]
    top = torch.maximum(faded, k)
    old, new = (faded - top).exp(), (k - top).exp()
    layer["state"] = torch.stack((old * sums + new * v, old * total + new, top))
    return mean


class Engine:
    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.layers = [layer_of() for _ in range(LAYERS)]

    def remember(self, layer, h):
        before = earlier(layer, 0, h)
        gate = F.linear(mixed(layer, "r_new", h, before), layer["r"]).sigmoid()
        k = F.linear(mixed(layer, "k_new", h, before), layer["k"]).float()
        v = F.linear(mixed(layer, "v_new", h, before), layer["v"]).float()
        means = torch.stack([taken_in(layer, k[place], v[place]) for place in range(len(h))])
        return F.linear(gate * means.to(torch.bfloat16), layer["out"])

    def feed(self, layer, h):
        before = earlier(layer, 1, h)
        gate = F.linear(mixed(layer, "open_new", h, before), layer["open"]).sigmoid()
        return gate * F.linear(F.linear(mixed(layer, "up_new", h, before), layer["up"]).relu().square(), layer["down"])

    def word(self, ids):
        x = F.embedding(ids, self.embedding)
        for layer in self.layers:
            x = x + self.remember(layer, evened(x))
            x = x + self.feed(layer, evened(x))
        self.last = F.linear(evened(x[-1:]), self.head).float()
        self.ids = drawn(self.last, 0.8)[0]
        return self.ids.item()

    def prefill(self, tokens):
        for layer in self.layers:
            layer["before"].zero_()
            layer["state"] = torch.zeros(3, WIDTH, device="cuda")
            layer["state"][2].fill_(NOTHING)
        return self.word(torch.tensor(tokens).to("cuda"))

    def decode(self, place):
        return self.word(self.ids)


def write(engine, record, mark, tokens, steps, number):
    one_text(record, mark, ("", "", ""), VOCABULARY, engine.prefill, engine.decode, tokens, steps, cold=number == 0)
    assert bool(torch.isfinite(engine.last).all()) and all(bool(torch.isfinite(layer["state"]).all()) for layer in engine.layers)


def main():
    options = arguments(__doc__)
    mark, record = ranges(False), Record()
    chance, engine = begun(options.seed), Engine()
    torch.cuda.synchronize()
    in_bands(partial(write, engine, record, mark), chance, VOCABULARY, BANDS, options.steps, 4, 30)
    record.finish()


main()
