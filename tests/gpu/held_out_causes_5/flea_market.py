"""Reads what eight sellers of a flea market offer, 1024 tokens each, and names a price for each of them.

Eight small things could be done better, and --fixed does them; none of them matters much by itself. A step is one
prefill, from its first call until the prices, a token for each, are in a list on the host and noted.
"""
import zlib

import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY, MARKED, SHOWN = 8, 1024, 32000, 320, 40
SHAPE = Shape(layers=7, vocabulary=VOCABULARY, room=PROMPT)


class Stall(Block):
    """A block with five small flaws."""

    def __init__(self, shape):
        super().__init__(shape)
        self.nothing = torch.zeros(shape.width, **shape.made())

    def norm(self, x, weight):
        # 1: of a copy, as if the norm would write in place.
        return F.layer_norm(x.clone(), weight.shape, weight)

    def mlp(self, x):
        # 5: the host waits before each MLP and after each layer.
        torch.cuda.current_stream().synchronize()
        gate, up = self.gate_up(x).chunk(2, -1)
        # 2: zeros added, here and before the matrix behind the attention.
        return self.down(F.silu(gate) * up) + self.nothing

    def whole(self, x, cos, sin, keep=None):
        query, key, value = self.split(x, cos, sin)
        key, value = key.repeat_interleave(self.shape.group, 1), value.repeat_interleave(self.shape.group, 1)
        # 3: queries and keys scaled by passes of their own.
        query, key = query * self.shape.size ** -0.25, key * self.shape.size ** -0.25
        heads = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=1.0)
        x = self.close(x, heads.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1) + self.nothing)
        # 4: numbers out of range are looked for and cut off, though there are none.
        x = torch.nan_to_num(x).clamp(-30000.0, 30000.0)
        torch.cuda.current_stream().synchronize()
        return x


class Market:
    def __init__(self, model, fixed, seed):
        self.model, self.fixed, self.kept, self.notes, self.shown = model, fixed, [], [], None
        self.batches = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)
        self.lists = [batch.tolist() for batch in self.batches]

    def choose(self, x):
        if not self.fixed:
            # 6: logits of many places, of which only the last counts.
            return greedy(self.model.head(self.model.blocks[0].norm(x[:, -MARKED:], self.model.last))[:, -1])
        return greedy(self.model.logits(x))

    def note(self, i, prices):
        for ids, price in zip(self.lists[i % len(self.lists)], prices):
            self.notes.append((price, zlib.crc32(repr(ids).encode())))

    def note_kept(self):
        for i, prices in self.kept:
            self.note(i, prices)
        self.kept.clear()

    def read(self, i):
        x = self.model.embedding(self.batches[i % len(self.batches)])
        for block in self.model.blocks:
            x = block.whole(x, self.model.cos, self.model.sin)
        prices = self.choose(x)[:, 0].tolist()
        if self.fixed:
            self.kept.append((i, prices))
        else:
            # 7: what the model made of the last tokens goes to pageable memory, where nobody reads it.
            self.shown = x[:, -SHOWN:].float().cpu()
            # 8: notes are made in the step rather than at the end.
            self.note(i, prices)
        return prices


def main():
    options, record = begin(__doc__)
    market = Market(Model(SHAPE, block=Block if options.fixed else Stall), options.fixed, options.seed)
    texts = serve_prefills(record, options.steps, market.read, BATCH, PROMPT)
    market.note_kept()
    assert len(market.notes) == BATCH * (options.steps + 1)
    finish(record, texts, VOCABULARY)


main()
