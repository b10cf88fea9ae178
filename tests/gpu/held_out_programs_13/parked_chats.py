"""Three chats, one cache on the GPU: what was said waits in pinned memory on the host, and comes back when its chat goes on.

A step lasts until `.item()` has its token: a prefill step brings the chat's keys and values up, if another one's are there, and
takes in a question, eagerly; a decode step replays a CUDA graph. Behind an answer a second stream brings its chat's cache down,
while the next question is at work. A request is one question. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))

import torch

from contract import Record, arguments, ranges
from parts import MADE, SIZE, Plain, attended, begun, captured, drawn, in_bands, one_text, prompt, shares_of

VOCABULARY, LENGTH = 32000, 640
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 1536, 5120, 28, 12, 4
ORDER = (0, 1, 0, 0, 2, 1)  # of chats, by turns
BANDS = ((90, 150), (20, 60), (200, 280), (40, 90))  # of questions' lengths, by turns
SHAPE = (LENGTH, 2, LAYERS, KV_HEADS, SIZE)


class Chat:
    def __init__(self):
        self.count, self.before = 0, []  # how many tokens the cache has, and the last one drawn, which it has not
        self.kept = torch.zeros(SHAPE, dtype=torch.bfloat16, pin_memory=True)
        self.down = torch.cuda.Event()


class Engine(Plain):
    def __init__(self):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH)
        self.cache, self.leaving = torch.zeros(SHAPE, **MADE), torch.zeros(SHAPE, **MADE)
        self.copies, self.filled, self.latest = torch.cuda.Stream(), torch.cuda.Event(), torch.cuda.Event()
        self.ids, self.place = (torch.zeros(1, dtype=torch.int64, device="cuda") for _ in range(2))
        self.there, self.brought = None, 0
        self.graph = captured(self.word)

    def run(self, ids, places, span):
        hidden = self.columns[:span] > places[:, None]

        def attend(i, q, k, v):
            keys, values = self.cache[:, 0, i], self.cache[:, 1, i]  # places x heads x size
            keys.index_copy_(0, places, k.transpose(0, 1))
            values.index_copy_(0, places, v.transpose(0, 1))
            return attended(shares_of(q, keys[:span].transpose(0, 1), hidden), values[:span].transpose(0, 1))

        x = self.through(ids, self.cos.index_select(0, places), self.sin.index_select(0, places), attend)
        self.last = self.logits(x)
        self.ids.copy_(drawn(self.last, 0.8)[0])

    def word(self):
        self.run(self.ids, self.place, LENGTH)
        self.place.add_(1)

    def prefill(self, tokens):
        chat = self.chat
        start = chat.count
        if start and self.there is not chat:
            torch.cuda.current_stream().wait_event(chat.down)
            self.cache[:start].copy_(chat.kept[:start], non_blocking=True)
            self.brought += 1
        self.there, chat.count = chat, start + len(tokens)
        self.run(torch.tensor(tokens).to("cuda"), self.columns[start:chat.count], chat.count)
        self.place.fill_(chat.count)
        chat.before = [self.ids.item()]
        return chat.before[0]

    def decode(self, place):
        self.graph.replay()
        self.chat.count += 1
        self.chat.before = [self.ids.item()]
        return self.chat.before[0]

    def park(self):
        """Launches the way down of the chat that is there, by a second buffer, which the last one's must have left."""
        chat, main = self.chat, torch.cuda.current_stream()
        main.wait_event(self.latest)
        self.leaving[:chat.count].copy_(self.cache[:chat.count])
        self.filled.record(main)
        self.copies.wait_event(self.filled)
        with torch.cuda.stream(self.copies):
            chat.kept[:chat.count].copy_(self.leaving[:chat.count], non_blocking=True)
        chat.down.record(self.copies)
        self.latest = chat.down


def ask(engine, record, mark, chat, question, steps, warm_up=False):
    if chat.count + 1 + len(question) + steps > LENGTH:  # the window is full: a new chat in its place
        chat.count, chat.before = 0, []
    engine.chat = chat
    there = chat.count
    tokens = chat.before + question
    one_text(record, mark, ("", "", ""), VOCABULARY, engine.prefill, engine.decode, tokens, steps, warm_up)
    engine.park()
    assert bool(torch.isfinite(engine.last).all()) and engine.place.item() == chat.count == there + len(tokens) + steps <= LENGTH


def main():
    options = arguments(__doc__)
    mark, record = ranges(False), Record()
    chance, engine = begun(options.seed), Engine()
    chats = [Chat() for _ in range(max(ORDER) + 1)]
    trial = Chat()
    for length in (100, 40):
        ask(engine, record, mark, trial, prompt(chance, VOCABULARY, length), 3, warm_up=True)
        engine.there = None  # so that the second one brings it up
    brought = engine.brought

    def write(question, steps, number):
        ask(engine, record, mark, chats[ORDER[number % len(ORDER)]], question, steps)

    in_bands(write, chance, VOCABULARY, BANDS, options.steps, 3, 25)
    assert brought == 1 and engine.brought > brought
    record.finish()


main()
