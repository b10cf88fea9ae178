"""Forty-eight lock keepers go on with reports of 2000 tokens. Logits of sixteen of them are copied to the host on a second stream
and looked at by an inspector, a thread; Python writes the journal of the step before while the GPU works.

The steps are launched one kernel after the other. A step is one decode step, from its first call until the tokens are in a
list on the host. --fixed is accepted and changes nothing.
"""
import json
import queue
import threading
import zlib

import torch

from base_loop import Block, Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, READ, INSPECTED, SHEETS = 48, 64, 32000, 2000, 16, 4
SHAPE = Shape(width=4096, inner=14336, layers=6, heads=32, kv_heads=8, vocabulary=VOCABULARY, room=READ + 304, batch=BATCH)


class Lock(Block):
    length = 1  # of the texts, with the newest token

    def look(self, query, keys, values, mask=None):
        return super().look(query, keys[:, :, :self.length], values[:, :, :self.length])


class Canal(Model):
    def cache(self):
        """What was read before; the prompt goes to the front of it."""
        return tuple(empty.normal_() for empty in super().cache())

    def places(self, position):
        return self.cos[position], self.sin[position], None


class Inspector(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        # Two in the queue, one in hand and one that is written are as many as there are sheets.
        self.sheets, self.highest = queue.Queue(maxsize=SHEETS - 2), float("-inf")

    def run(self):
        while True:
            found = self.sheets.get()
            if found is None:
                return
            there, sheet = found
            there.synchronize()
            self.highest = max(self.highest, sheet.amax().item())

    def close(self):
        self.sheets.put(None)
        self.join()


class Keepers(Decoder):
    def __init__(self, model, inspector):
        super().__init__(model, graphed=False)
        self.inspector, self.copies, self.shown, self.journal = inspector, torch.cuda.Stream(), 0, 0
        self.sheets = [torch.zeros(INSPECTED, VOCABULARY, dtype=SHAPE.dtype).pin_memory() for _ in range(SHEETS)]
        self.said = [0] * BATCH

    def step(self):
        logits = self.model.next(self.tokens, self.position, self.cache)
        self.tokens.copy_(greedy(logits))
        self.position.add_(1)
        self.show(logits)

    def show(self, logits):
        sheet, there = self.sheets[self.shown % SHEETS], torch.cuda.Event()
        self.shown += 1
        self.copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.copies):
            sheet.copy_(logits[:INSPECTED], non_blocking=True)
            logits.record_stream(self.copies)
            there.record()
        self.inspector.sheets.put((there, sheet))

    def write(self):
        lines = [json.dumps({"lock": lock, "token": token}) for lock, token in enumerate(self.said)]
        self.journal += len(zlib.compress("\n".join(lines).encode(), 1))

    def start(self, prompt):
        said = super().start(prompt)
        self.position.fill_(READ)
        return said

    def following(self, i):
        Lock.length = READ + i + 1
        self.advance()
        self.write()
        self.said = self.words()
        return self.said


def main():
    options, record = begin(__doc__)
    inspector = Inspector()
    inspector.start()
    keepers = Keepers(Canal(SHAPE, block=Lock), inspector)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, keepers.start, keepers.following, warm_up=True)
    texts = serve(record, prompt, options.steps, keepers.start, keepers.following)
    inspector.close()
    print(f"journal of {keepers.journal} bytes, highest logit {inspector.highest:.3f}")
    finish(record, texts, VOCABULARY)


main()
