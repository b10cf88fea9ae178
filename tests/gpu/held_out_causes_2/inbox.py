"""Sorts an inbox: eight mails at a time come as JSON, are cleaned, cut into pieces of words and read by a model.

A step is one batch, from its mails until their folders, a token for each, are in a list on the host.
"""
import json
import random
import re
import string
import threading

import torch

from common_loop import begin, finish, serve_prefills
from common_model import Model, Shape, greedy

BATCH, PROMPT, VOCABULARY, LONGEST, STORED = 8, 384, 32000, 12, 16
TAG, LINK, SPACE = re.compile(r"<[^>]*>"), re.compile(r"https?://\S+"), re.compile(r"\s+")
WORD = re.compile(r"[a-z]+|[0-9]|[^\sa-z0-9]")


def make_pieces():
    """Numbers of pieces of words; 0 is the filler, 1 stands for what is unknown."""
    chance = random.Random(1)
    pieces = list(string.ascii_lowercase + string.digits)
    while len(pieces) < 12000:
        pieces.append("".join(chance.choices(string.ascii_lowercase, k=chance.choice((2, 3, 3, 4, 6, 8)))))
    return {piece: number + 2 for number, piece in enumerate(pieces)}


PIECES = make_pieces()


def make_mail(chance):
    known = list(PIECES)
    # Most of a mail quotes older ones, of which the model sees only what fits.
    words = ["".join(chance.choices(known, k=chance.choice((1, 1, 2)))) for _ in range(500)]
    words[10], words[200] = "<b>Today:</b>", "https://example.org/" + words[11]
    subject, body = " ".join(words[3:9]), " ".join(words[9:])
    return json.dumps({"from": words[0], "to": words[1:3], "subject": subject, "body": body})


def cut(word):
    """The longest known piece at the front, then the same with the rest."""
    numbers, start = [], 0
    while start < len(word):
        for end in range(min(len(word), start + LONGEST), start, -1):
            number = PIECES.get(word[start:end])
            if number is not None:
                break
        numbers.append(1 if number is None else number)
        start = end
    return numbers


def prepare(mails):
    """Token numbers of some mails, each cut or filled to one length."""
    rows = []
    for raw in mails:
        mail = json.loads(raw)
        text = TAG.sub(" ", mail["subject"] + " " + mail["body"])
        text = SPACE.sub(" ", LINK.sub(" link ", text)).lower()
        numbers = [number for word in WORD.findall(text) for number in cut(word)]
        rows.append((numbers + [0] * PROMPT)[:PROMPT])
    return torch.tensor(rows)


class Inbox:
    def __init__(self, seed, steps, fixed):
        chance = random.Random(seed)
        self.stored = [[make_mail(chance) for _ in range(BATCH)] for _ in range(STORED)]
        self.ready, self.worker, self.model = [], None, None
        if fixed:
            # Mails are prepared as they come in, long before their turn.
            self.worker = threading.Thread(target=self.prepare_all, args=(steps + 1,))
            self.worker.start()

    def mails(self, i):
        return self.stored[i % STORED]

    def prepare_all(self, count):
        for i in range(count):
            self.ready.append(prepare(self.mails(i)))

    def open(self, model):
        self.model = model
        if self.worker:
            self.worker.join()

    def read(self, i):
        ids = self.ready[i] if self.ready else prepare(self.mails(i))
        return greedy(self.model.logits(self.model.hidden(ids.to("cuda"))))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    inbox = Inbox(options.seed, options.steps, options.fixed)
    inbox.open(Model(Shape(layers=6, vocabulary=VOCABULARY, room=PROMPT)))
    finish(record, serve_prefills(record, options.steps, inbox.read, BATCH, PROMPT), VOCABULARY)


main()
