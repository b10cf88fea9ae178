"""Sixty-four milk rounds are planned at once, by the same instructions of 2688 tokens, of which keys and values are kept from
before. They stand behind each text's own 384 places (attention does not ask for the order).

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY, OWN, SHARED = 64, 64, 32000, 384, 2688


class Round(Block):
    shared = None  # keys and values of the instructions, (kv_heads, count, size), where they stand but once

    def look(self, query, keys, values, mask=None):
        if self.shared is None:
            return super().look(query, keys, values, mask)
        shape, (far_keys, far_values) = self.shape, self.shared
        query = query.reshape(BATCH, shape.kv_heads, shape.group, shape.size) * shape.size ** -0.5
        # For the instructions the queries of all texts stand where those of one text would.
        together = query.transpose(0, 1).reshape(shape.kv_heads, BATCH * shape.group, shape.size)
        far = torch.bmm(together, far_keys.transpose(1, 2))
        far = far.view(shape.kv_heads, BATCH, shape.group, SHARED).transpose(0, 1)
        near = torch.matmul(query, keys.transpose(2, 3)) + mask
        chances = torch.cat((far, near), -1).softmax(-1, dtype=torch.float32).to(query.dtype)
        far, near = chances.split((SHARED, OWN), -1)
        far = torch.bmm(far.transpose(0, 1).reshape(shape.kv_heads, BATCH * shape.group, SHARED), far_values)
        far = far.view(shape.kv_heads, BATCH, shape.group, shape.size).transpose(0, 1)
        return (far + torch.matmul(near, values)).reshape(BATCH, 1, -1)


class Rounds(Model):
    def __init__(self, shape, fixed):
        super().__init__(shape, block=Round)
        self.fixed = fixed
        sizes = (shape.layers, shape.kv_heads, SHARED, shape.size)
        self.instructions = tuple(torch.randn(sizes, **shape.made()) for _ in range(2))
        if fixed:
            for block, keys, values in zip(self.blocks, *self.instructions):
                block.shared = keys, values

    def cache(self):
        both = super().cache()
        if not self.fixed:
            for kept, known in zip(both, self.instructions):
                kept[:, :, :, OWN:] = known.unsqueeze(1)
        return both

    def places(self, position):
        cos, sin, _ = super().places(position)
        shut = (self.columns > position) & (self.columns < OWN)
        mask = torch.zeros(1, 1, self.shape.group, self.shape.room, **self.shape.made())
        return cos, sin, mask.masked_fill(shut, float("-inf"))


def main():
    options, record = begin(__doc__)
    shape = Shape(layers=8, vocabulary=VOCABULARY, room=OWN if options.fixed else OWN + SHARED, batch=BATCH)
    planners = Decoder(Rounds(shape, options.fixed))
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, planners.start, planners.following, warm_up=True)
    texts = serve(record, prompt, options.steps, planners.start, planners.following)
    finish(record, texts, VOCABULARY)


main()
