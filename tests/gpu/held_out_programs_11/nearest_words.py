"""A language model that looks into a store of a quarter of a million remembered states before each word, and adds to it.

A step is one pass through the model, the search of the store, the mixing of what follows there with what the model thinks,
the draw of a token and its filing in the store, until `.item()` has the token: a prefill step takes in one prompt, a decode
step one token. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch

from contract import Record, arguments, now
from parts import MADE, Decoder, answered, begun, drawn, in_batches

VOCABULARY, LENGTH, KEY = 32000, 1024, 512
STORE, ADDED, NEAREST = 262144, 2048, 64  # places that are filled at the start, room for more, and how many are looked at
SHARE, SHARPNESS = 0.3, 10.0
BANDS = ((90, 140), (420, 600), (180, 280), (60, 90), (640, 760))  # of prompt lengths, by turns


class Engine:
    def __init__(self):
        self.model = Decoder(VOCABULARY + KEY, 1792, 4864, 24, 14, 2, 1, LENGTH)  # the last rows of the head: what to search by
        self.store = torch.zeros(STORE + ADDED, KEY, **MADE)
        self.store[:STORE].normal_(0, KEY ** -0.5)
        self.next_words = torch.randint(VOCABULARY, (STORE + ADDED,), device="cuda")
        self.filled = STORE

    def word(self, ids, start):
        end = start + ids.shape[1]
        logits, key = self.model.logits(ids, self.model.columns[start:end][None], end).split((VOCABULARY, KEY), -1)
        key = (key / key.norm(dim=-1, keepdim=True)).to(torch.bfloat16)
        near, which = (self.store[:self.filled] @ key[0]).float().topk(NEAREST)
        remembered = torch.zeros(VOCABULARY, device="cuda").index_add_(0, self.next_words[which], (near * SHARPNESS).softmax(-1))
        self.chances = (1 - SHARE) * logits.softmax(-1) + SHARE * remembered
        self.ids = drawn(self.chances.log())
        self.store[self.filled:self.filled + 1] = key
        self.next_words[self.filled:self.filled + 1] = self.ids[0]
        self.filled += 1
        return [self.ids.item()]

    def prefill(self, prompts):
        self.place = len(prompts[0])
        return self.word(torch.tensor(prompts).to("cuda"), 0)

    def decode(self):
        self.place += 1
        return self.word(self.ids, self.place - 1)


def serve(engine, record, prompts, steps, warm_up=False):
    count, filled = len(prompts[0]), engine.filled
    start = now()
    texts = [engine.prefill(prompts)]
    answered(record, texts, VOCABULARY, start, count, steps, engine.decode, warm_up)
    assert bool(torch.isfinite(engine.chances).all()) and bool(torch.isfinite(engine.store[filled:engine.filled]).all())
    assert engine.filled == filled + steps + 1 <= STORE + ADDED


def main():
    options = arguments(__doc__)
    record = Record()
    chance, engine = begun(options.seed), Engine()
    lengths = [chance.randrange(*BANDS[i % len(BANDS)]) for i in range(30)]
    torch.cuda.synchronize()
    in_batches(partial(serve, engine, record), chance, VOCABULARY, 1, lengths, options.steps, 30, warm_up=(150, 4))
    record.finish()


main()
