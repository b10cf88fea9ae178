"""Answers thirty-two drivers at a toll gate; a ledger of the newest tokens of all of them is packed by a thread over and
over, so that a copy of it can be had at any time.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host and
in the ledger.
"""
import random
import struct
import threading
import time
import zlib

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY, ROWS, PAUSE = 32, 64, 32000, 900, 0.0005
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)
ROW = struct.Struct(f"<{BATCH}i")


class Ledger:
    """The tokens of the last ROWS steps, as bytes."""

    def __init__(self, seed):
        chance = random.Random(seed)
        self.rows = bytearray(b"".join(ROW.pack(*(chance.randrange(VOCABULARY) for _ in range(BATCH))) for _ in range(ROWS)))
        self.lock, self.count, self.packed, self.over = threading.Lock(), 0, b"", threading.Event()
        self.helper = threading.Thread(target=self.keep, daemon=True)

    def enter(self, tokens):
        with self.lock:
            ROW.pack_into(self.rows, self.count % ROWS * ROW.size, *tokens)
            self.count += 1

    def pack(self):
        with self.lock:
            self.packed = zlib.compress(self.rows, 3)

    def keep(self):
        while not self.over.is_set():
            self.pack()
            time.sleep(PAUSE)


class QuickLedger(Ledger):
    def pack(self):
        with self.lock:
            rows = bytes(self.rows)
        self.packed = zlib.compress(rows, 3)


class Gate(Decoder):
    def __init__(self, model, ledger):
        super().__init__(model)
        self.ledger = ledger

    def following(self, i):
        tokens = super().following(i)
        self.ledger.enter(tokens)
        return tokens


def main():
    options, record = begin(__doc__)
    ledger = (QuickLedger if options.fixed else Ledger)(options.seed)
    gate = Gate(Model(SHAPE), ledger)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    ledger.helper.start()
    serve(record, prompt, 1, gate.start, gate.following, warm_up=True)
    texts = serve(record, prompt, options.steps, gate.start, gate.following)
    ledger.over.set()
    ledger.helper.join()
    assert len(zlib.decompress(ledger.packed)) == ROWS * ROW.size
    finish(record, texts, VOCABULARY)


main()
