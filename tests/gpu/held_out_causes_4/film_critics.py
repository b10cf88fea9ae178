"""Reads eight reviews of 96 to 256 tokens at a time, 1280 in all, and gives each a mark.

The reviews are filled up to one length on the right, but matrix multiplications are made for real tokens only. A step
is one prefill, from its first call until the marks, a token for each, are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

LENGTHS, VOCABULARY = (256, 224, 176, 160, 136, 128, 104, 96), 32000
BATCH, LONGEST, MEAN = len(LENGTHS), max(LENGTHS), sum(LENGTHS) // len(LENGTHS)
SHAPE = Shape(layers=12, vocabulary=VOCABULARY, room=LONGEST)


class Mask:
    """Takes fillers out and puts them in again by a mask of the real tokens."""

    def __init__(self, real):
        self.real = real

    def take_out(self, x):
        return x[self.real]

    def put_in(self, tokens):
        x = tokens.new_zeros(BATCH, LONGEST, tokens.shape[-1])
        x[self.real] = tokens
        return x


class Numbers(Mask):
    """The same by the numbers of the real tokens, which are looked for once."""

    def __init__(self, real):
        super().__init__(real)
        self.numbers = real.flatten().nonzero()[:, 0]

    def take_out(self, x):
        return x.flatten(0, 1).index_select(0, self.numbers)

    def put_in(self, tokens):
        x = tokens.new_zeros(BATCH * LONGEST, tokens.shape[-1])
        return x.index_copy_(0, self.numbers, tokens).view(BATCH, LONGEST, -1)


class Critic(Block):
    def read(self, x, cos, sin, way):
        heads, kv_heads, size = self.shape.heads, self.shape.kv_heads, self.shape.size
        both = way.put_in(self.qkv(way.take_out(self.norm(x, self.first))))
        both = both.view(BATCH, LONGEST, heads + 2 * kv_heads, size).transpose(1, 2)
        turning, value = both.split((heads + kv_heads, kv_heads), 1)
        a, b = turning.chunk(2, -1)
        query, key = torch.addcmul(turning * cos, torch.cat((b, a), -1), sin).split((heads, kv_heads), 1)
        key, value = key.repeat_interleave(self.shape.group, 1), value.repeat_interleave(self.shape.group, 1)
        # Fillers stand behind all real tokens, which do not see them.
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        found = found.transpose(1, 2).reshape(BATCH, LONGEST, -1)
        x = x + way.put_in(self.out(way.take_out(found)))
        return x + way.put_in(self.mlp(way.take_out(self.norm(x, self.second))))


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, block=Critic)
    batches = prompts(options.seed, 4 * BATCH, LONGEST, VOCABULARY).split(BATCH)
    lengths = torch.tensor(LENGTHS, device="cuda")
    real = model.columns < lengths.view(-1, 1)
    last = (torch.arange(BATCH, device="cuda"), lengths - 1)

    def read(i):
        way = (Numbers if options.fixed else Mask)(real)
        x = model.embedding(batches[i % len(batches)])
        for block in model.blocks:
            x = block.read(x, model.cos, model.sin, way)
        return greedy(model.logits(x[last].unsqueeze(1)))[:, 0].tolist()

    finish(record, serve_prefills(record, options.steps, read, BATCH, MEAN), VOCABULARY)


main()
