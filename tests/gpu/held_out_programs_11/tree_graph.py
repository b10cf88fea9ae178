"""One CUDA graph that checks a tree of guesses, keeps the longest branch that holds and grows the next tree.

A step is one pass through the model, with all that chooses tokens, until these are in pinned memory and the stream was waited
for: a prefill step takes in one prompt, eagerly, and yields one token; a decode step replays the graph, in which the last
token and eight guesses go through the model together, and yields one to four tokens. A request is one text. With --ranges a
text has "story" around it, inside are "opening" for the prefill step and "tree" for each decode step, with "fetch" in both.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges
from parts import (MADE, SIZE, attended, begun, captured, drawn, heads_of, in_bands, layer_of, prompt, shares_of, swiglu, tables,
                   weight)

VOCABULARY, LENGTH = 32000, 448
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 20, 16, 4
PARENTS = (0, 0, 0, 0, 1, 1, 2, 4, 5)  # of each node; the first is the last token, the others are guesses
GUESSES = (3, 2, 1)  # the likeliest so many words for one, two and three places further on
WORDS = (0, 1, 2, 3, 4, 5, 4, 6, 6)  # which of the last token and these six words stands at each node
NODES, DEEP, LENIENCE = len(PARENTS), len(GUESSES), 0.5
BANDS = ((60, 110), (240, 330), (140, 200))  # of prompt lengths, by turns


def branch(node):
    """From the first node to this one."""
    return [0] if node == 0 else branch(PARENTS[node]) + [node]


class Engine:
    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.layers = [layer_of(WIDTH, INNER, HEADS, KV_HEADS) for _ in range(LAYERS)]
        self.further = [weight(WIDTH, WIDTH) for _ in range(DEEP)]
        self.cache = torch.zeros(2, LAYERS, KV_HEADS, LENGTH, SIZE, **MADE)
        self.cos, self.sin = tables(LENGTH, SIZE)
        self.columns = torch.arange(LENGTH, device="cuda")
        branches = [branch(node) for node in range(NODES)]
        self.parents, self.words = torch.tensor(PARENTS, device="cuda"), torch.tensor(WORDS, device="cuda")
        self.depth = torch.tensor([len(nodes) - 1 for nodes in branches], device="cuda")
        self.above = torch.tensor([[node in nodes for node in range(NODES)] for nodes in branches], device="cuda")
        self.paths = torch.tensor([nodes + [nodes[-1]] * (DEEP + 1 - len(nodes)) for nodes in branches], device="cuda")
        self.ids = torch.zeros(NODES, dtype=torch.int64, device="cuda")
        self.place = torch.zeros(1, dtype=torch.int64, device="cuda")  # of the last token, which is not in the cache yet
        self.found = torch.zeros(DEEP + 2, dtype=torch.int64, device="cuda")  # how many guesses hold, they, and the token behind
        self.fetched = torch.zeros(DEEP + 2, dtype=torch.int64, pin_memory=True)

    def norm(self, x):
        return F.layer_norm(x, (WIDTH,), self.one)

    def states(self, ids, positions, spots, hidden):
        """The last layer's states; what the tokens leave in the cache goes to `spots`."""
        span = hidden.shape[1]
        cos, sin = self.cos.index_select(0, positions), self.sin.index_select(0, positions)
        x = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            keys, values = self.cache[0, i], self.cache[1, i]
            q, k, v = heads_of(layer, self.norm(x), cos, sin)
            keys.index_copy_(1, spots, k)
            values.index_copy_(1, spots, v)
            x = x + F.linear(attended(shares_of(q, keys[:, :span], hidden), values[:, :span]), layer["out"])
            x = x + swiglu(layer, self.norm(x))
        return self.norm(x)

    def grow(self, state, token):
        """A new tree behind `state` (1 x width), with `token` as its first node."""
        guesses = [token]
        for further, count in zip(self.further, GUESSES):
            logits = F.linear(self.norm(state + F.silu(F.linear(state, further))), self.head).float()
            guesses.append(logits.topk(count, -1).indices[0])
        self.ids.copy_(torch.cat(guesses).index_select(0, self.words))
        self.found[DEEP + 1:].copy_(token)

    def step(self):
        ahead = self.columns - self.place
        above = self.above.index_select(1, ahead.clamp(0, NODES - 1)) & (ahead < NODES)
        spots = self.place + self.columns[:NODES]
        states = self.states(self.ids, self.place + self.depth, spots, (ahead >= 0) & ~above)
        self.last = F.linear(states, self.head).float()
        before = self.last.index_select(0, self.parents)
        least = before.mean(-1) + LENIENCE * before.std(-1)
        wrong = before.gather(1, self.ids[:, None])[:, 0] < least
        wrong[:1].fill_(False)
        broken = (self.above & wrong).any(-1)
        best = self.depth.masked_fill(broken, -1).argmax(-1, keepdim=True)
        path, held = self.paths.index_select(0, best)[0], self.depth.index_select(0, best)
        both = self.cache.view(-1, LENGTH, SIZE)
        both.index_copy_(1, self.place + self.columns[:DEEP + 1], both.index_select(1, self.place + path))
        self.found[:1].copy_(held)
        self.found[1:DEEP + 1].copy_(self.ids.index_select(0, path[1:]))
        self.place.add_(held + 1)
        self.grow(states.index_select(0, best), drawn(self.last.index_select(0, best), 0.8)[0])

    def prefill(self, tokens):
        count = len(tokens)
        places = self.columns[:count]
        states = self.states(torch.tensor(tokens).to("cuda"), places, places, places > places[:, None])
        self.last = F.linear(states[-1:], self.head).float()
        self.found.zero_()
        self.place.fill_(count)
        self.grow(states[-1:], drawn(self.last, 0.8)[0])

    def fetch(self):
        """The new tokens."""
        self.fetched.copy_(self.found, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        held, *tokens = self.fetched.tolist()
        return tokens[:held] + tokens[DEEP:]


def write(engine, graph, record, mark, tokens, steps, number, warm_up=False):
    count = len(tokens)
    with mark("story"):
        start = now()
        with mark("opening"):
            engine.prefill(tokens)
            with mark("fetch"):
                text = engine.fetch()
        first = end = now()
        record.step("prefill", start, first, count, 1, warm_up)
        for _ in range(steps):
            begin = now()
            with mark("tree"):
                graph.replay()
                with mark("fetch"):
                    new = engine.fetch()
            end = now()
            record.step("decode", begin, end, len(new), 1, warm_up)
            text += new
    record.request(start, first, end, count, len(text), warm_up)
    assert all(0 <= token < VOCABULARY for token in text) and bool(torch.isfinite(engine.last).all())
    assert engine.place.item() == count + len(text) - 1 <= LENGTH - NODES


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, engine = begun(options.seed), Engine()
    graph = captured(engine.step)
    write(engine, graph, record, mark, prompt(chance, VOCABULARY, 120), 4, None, warm_up=True)
    in_bands(partial(write, engine, graph, record, mark), chance, VOCABULARY, BANDS, options.steps, 3, 25)
    record.finish()


main()
