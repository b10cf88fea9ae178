"""Eight beekeepers talk about their hives; the attention of the model is written as in the paper, head by head.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 8, 64, 32000
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Hive(Block):
    """Has a matrix for each head of queries, of keys and of values."""

    def __init__(self, shape):
        super().__init__(shape)
        self.parts = [part.clone() for part in self.qkv.weight.split(shape.size)]
        self.qkv = None

    def project(self, x):
        return torch.cat([F.linear(x, part) for part in self.parts], -1)

    def split(self, x, cos, sin):
        heads, kv_heads, size = self.shape.heads, self.shape.kv_heads, self.shape.size
        both = self.project(self.norm(x, self.first)).view(x.shape[0], x.shape[1], heads + 2 * kv_heads, size)
        turning, value = both.transpose(1, 2).split((heads + kv_heads, kv_heads), 1)
        a, b = turning.chunk(2, -1)
        query, key = torch.addcmul(turning * cos, torch.cat((b, a), -1), sin).split((heads, kv_heads), 1)
        return query, key, value


def main():
    options, record = begin(__doc__)
    keepers = Decoder(Model(SHAPE, block=Block if options.fixed else Hive))
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, keepers.start, keepers.following, warm_up=True)
    texts = serve(record, prompt, options.steps, keepers.start, keepers.following)
    finish(record, texts, VOCABULARY)


main()
