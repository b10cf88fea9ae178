"""Reads the plans of four stone masons, 1024 tokens each, and names a stone for each of them; the MLP goes over the
tokens piece by piece, to save memory.

A step is one prefill, from its first call until the stones, a token for each, are in a list on the host.
"""
import torch

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY, PIECE = 4, 1024, 32000, 128
SHAPE = Shape(layers=8, vocabulary=VOCABULARY, room=PROMPT)


class Mason(Block):
    def mlp(self, x):
        pieces = [Block.mlp(self, piece) for piece in x.flatten(0, 1).split(PIECE)]
        return torch.cat(pieces).view(x.shape)


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, block=Block if options.fixed else Mason)
    batches = prompts(options.seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(i):
        x = model.embedding(batches[i % len(batches)])
        for block in model.blocks:
            x = block.whole(x, model.cos, model.sin)
        return greedy(model.logits(x))[:, 0].tolist()

    finish(record, serve_prefills(record, options.steps, read, BATCH, PROMPT), VOCABULARY)


main()
