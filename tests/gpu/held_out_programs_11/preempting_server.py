"""A batch server with too few pages: when none is left, the text that came last gives up its own and is taken in anew later.

A step is one pass through the model and the draw of a token for each of its texts, until `.tolist()` has them: a prefill step
takes in one text, a new prompt or a prompt with what was answered before, a decode step one token of each running text. Pages
are handed out between steps. A request starts when it arrives. With --ranges a prefill step has "take in" or "take in again"
around it, a decode step "turn" with the number of its texts; inside are "model" and "draw".
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import time
from collections import deque

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges
from parts import MADE, SIZE, attended, begun, drawn, heads_of, layer_of, prompt, shares_of, swiglu, tables, weight

VOCABULARY, LENGTH, PAGE, PAGES, ROWS = 32000, 512, 16, 48, 10
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 1536, 5120, 28, 12, 4
PROMPTS, ANSWERS = (40, 180), (16, 56)  # tokens
SPELL, BUSY, QUIET = 8, (0, 3), (7, 20)  # requests of a busy or a quiet spell, and decode steps from one of them to the next


class Model:
    def __init__(self):
        self.embedding, self.head = torch.empty(VOCABULARY, WIDTH, **MADE).normal_(), weight(VOCABULARY, WIDTH)
        self.one = torch.ones(WIDTH, **MADE)
        self.layers = [layer_of(WIDTH, INNER, HEADS, KV_HEADS) for _ in range(LAYERS)]
        self.keys, self.values = ([torch.zeros(PAGES * PAGE, KV_HEADS, SIZE, **MADE) for _ in range(LAYERS)] for _ in range(2))
        self.columns = torch.arange(LENGTH, device="cuda")
        self.cos, self.sin = tables(LENGTH, SIZE)

    def norm(self, x):
        return F.layer_norm(x, (WIDTH,), self.one)

    def logits(self, ids, places, slots):
        """`ids` and `places` are texts x count, `slots` texts x span: where each text's tokens are in the cache."""
        rows, span = slots.shape
        hidden = (self.columns[:span] > places[:, :, None])[:, None, None]
        cos, sin = self.cos[places][:, None], self.sin[places][:, None]
        own, every = slots.gather(1, places).reshape(-1), slots.reshape(-1)
        x = F.embedding(ids, self.embedding)
        for layer, all_keys, all_values in zip(self.layers, self.keys, self.values):
            q, k, v = heads_of(layer, self.norm(x), cos, sin)
            all_keys.index_copy_(0, own, k.transpose(1, 2).reshape(-1, KV_HEADS, SIZE))
            all_values.index_copy_(0, own, v.transpose(1, 2).reshape(-1, KV_HEADS, SIZE))
            keys = all_keys.index_select(0, every).view(rows, span, KV_HEADS, SIZE).transpose(1, 2)
            values = all_values.index_select(0, every).view(rows, span, KV_HEADS, SIZE).transpose(1, 2)
            x = x + F.linear(attended(shares_of(q, keys, hidden), values), layer["out"])
            x = x + swiglu(layer, self.norm(x))
        return F.linear(self.norm(x[:, -1]), self.head).float()


class Text:
    def __init__(self, tokens, wanted):
        self.prompt, self.wanted = tokens, wanted
        self.answer, self.slots = [], []
        self.start, self.first, self.last = now(), None, None

    def length(self):
        return len(self.prompt) + len(self.answer)


class Arrivals:
    def __init__(self, chance):
        self.chance, self.number, self.due = chance, 0, 0

    def come(self, step):
        """The requests that are due before this decode step."""
        texts = []
        while self.due <= step:
            texts.append(Text(prompt(self.chance, VOCABULARY, self.chance.randrange(*PROMPTS)), self.chance.randrange(*ANSWERS)))
            self.number += 1
            self.due += self.chance.randrange(*(QUIET if self.number // SPELL % 2 else BUSY))
        return texts

    def hurry(self, step):
        """There is nothing to do until the next one."""
        time.sleep(self.chance.uniform(0.005, 0.02))
        self.due = step


class Server:
    def __init__(self, model, record, mark):
        self.model, self.record, self.mark = model, record, mark
        self.free, self.waiting, self.running = list(range(PAGES)), deque(), []
        self.steps, self.warm_up = 0, True

    def pass_through(self, texts, ids, places, slots):
        """A token for each text."""
        with self.mark("model"):
            self.last = self.model.logits(ids, places, slots)
        with self.mark("draw"):
            tokens = drawn(self.last, 0.9)[:, 0].tolist()
        end = now()
        for text, token in zip(texts, tokens):
            text.answer.append(token)
            text.first, text.last = text.first or end, end
        return end

    def give(self, text):
        """A page."""
        page = self.free.pop()
        text.slots += range(page * PAGE, (page + 1) * PAGE)

    def take(self, text):
        """All of its pages."""
        self.free += [slot // PAGE for slot in text.slots[::PAGE]]
        text.slots = []

    def ended(self, text):
        self.record.request(text.start, text.first, text.last, len(text.prompt), len(text.answer), self.warm_up)
        assert all(0 <= token < VOCABULARY for token in text.answer) and len(text.answer) <= text.wanted

    def settle(self):
        for text in [text for text in self.running if len(text.answer) == text.wanted]:
            self.running.remove(text)
            self.take(text)
            self.ended(text)

    def admit(self):
        """Takes the first waiting text in, if there are a row and pages for it and one token more."""
        if not self.waiting or len(self.running) == ROWS:
            return
        text, count = self.waiting[0], self.waiting[0].length()
        if count // PAGE + 1 > len(self.free):
            return
        self.running.append(self.waiting.popleft())
        while len(text.slots) <= count:
            self.give(text)
        begin = now()
        with self.mark("take in again" if text.answer else "take in"):
            both = torch.tensor([text.prompt + text.answer, text.slots[:count]]).to("cuda")
            end = self.pass_through([text], both[:1], self.model.columns[:count][None], both[1:])
        self.record.step("prefill", begin, end, count, 1, self.warm_up)
        self.settle()

    def make_room(self):
        """A slot for the next token of each running text; who came last gives way."""
        for text in list(self.running):
            while text in self.running and len(text.slots) < text.length():
                if self.free:
                    self.give(text)
                else:
                    last = self.running.pop()
                    self.take(last)
                    self.waiting.appendleft(last)

    def turn(self):
        self.make_room()
        texts = list(self.running)
        span = max(text.length() for text in texts)
        begin = now()
        with self.mark(f"turn, {len(texts)}"):
            table = torch.tensor([[text.answer[-1], text.length() - 1] + (text.slots + [0] * span)[:span]
                                  for text in texts]).to("cuda")
            end = self.pass_through(texts, table[:, :1], table[:, 1:2], table[:, 2:])
        self.record.step("decode", begin, end, len(texts), len(texts), self.warm_up)
        self.steps += 1
        self.settle()

    def work(self):
        self.admit()
        if self.running:
            self.turn()


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance = begun(options.seed)
    server, arrivals = Server(Model(), record, mark), Arrivals(chance)
    torch.cuda.synchronize()
    server.waiting.append(Text(prompt(chance, VOCABULARY, 120), 6))
    while server.waiting or server.running:
        server.work()
    server.steps, server.warm_up = 0, False
    while server.steps < options.steps:
        server.waiting.extend(arrivals.come(server.steps))
        if not server.waiting and not server.running:
            arrivals.hurry(server.steps)
        else:
            server.work()
    for text in server.running + [text for text in server.waiting if text.first]:
        server.ended(text)
    assert bool(torch.isfinite(server.last).all())
    record.finish()


main()
