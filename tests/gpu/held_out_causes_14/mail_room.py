"""A mail room that finds a department for twelve mails at a time. A mail comes as JSON, is put into a letter form, cut into
pieces by pairs that are merged, and read by a captured model."""
import json
import random
import zlib
from concurrent.futures import ThreadPoolExecutor

from base_loop import *

BATCH, COUNT = 12, 512
SHAPE = Shape(layers=10, kv_heads=16, room=COUNT, batch=BATCH)
CONSONANTS, VOWELS = "lnrstmdk", "aeiou"
FORM = "kota {sender} nuli {subject} madera {body}"
BLANK = 0


def merges(seed):
    """Which pairs of pieces become one, in the order of their ranks."""
    chance = random.Random(seed)
    syllables = [a + b for a in CONSONANTS for b in VOWELS]
    short = [(a, b) for a in CONSONANTS for b in VOWELS]
    long = [(a, b) for a in syllables for b in syllables]
    chance.shuffle(short)
    chance.shuffle(long)
    return {pair: rank for rank, pair in enumerate(short + long)}


def mails(seed):
    """Mails of made-up words of three syllables."""
    chance = random.Random(seed)

    def words(count):
        return " ".join("".join(chance.choice(CONSONANTS) + chance.choice(VOWELS) for _ in range(3)) for _ in range(count))

    return [json.dumps(dict(sender=words(2), subject=words(6), body=words(260))) for _ in range(BATCH)]


class Cutter:
    def __init__(self, ranks, vocabulary):
        self.ranks, self.vocabulary = ranks, vocabulary

    def pieces(self, word):
        """Merges the pair of the lowest rank until there is none."""
        parts = list(word)
        while len(parts) > 1:
            best, at = None, 0
            for i in range(len(parts) - 1):
                rank = self.ranks.get((parts[i], parts[i + 1]))
                if rank is not None and (best is None or rank < best):
                    best, at = rank, i
            if best is None:
                break
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        return parts

    def numbers(self, mail):
        row = []
        for word in FORM.format(**json.loads(mail)).split():
            for piece in self.pieces(word):
                row.append(zlib.crc32(piece.encode()) % self.vocabulary)
        return (row + [BLANK] * COUNT)[:COUNT]


class MailRoom:
    def __init__(self, model, bags, helper):
        self.model, self.bags, self.helper = model, bags, helper
        self.cutter = Cutter(merges(1), model.shape.vocabulary)
        self.ids = torch.zeros(BATCH, COUNT, dtype=torch.long, device="cuda")
        self.departments = torch.zeros(BATCH, dtype=torch.long, device="cuda")
        self.read = replayed(self.find)
        self.coming = helper.submit(self.open_bag, 0) if helper else None

    def find(self):
        self.departments.copy_(self.model.logits(self.model.hidden(self.ids)).argmax(-1))

    def open_bag(self, i):
        return torch.tensor([self.cutter.numbers(mail) for mail in self.bags[i % len(self.bags)]])

    def sort_mail(self, i):
        self.ids.copy_(self.coming.result() if self.helper else self.open_bag(i))
        self.read()
        if self.helper:
            self.coming = self.helper.submit(self.open_bag, i + 1)
        return self.departments.tolist()


def main():
    options, record = begin(__doc__)
    helper = ThreadPoolExecutor(1) if options.fixed else None
    room = MailRoom(Model(SHAPE), [mails(options.seed * 10 + i) for i in range(6)], helper)
    texts = serve_prefills(record, options.steps, room.sort_mail, BATCH, COUNT)
    finish(record, texts, SHAPE.vocabulary)


main()
