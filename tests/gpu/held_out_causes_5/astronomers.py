"""Reads what four astronomers have seen, 1024 tokens each, and names a star for each of them.

Each head has a strength by which its queries and keys are multiplied before they are turned by their places. Tables of
strengths, cosines and sines come from a file of double precision. A step is one prefill, from its first call until the
stars, a token for each, are in a list on the host.
"""
import torch

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY = 4, 1024, 32000
SHAPE = Shape(inner=2816, layers=10, kv_heads=16, vocabulary=VOCABULARY, room=PROMPT)


class Observer(Block):
    def __init__(self, shape):
        super().__init__(shape)
        count = shape.heads + shape.kv_heads
        self.strength = torch.linspace(0.9, 1.1, count, dtype=torch.float64, device="cuda").view(count, 1, 1)

    def split(self, x, cos, sin):
        heads, kv_heads, size = self.shape.heads, self.shape.kv_heads, self.shape.size
        both = self.qkv(self.norm(x, self.first)).view(x.shape[0], x.shape[1], heads + 2 * kv_heads, size)
        turning, value = both.transpose(1, 2).split((heads + kv_heads, kv_heads), 1)
        turning = turning * self.strength
        a, b = turning.chunk(2, -1)
        turned = (turning * cos + torch.cat((b, a), -1) * sin).to(x.dtype)
        query, key = turned.split((heads, kv_heads), 1)
        return query, key, value


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, block=Observer)
    cos, sin = model.cos.double(), model.sin.double()
    if options.fixed:
        # The tables in the numbers of the model.
        cos, sin = cos.to(SHAPE.dtype), sin.to(SHAPE.dtype)
        for block in model.blocks:
            block.strength = block.strength.to(SHAPE.dtype)
    batches = prompts(options.seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(i):
        x = model.embedding(batches[i % len(batches)])
        for block in model.blocks:
            x = block.whole(x, cos, sin)
        return greedy(model.logits(x))[:, 0].tolist()

    finish(record, serve_prefills(record, options.steps, read, BATCH, PROMPT), VOCABULARY)


main()
