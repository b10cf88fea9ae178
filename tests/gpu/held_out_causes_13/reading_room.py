"""A reading room: eight books' chapters of 1024 words at a time, cut into words and numbered by plain Python while the
wide model reads the chapters before. (`--fixed` changes nothing.)"""
import random
import zlib

from base_loop import *

BATCH, COUNT = 8, 1024
SHAPE = Shape(width=4096, inner=14336, layers=4, heads=32, kv_heads=8, room=COUNT, batch=BATCH)


def chapters(seed):
    """Chapters of made-up words."""
    chance = random.Random(seed)
    return [" ".join("".join(chance.choices("aeioulnrst", k=6)) for _ in range(COUNT)) for _ in range(BATCH)]


class Reader:
    def __init__(self, model, books):
        self.model, self.books = model, books
        self.prepared = self.number_words(0)

    def number_words(self, i):
        """The numbers of the words of the i-th chapters."""
        rows = []
        for chapter in self.books[i % len(self.books)]:
            row = []
            for word in chapter.split():
                row.append(zlib.crc32(word.encode()) % self.model.shape.vocabulary)
            rows.append(row)
        return torch.tensor(rows)

    def read_chapters(self, i):
        words = self.model.logits(self.model.hidden(self.prepared.cuda())).argmax(-1)
        self.prepared = self.number_words(i + 1)  # the GPU is still reading
        return words.tolist()


def main():
    options, record = begin(__doc__)
    reader = Reader(Model(SHAPE), [chapters(options.seed * 10 + i) for i in range(6)])
    texts = serve_prefills(record, options.steps, reader.read_chapters, BATCH, COUNT)
    finish(record, texts, SHAPE.vocabulary)


main()
