"""Watches sixteen kilns at a time, each by a record of 1024 tokens, and names by one token what is to be done. While the GPU
works, the host writes a ledger of the step before, compresses it, and then looks time and again whether the GPU is done, with
short sleeps between.

The steps are CUDA graphs. A step is one prefill, from its first call until the names are in a list on the host. --fixed is
accepted and changes nothing.
"""
import json
import time
import zlib

import torch

from base_loop import Model, Shape, begin, finish, greedy, prompts, replayed, serve_prefills

BATCH, PROMPT, VOCABULARY, STORED, LINES = 16, 1024, 32000, 4, 400
SHAPE = Shape(layers=16, kv_heads=16, vocabulary=VOCABULARY, room=PROMPT, batch=BATCH)


class Watchers:
    def __init__(self, model, seed):
        self.model, self.written, self.looks = model, 0, 0
        stored = prompts(seed, STORED * BATCH, PROMPT, VOCABULARY).cpu()
        self.stored = [ids.clone().pin_memory() for ids in stored.split(BATCH)]
        self.names = [0] * BATCH
        self.ids = torch.zeros(BATCH, PROMPT, dtype=torch.long, device="cuda")
        self.tokens = torch.zeros(BATCH, dtype=torch.long, device="cuda")
        self.last = torch.zeros(BATCH, SHAPE.width, dtype=SHAPE.dtype, device="cuda")
        self.sheet = torch.zeros(BATCH, SHAPE.width, dtype=SHAPE.dtype).pin_memory()
        self.copies, self.done = torch.cuda.Stream(), torch.cuda.Event()
        self.advance = replayed(self.watch)

    def watch(self):
        x = self.model.hidden(self.ids)
        self.last.copy_(x[:, -1])
        self.tokens.copy_(greedy(self.model.logits(x))[:, 0])

    def write(self):
        lines = [json.dumps({"line": line, "name": self.names[line % BATCH]}) for line in range(LINES)]
        self.written += len(zlib.compress("\n".join(lines).encode(), 1))

    def read(self, i):
        self.ids.copy_(self.stored[i % STORED], non_blocking=True)
        self.advance()
        self.done.record()
        self.write()
        while not self.done.query():
            self.looks += 1
            time.sleep(0.0001)
        with torch.cuda.stream(self.copies):
            self.sheet.copy_(self.last, non_blocking=True)
        self.names = self.tokens.tolist()
        self.copies.synchronize()
        return self.names


def main():
    options, record = begin(__doc__)
    watchers = Watchers(Model(SHAPE), options.seed)
    texts = serve_prefills(record, options.steps, watchers.read, BATCH, PROMPT)
    print(f"ledger of {watchers.written} bytes, longest {watchers.sheet.float().norm(dim=-1).max().item():.2f}")
    finish(record, texts, VOCABULARY)


main()
