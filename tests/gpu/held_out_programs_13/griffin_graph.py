"""A CUDA graph of a network in the manner of Griffin: two layers of a gated recurrence, then one of attention to what is near.

A step is one pass through the model and the draw of six tokens, until the stream has been waited for, behind their copy to pinned
memory: a prefill step takes in six prompts of one length, eagerly, the recurrences by a scan that doubles its reach each time; a
decode step replays the graph. A request is one text. With --ranges a batch has "job" around it, inside are "read" for the prefill
step and "write" for each decode step.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, ranges
from parts import MADE, SIZE, attended, begun, captured, drawn, evened, heads_of, in_batches, shares_of, tables, together, weight

VOCABULARY, LENGTH, REACH, BATCH = 32000, 448, 160, 6
WIDTH, INNER, LAYERS, HEADS, KERNEL = 2048, 6144, 18, 16, 4
LENGTHS = (120, 300, 64, 210, 380)  # of prompts, by turns


def scanned(a, b):
    """h with h[t] = a[t] * h[t - 1] + b[t] over dimension 1, from nothing on."""
    reach = 1
    while reach < b.shape[1]:
        b = torch.cat((b[:, :reach], b[:, reach:] + a[:, reach:] * b[:, :-reach]), 1)
        a = torch.cat((a[:, :reach], a[:, reach:] * a[:, :-reach]), 1)
        reach *= 2
    return b


def layer_of(index):
    layer = dict(gate=weight(INNER, WIDTH), up=weight(INNER, WIDTH), down=weight(WIDTH, INNER), out=weight(WIDTH, WIDTH))
    if index % 3 == 2:
        layer.update(q=weight(WIDTH, WIDTH), k=weight(SIZE, WIDTH), v=weight(SIZE, WIDTH),
                     keys=torch.zeros(BATCH, 1, LENGTH, SIZE, **MADE), values=torch.zeros(BATCH, 1, LENGTH, SIZE, **MADE))
    else:
        layer.update(side=weight(WIDTH, WIDTH), main=weight(WIDTH, WIDTH), taps=weight(KERNEL, WIDTH) * (WIDTH / KERNEL) ** 0.5,
                     keep=weight(WIDTH, SIZE).view(HEADS, SIZE, SIZE), take=weight(WIDTH, SIZE).view(HEADS, SIZE, SIZE),
                     decay=torch.empty(WIDTH, device="cuda").uniform_(-0.4, -0.02),
                     window=torch.zeros(BATCH, KERNEL - 1, WIDTH, **MADE), state=torch.zeros(BATCH, WIDTH, device="cuda"))
    return layer


class Engine:
    def __init__(self):
        self.embedding = weight(VOCABULARY, WIDTH)
        self.layers = [layer_of(i) for i in range(LAYERS)]
        self.cos, self.sin = tables(LENGTH, SIZE)
        self.columns = torch.arange(LENGTH, device="cuda")
        self.ids = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.place = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.fetched = torch.zeros(BATCH, dtype=torch.int64, pin_memory=True)
        self.graph = captured(self.word)

    def attend(self, layer, h, places, span, hidden):
        q, k, v = heads_of(layer, h, self.cos.index_select(0, places), self.sin.index_select(0, places))
        layer["keys"].index_copy_(2, places, k)
        layer["values"].index_copy_(2, places, v)
        return attended(shares_of(q, layer["keys"][:, :, :span], hidden), layer["values"][:, :, :span])

    def recur(self, layer, h):
        count = h.shape[1]
        both = torch.cat((layer["window"], F.linear(h, layer["main"])), 1)
        layer["window"].copy_(both[:, -(KERNEL - 1):])
        x = sum(both[:, i:i + count] * layer["taps"][i] for i in range(KERNEL))
        heads = x.reshape(BATCH, count, HEADS, SIZE).transpose(1, 2)
        keep, take = ((heads @ layer[name]).transpose(1, 2).reshape(BATCH, count, WIDTH) for name in ("keep", "take"))
        fading = layer["decay"] * torch.sigmoid(keep.float())
        new = torch.sqrt(-torch.expm1(2 * fading)) * torch.sigmoid(take.float()) * x.float()
        if count > 1:
            states = scanned(fading.exp(), new)
        else:
            states = fading.exp() * layer["state"][:, None] + new
        layer["state"].copy_(states[:, -1])
        return states.to(torch.bfloat16) * F.gelu(F.linear(h, layer["side"]), approximate="tanh")

    def through(self, ids, places, span):
        """Draws a token behind the last of `ids`; attention sees the cache up to `span`."""
        ago = places[:, None] - self.columns[:span]
        hidden = (ago < 0) | (ago >= REACH)
        x = F.embedding(ids, self.embedding) * WIDTH ** 0.5
        for layer in self.layers:
            h = evened(x)
            mixed = self.attend(layer, h, places, span, hidden) if "keys" in layer else self.recur(layer, h)
            x = x + F.linear(mixed, layer["out"])
            h = evened(x)
            x = x + F.linear(F.gelu(F.linear(h, layer["gate"]), approximate="tanh") * F.linear(h, layer["up"]), layer["down"])
        self.last = F.linear(evened(x[:, -1]), self.embedding).float()
        self.ids.copy_(drawn(self.last, 0.8))

    def word(self):
        self.through(self.ids, self.place, LENGTH)
        self.place.add_(1)

    def fetch(self):
        self.fetched.copy_(self.ids[:, 0], non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return self.fetched.tolist()

    def prefill(self, prompts):
        count = len(prompts[0])
        for layer in self.layers:
            if "state" in layer:
                layer["window"].zero_()
        self.through(torch.tensor(prompts).to("cuda"), self.columns[:count], count)
        self.place.fill_(count)
        return self.fetch()

    def decode(self):
        self.graph.replay()
        return self.fetch()


def serve(engine, record, mark, prompts, steps, warm_up=False):
    count = together(record, mark, ("job", "read", "write"), VOCABULARY, engine, prompts, steps, warm_up)
    assert engine.place.item() == count + steps <= LENGTH and bool(torch.isfinite(engine.last).all())
    assert all(bool(torch.isfinite(layer["state"]).all()) for layer in engine.layers if "state" in layer)


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, engine = begun(options.seed), Engine()
    in_batches(partial(serve, engine, record, mark), chance, VOCABULARY, BATCH, LENGTHS, options.steps, 25, warm_up=(100, 4))
    record.finish()


main()
