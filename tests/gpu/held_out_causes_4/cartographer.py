"""Reads four descriptions of a coast of 2048 tokens at a time; names a map for each, and the place in the text that the
last token looks at most.

A step is one prefill, from its first call until names and places are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY = 4, 2048, 32000
SHAPE = Shape(layers=6, vocabulary=VOCABULARY, room=PROMPT)


class Surveyor(Block):
    """Keeps how much the last token looks at each place, the mean over the heads."""

    def __init__(self, shape):
        super().__init__(shape)
        self.looked = None
        self.later = torch.ones(PROMPT, PROMPT, device=shape.device, dtype=torch.bool).triu(1)

    def weigh(self, query, key):
        return (query @ key.transpose(-1, -2)).float().mul_(self.shape.size ** -0.5)

    def attend(self, query, key, value):
        weights = self.weigh(query, key).masked_fill_(self.later, float("-inf")).softmax(-1)
        self.looked = weights[:, :, -1].mean(1)
        return weights.to(value.dtype) @ value

    def whole(self, x, cos, sin, keep=None):
        query, key, value = self.split(x, cos, sin)
        key, value = key.repeat_interleave(self.shape.group, 1), value.repeat_interleave(self.shape.group, 1)
        heads = self.attend(query, key, value)
        return self.close(x, heads.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))


class SwiftSurveyor(Surveyor):
    def attend(self, query, key, value):
        self.looked = self.weigh(query[:, :, -1:], key).softmax(-1)[:, :, 0].mean(1)
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, block=SwiftSurveyor if options.fixed else Surveyor)
    batches = prompts(options.seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)
    places = []

    def read(i):
        names = greedy(model.logits(model.hidden(batches[i % len(batches)])))
        looked = torch.stack([block.looked for block in model.blocks]).mean(0)
        rows = torch.cat((names, looked.argmax(-1, keepdim=True)), 1).tolist()
        places.append([place for _, place in rows])
        return [name for name, _ in rows]

    texts = serve_prefills(record, options.steps, read, BATCH, PROMPT)
    print(f"places {places[0]}")
    finish(record, texts, VOCABULARY)


main()
