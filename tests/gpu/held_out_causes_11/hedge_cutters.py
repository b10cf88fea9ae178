"""Reads a description of a hedge of 6144 tokens and names by one token how it is to be cut. In all layers a token sees itself and
the 511 before it.

A step is one prefill, from its first call until the name is in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

PROMPT, VOCABULARY, WINDOW, STORED = 6144, 32000, 512, 4
SHAPE = Shape(layers=12, vocabulary=VOCABULARY, room=PROMPT)


def shut(seen):
    """What is added to the scores: nothing where `seen`."""
    return torch.zeros(seen.shape, **SHAPE.made()).masked_fill_(~seen, float("-inf"))


def whole_mask():
    place = torch.arange(PROMPT, device="cuda")
    back = place.view(-1, 1) - place
    return shut((back >= 0) & (back < WINDOW)).view(1, 1, PROMPT, PROMPT)


def piece_masks():
    """For each piece of 512 queries, whose keys are those of the piece before and its own: (pieces, 1, 512, 1024)."""
    query, key = torch.arange(WINDOW, device="cuda").view(-1, 1), torch.arange(2 * WINDOW, device="cuda")
    seen = ((key > query) & (key <= query + WINDOW)).repeat(PROMPT // WINDOW, 1, 1)
    seen[0] &= key >= WINDOW  # the first piece has none before it
    return shut(seen).unsqueeze(1)


class Cutter(Block):
    mask, cut = None, False

    def near(self, both):
        """Keys or values, (1, heads, count, size), of each piece and the one before: (pieces, heads, 1024, size)."""
        pieces = both[0].unflatten(1, (-1, WINDOW))
        before = F.pad(pieces[:, :-1], (0, 0, 0, 0, 1, 0))
        return torch.cat((before, pieces), 2).transpose(0, 1)

    def whole(self, x, cos, sin, keep=None):
        query, key, value = self.split(x, cos, sin)
        key, value = key.repeat_interleave(self.shape.group, 1), value.repeat_interleave(self.shape.group, 1)
        if self.cut:
            query, key, value = query[0].unflatten(1, (-1, WINDOW)).transpose(0, 1), self.near(key), self.near(value)
        heads = F.scaled_dot_product_attention(query, key, value, attn_mask=self.mask)
        # (1, heads, count, size) or (pieces, heads, 512, size): the order of tokens is the same.
        return self.close(x, heads.transpose(1, 2).reshape(x.shape))


class Cutters:
    def __init__(self, model, seed):
        self.model, self.stored = model, prompts(seed, STORED, PROMPT, VOCABULARY).split(1)

    def read(self, i):
        return greedy(self.model.logits(self.model.hidden(self.stored[i % STORED])))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    Cutter.cut, Cutter.mask = options.fixed, piece_masks() if options.fixed else whole_mask()
    cutters = Cutters(Model(SHAPE, block=Cutter), options.seed)
    finish(record, serve_prefills(record, options.steps, cutters.read, 1, PROMPT), VOCABULARY)


main()
