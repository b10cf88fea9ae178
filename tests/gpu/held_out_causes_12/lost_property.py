"""Finds the shelf for 64 lost things at a time, each asked for by 256 tokens. A counter, which is a thread, takes the questions
in; many people ask for the same thing in the same words. The model sees all tokens of a question in both directions.

A step is one prefill, from the first look at the counter until the shelves are in a list on the host.
"""
import queue
import threading

import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, serve_prefills

BATCH, PROMPT, VOCABULARY, THINGS, DAYS = 64, 256, 32000, 30, 4
SHAPE = Shape(layers=12, kv_heads=16, vocabulary=VOCABULARY, room=PROMPT, batch=BATCH)


class Both(Block):
    def whole(self, x, cos, sin, keep=None):
        query, key, value = self.split(x, cos, sin)
        heads = F.scaled_dot_product_attention(query, key, value)
        return self.close(x, heads.transpose(1, 2).reshape(x.shape))


class Counter(threading.Thread):
    """Brings `count` batches of questions, each a list of tuples of tokens."""

    def __init__(self, seed, count):
        super().__init__(daemon=True)
        self.count, self.taken, self.days = count, queue.Queue(maxsize=DAYS), []
        generator = torch.Generator().manual_seed(seed)
        for _ in range(DAYS):
            things = torch.randint(VOCABULARY, (THINGS, PROMPT), generator=generator).tolist()
            asked = (torch.randperm(BATCH, generator=generator) % THINGS).tolist()
            self.days.append([tuple(things[thing]) for thing in asked])

    def run(self):
        for i in range(self.count):
            self.taken.put(self.days[i % DAYS])


class Office:
    def __init__(self, model, counter, fixed):
        self.model, self.counter, self.fixed = model, counter, fixed

    def shelves(self, questions):
        x = self.model.hidden(torch.tensor(questions).cuda())
        return greedy(self.model.logits(x.mean(1, keepdim=True)))[:, 0].tolist()

    def read(self, i):
        questions = self.counter.taken.get()
        if not self.fixed:
            return self.shelves(questions)
        different = list(dict.fromkeys(questions))
        known = dict(zip(different, self.shelves(different)))
        return [known[question] for question in questions]


def main():
    options, record = begin(__doc__)
    counter = Counter(options.seed, options.steps + 1)
    counter.start()
    office = Office(Model(SHAPE, block=Both), counter, options.fixed)
    texts = serve_prefills(record, options.steps, office.read, BATCH, PROMPT)
    counter.join()
    finish(record, texts, VOCABULARY)


main()
