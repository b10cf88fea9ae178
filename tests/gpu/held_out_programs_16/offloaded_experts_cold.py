"""Starts cold: a mixture of experts, which lie in pinned memory; of each layer's eight, four are on the GPU as well.

A step is one pass through the model and the draw of a token, until `.item()` has it: in each layer the host reads by `.tolist()`
which experts are chosen, and sends up those that are not there. A prefill step takes in one prompt, a decode step one token. A
request is one text. With --ranges each layer of each pass has "layer" and its number around it, and there are no others.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from collections import OrderedDict
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, ranges
from parts import MADE, Reader, begun, evened, heads_of, in_bands, one_text, swiglu, weight

VOCABULARY, LENGTH, EXPERTS, CHOSEN, ROOMS = 32000, 512, 8, 2, 4
WIDTH, SHARED, INNER, LAYERS, HEADS, KV_HEADS = 1536, 1024, 1408, 12, 12, 4  # SHARED: of the expert that all tokens have
BANDS = ((90, 140), (240, 330), (30, 60), (150, 210))  # of prompts' lengths, by turns


class Engine(Reader):
    def __init__(self, mark):
        super().__init__(VOCABULARY, WIDTH, SHARED, LAYERS, HEADS, KV_HEADS, LENGTH)
        self.mark, self.sent = mark, 0
        for layer in self.layers:
            away = torch.empty(EXPERTS, 3, INNER, WIDTH, dtype=torch.bfloat16, pin_memory=True)
            away.copy_(torch.empty(EXPERTS, 3, INNER, WIDTH, **MADE).normal_(0, WIDTH ** -0.5))
            layer.update(router=weight(EXPERTS, WIDTH), away=away, rooms=torch.zeros(ROOMS, 3, INNER, WIDTH, **MADE),
                         where=OrderedDict())  # which expert is in which room, the one used last behind the others

    def expert(self, layer, number):
        """Its three matrices, which are sent up without a wait where they are not there."""
        where = layer["where"]
        if number in where:
            where.move_to_end(number)
        else:
            where[number] = len(where) if len(where) < ROOMS else where.popitem(last=False)[1]
            layer["rooms"][where[number]].copy_(layer["away"][number], non_blocking=True)
            self.sent += 1
        return layer["rooms"][where[number]].unbind(0)

    def feed(self, layer, h):
        top = F.linear(h, layer["router"]).float().topk(CHOSEN, -1)
        shares, users = top.values.softmax(-1).to(torch.bfloat16), {}
        for row, pair in enumerate(top.indices.tolist()):
            for slot, number in enumerate(pair):
                users.setdefault(number, []).append((row, slot))
        added = swiglu(layer, h)
        # Those that are there come first, before another takes their room.
        for number in sorted(users, key=lambda number: number not in layer["where"]):
            gate, up, down = self.expert(layer, number)
            rows, slots = torch.tensor(list(zip(*users[number]))).to("cuda").unbind(0)
            x = h.index_select(0, rows)
            y = (F.silu(F.linear(x, gate)) * F.linear(x, up)) @ down
            added.index_add_(0, rows, y * shares[rows, slots][:, None])
        return added

    def through(self, ids, cos, sin, attend):
        x = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            with self.mark("layer %d" % i):
                q, k, v = heads_of(layer, evened(x), cos, sin)
                x = x + F.linear(attend(i, q, k, v), layer["out"])
                x = x + self.feed(layer, evened(x))
        return x


def write(engine, record, mark, tokens, steps, number):
    one_text(record, mark, ("", "", ""), VOCABULARY, engine.prefill, engine.decode, tokens, steps, cold=number == 0)
    assert bool(torch.isfinite(engine.last).all()) and len(tokens) + steps <= LENGTH
    assert engine.sent and all(len(set(layer["where"].values())) == len(layer["where"]) <= ROOMS for layer in engine.layers)


def main():
    options = arguments(__doc__)
    unmarked, record = ranges(False), Record()
    chance, engine = begun(options.seed), Engine(ranges(options.ranges))
    torch.cuda.synchronize()
    in_bands(partial(write, engine, record, unmarked), chance, VOCABULARY, BANDS, options.steps, 4, 30)
    record.finish()


main()
