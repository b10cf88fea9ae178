"""Completion in an editor: a file is changed at the cursor again and again, and what stands before it is in the cache already.

A step is one pass through the model and the choice of a token, until `.item()` has it: a prefill step takes in what the
editor wrote and what stands behind it, on top of the cache up to the cursor; a decode step takes in one token. A request
is one completion, of a few tokens. Between two of them the user types for some milliseconds. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import time

import torch

from contract import Record, arguments, now, split
from parts import Decoder, begun, prompt

VOCABULARY, LENGTH = 32000, 1024
TYPED, BEHIND = 24, (40, 120)  # tokens written at the cursor, and of those behind it


class Editor:
    def __init__(self, model, chance):
        self.model, self.chance = model, chance
        self.file = []  # which is in the cache, at its places

    def complete(self, record, steps, warm_up=False):
        if self.file:
            cursor = self.chance.randrange(200, min(600, len(self.file)))
            behind = self.file[cursor:cursor + self.chance.randrange(*BEHIND)]
            added = prompt(self.chance, VOCABULARY, TYPED) + behind
        else:
            cursor, added = 0, prompt(self.chance, VOCABULARY, 480)
        start = now()
        end = cursor + len(added)
        ids, places = torch.tensor([added]).to("cuda"), self.model.columns[cursor:end][None]
        logits = self.model.logits(ids, places, end)
        ids = logits.argmax(-1, keepdim=True)
        answer = [ids.item()]
        first = last = now()
        record.step("prefill", start, first, len(added), 1, warm_up)
        for i in range(steps):
            begin = now()
            place = end + i
            logits = self.model.logits(ids, self.model.columns[place:place + 1][None], place + 1)
            ids = logits.argmax(-1, keepdim=True)
            answer.append(ids.item())
            last = now()
            record.step("decode", begin, last, 1, 1, warm_up)
        record.request(start, first, last, len(added), len(answer), warm_up)
        self.file = self.file[:cursor] + added
        assert all(0 <= token < VOCABULARY for token in answer) and bool(torch.isfinite(logits).all())


def main():
    options = arguments(__doc__)
    record = Record()
    chance = begun(options.seed)
    editor = Editor(Decoder(VOCABULARY, 1536, 4096, 30, 12, 2, 1, LENGTH), chance)
    torch.cuda.synchronize()
    editor.complete(record, 3, warm_up=True)
    editor.complete(record, 3, warm_up=True)
    for steps in split(options.steps, max(3, options.steps // 6)):
        time.sleep(chance.uniform(0.008, 0.03))
        editor.complete(record, steps)
    record.finish()


main()
