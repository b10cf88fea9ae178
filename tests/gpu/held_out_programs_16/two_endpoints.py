"""One process, two services: /chat writes answers, several at a time, and between their steps /rerank scores passages.

A thread takes calls in, when they come, and makes tokens of them in plain Python; the main thread has them by a queue. A step is
one pass through one of the models until `.tolist()` has what comes of it: of kind other for the scores of a call's pairs of
question and passage, a prefill step takes in one prompt, a decode step a token of each answer under way. A request is one call,
from when its text is there. With --ranges the thread has "tokenize", and the main one "/rerank" with the number of passages
around such a step, and "/chat" around each of the others, with the number of answers.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
import queue
import threading
import zlib
from collections import deque

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges
from parts import MADE, SIZE, Plain, attended, begun, drawn, shares_of, weight

VOCABULARY, LENGTH, SEATS, FIRST = 32000, 352, 6, 4  # FIRST: how many calls wait when it opens
CHAT = (2048, 5632, 18, 16, 4)  # width, inner width, layers, heads, heads of keys and values
SORT = (1024, 2816, 12, 8, 2)
GAP = (0.01, 0.07)  # seconds from call to call


def sentence(plan, words):
    return " ".join("".join(plan.choices("abcdefghijklmnopqrstuvwxyz", k=plan.randrange(3, 10))) for _ in range(words))


def tokens_of(text):  # each three letters of a word are one
    return [zlib.crc32(word[i:i + 3].encode()) % VOCABULARY for word in text.lower().split() for i in range(0, len(word), 3)]


class Chat:
    def __init__(self, plan, words, wanted):
        text = sentence(plan, words)
        self.start, self.wanted, self.text, self.first = now(), wanted, [], None
        self.prompt = tokens_of(text)


class Rerank:
    def __init__(self, plan, passages):
        question, texts = sentence(plan, 8), [sentence(plan, plan.randrange(10, 56)) for _ in range(passages)]
        self.start = now()
        self.pairs = [tokens_of(question + " " + text) for text in texts]


def call(plan):
    if plan.random() < 0.55:
        return Chat(plan, plan.randrange(12, 96), plan.randrange(6, 20))
    return Rerank(plan, plan.randrange(3, 25))


def clients(plan, lobby, stop, mark):
    while not stop.wait(plan.uniform(*GAP)):
        with mark("tokenize"):
            lobby.put(call(plan))


class Sorter(Plain):  # all places of a pair see each other
    def __init__(self):
        super().__init__(VOCABULARY, *SORT, LENGTH)
        self.verdict = weight(1, SORT[0])

    def scores(self, pairs):
        longest = max(map(len, pairs))
        ids = torch.tensor([pair + [0] * (longest - len(pair)) for pair in pairs]).to("cuda")
        lengths = torch.tensor(list(map(len, pairs))).to("cuda")
        hidden = (self.columns[:longest] >= lengths[:, None])[:, None, None, None]
        x = self.through(ids, self.cos[:longest], self.sin[:longest], lambda i, q, k, v: attended(shares_of(q, k, hidden), v))
        return F.linear(x[:, 0], self.verdict).float()[:, 0].tolist()


class Writer(Plain):  # each answer under way has a row of the cache
    def __init__(self):
        super().__init__(VOCABULARY, *CHAT, LENGTH)
        self.cache = torch.zeros(2, CHAT[2], SEATS, CHAT[4], LENGTH, SIZE, **MADE)

    def run(self, ids, rows, places):
        """Lists, of which those of ids and places are texts x count. A token of each text."""
        span = max(map(max, places)) + 1
        ids, rows, places = (torch.tensor(numbers).to("cuda") for numbers in (ids, rows, places))
        hidden = (self.columns[:span] > places[:, :, None])[:, None, None]

        def attend(i, q, k, v):
            keys, values = self.cache[0, i], self.cache[1, i]
            keys[rows[:, None], :, places] = k.transpose(1, 2)
            values[rows[:, None], :, places] = v.transpose(1, 2)
            return attended(shares_of(q, keys[:, :, :span][rows], hidden), values[:, :, :span][rows])

        self.last = self.logits(self.through(ids, self.cos[places][:, None], self.sin[places][:, None], attend))
        return drawn(self.last, 0.8)[:, 0].tolist()


class Server:
    def __init__(self, record, mark):
        self.record, self.mark, self.sorter, self.writer = record, mark, Sorter(), Writer()
        self.reranks, self.chats, self.running, self.seats = deque(), deque(), [], list(range(SEATS))

    def look(self, lobby):
        """Takes what has come in; where there is nothing to do, waits for it."""
        while not (lobby.empty() and (self.reranks or self.chats or self.running)):
            came = lobby.get()
            (self.reranks if isinstance(came, Rerank) else self.chats).append(came)

    def sort(self, rerank):
        count, begin = sum(map(len, rerank.pairs)), now()
        with self.mark("/rerank %d" % len(rerank.pairs)):
            scores = self.sorter.scores(rerank.pairs)
        end = now()
        self.record.step("other", begin, end, count, len(scores), self.warm_up)
        self.record.request(rerank.start, end, end, count, 0, self.warm_up)
        assert len(scores) == len(rerank.pairs) and all(map(math.isfinite, scores))

    def passed(self, kind, chats, ids, places):
        begin = now()
        with self.mark("/chat %d" % len(chats)):
            tokens = self.writer.run(ids, [chat.seat for chat in chats], places)
        end = now()
        self.record.step(kind, begin, end, sum(map(len, ids)), len(chats), self.warm_up)
        for chat, token in zip(chats, tokens):
            chat.text.append(token)
            chat.first, chat.end = chat.first or end, end

    def leave(self, chat):
        self.seats.append(chat.seat)
        self.record.request(chat.start, chat.first, chat.end, len(chat.prompt), len(chat.text), self.warm_up)
        assert all(0 <= token < VOCABULARY for token in chat.text) and len(chat.prompt) + len(chat.text) <= LENGTH

    def serve(self, lobby, steps, warm_up=False):
        """Until so many decode steps are made. In between, one call of each kind is taken up at most."""
        self.warm_up = warm_up
        while steps:
            self.look(lobby)
            if self.reranks:
                self.sort(self.reranks.popleft())
            if self.chats and self.seats:
                chat = self.chats.popleft()
                chat.seat = self.seats.pop()
                self.passed("prefill", [chat], [chat.prompt], [list(range(len(chat.prompt)))])
                self.running.append(chat)
            if self.running:
                places = [[len(chat.prompt) + len(chat.text) - 1] for chat in self.running]
                self.passed("decode", self.running, [chat.text[-1:] for chat in self.running], places)
                steps -= 1
                for chat in self.running:
                    if len(chat.text) > chat.wanted or not steps:
                        self.leave(chat)
                self.running = [chat for chat in self.running if len(chat.text) <= chat.wanted]
        assert bool(torch.isfinite(self.writer.last).all())


def main():
    options = arguments(__doc__)
    mark, record, plan = ranges(options.ranges), Record(), begun(options.seed)
    server, lobby, stop = Server(record, mark), queue.Queue(), threading.Event()
    torch.cuda.synchronize()
    lobby.put(Rerank(plan, 6))
    lobby.put(Chat(plan, 40, 4))
    server.serve(lobby, 4, warm_up=True)
    for _ in range(FIRST):
        lobby.put(call(plan))
    thread = threading.Thread(target=clients, args=(plan, lobby, stop, mark), daemon=True)
    thread.start()
    server.serve(lobby, options.steps)
    stop.set()
    thread.join()
    record.finish()


main()
