"""Describes sixty-four things in a junk shop and notes after each word how sure the model was of it.

Eight small things could be done better, and --fixed does them; none of them matters much by itself. The steps are CUDA
graphs. A step is one decode step, from its first call until tokens and chances are on the host and noted.
"""
import json

import torch
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY = 64, 32, 32000
SHAPE = Shape(vocabulary=VOCABULARY, room=768, batch=BATCH)


class Shelf(Block):
    """A block with four small flaws."""

    def __init__(self, shape):
        super().__init__(shape)
        self.nothing = torch.zeros(shape.width, **shape.made())

    def norm(self, x, weight):
        # 1: an offset of zero added by an operation of its own.
        return F.layer_norm(x, weight.shape, weight) + self.nothing

    def mlp(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        # 2: the activation in two operations.
        return self.down(gate * torch.sigmoid(gate) * up)

    def next(self, x, position, places, keys, values):
        cos, sin, mask = places
        query, key, value = self.split(x, cos, sin)
        for kept, new in ((keys, key), (values, value)):
            # 3: the place is cleared before it is written.
            kept.index_fill_(2, position, 0.0)
            kept.index_copy_(2, position, new)
        # 4: numbers out of range are looked for and cut off, though there are none.
        return torch.nan_to_num(self.close(x, self.look(query, keys, values, mask))).clamp(-30000.0, 30000.0)


class Shop(Decoder):
    def __init__(self, model, fixed):
        self.fixed, self.notes = fixed, []
        self.leaning_on_host = torch.linspace(0.0, 0.01, VOCABULARY)
        self.leaning = self.leaning_on_host.cuda()
        self.sure = torch.zeros(BATCH, device="cuda")
        self.five = torch.zeros(BATCH, 5, dtype=torch.long, device="cuda")
        self.both = torch.zeros(2, BATCH, dtype=torch.double, device="cuda")
        super().__init__(model, self.choose_sure)

    def choose_sure(self, logits):
        logits = logits.float() + self.leaning
        tokens, chances = greedy(logits), logits.softmax(-1)
        if not self.fixed:
            # 5: the best five are looked for, which nobody reads.
            self.five.copy_(chances.topk(5)[1])
        self.sure.copy_(chances.gather(1, tokens)[:, 0])
        self.both[0].copy_(tokens[:, 0])
        self.both[1].copy_(self.sure)
        return tokens

    def words(self):
        if self.fixed:
            tokens, sure = self.both.tolist()
            tokens = [int(token) for token in tokens]
            self.notes.append((tokens, sure))
            return tokens
        # 6: chances, the sum of them and tokens fetched one after the other.
        sure, mean, tokens = self.sure.tolist(), self.sure.mean().item(), super().words()
        # 7: the line is written in the step rather than at the end.
        self.notes.append(json.dumps({"tokens": tokens, "mean": mean, "sure": [round(one, 3) for one in sure]}))
        return tokens

    def following(self, i):
        if not self.fixed:
            # 8: the same 128 kB each time, from pageable memory.
            self.leaning.copy_(self.leaning_on_host)
        return super().following(i)


def main():
    options, record = begin(__doc__)
    shop = Shop(Model(SHAPE, block=Block if options.fixed else Shelf), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, shop.start, shop.following, warm_up=True)
    texts = serve(record, prompt, options.steps, shop.start, shop.following)
    assert len(shop.notes) == options.steps + 3
    finish(record, texts, VOCABULARY)


main()
