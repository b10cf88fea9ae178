"""Reads five letters of tea merchants at a time, packed one behind the other without fillers, and names a tea for each.

Where a letter begins and ends is kept in a tensor on the GPU, as kernels for packed texts want it; here each letter has
an attention call of its own. A step is one prefill, from its first call until the teas, a token for each, are in a list
on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

LENGTHS, VOCABULARY = (1024, 960, 832, 720, 624), 32000
BATCH, TOTAL = len(LENGTHS), sum(LENGTHS)
MEAN = TOTAL // BATCH
SHAPE = Shape(layers=10, vocabulary=VOCABULARY, room=max(LENGTHS))


class Merchant(Block):
    def attend(self, query, key, value, bounds):
        """Each letter looks at itself; all are (1, heads, TOTAL, size)."""
        found = []
        for i in range(BATCH):
            own_query = query[:, :, bounds[i]:bounds[i + 1]]
            own_key = key[:, :, bounds[i]:bounds[i + 1]]
            own_value = value[:, :, bounds[i]:bounds[i + 1]]
            found.append(F.scaled_dot_product_attention(own_query, own_key, own_value, is_causal=True))
        return torch.cat(found, 2)

    def read(self, x, cos, sin, bounds):
        query, key, value = self.split(x, cos, sin)
        key, value = key.repeat_interleave(self.shape.group, 1), value.repeat_interleave(self.shape.group, 1)
        found = self.attend(query, key, value, bounds)
        return self.close(x, found.transpose(1, 2).reshape(1, TOTAL, -1))


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, block=Merchant)
    batches = prompts(options.seed, 4, TOTAL, VOCABULARY).split(1)
    ends = torch.tensor(LENGTHS).cumsum(0)
    bounds = torch.cat((torch.zeros(1, dtype=torch.long), ends)).cuda()
    last = (ends - 1).cuda()
    place = torch.cat([torch.arange(length) for length in LENGTHS]).cuda()
    cos, sin = model.cos[place], model.sin[place]

    def read(i):
        # Fixed, the bounds come to the host once a step.
        known = bounds.tolist() if options.fixed else bounds
        x = model.embedding(batches[i % len(batches)])
        for block in model.blocks:
            x = block.read(x, cos, sin, known)
        return greedy(model.logits(x[0, last].unsqueeze(1)))[:, 0].tolist()

    finish(record, serve_prefills(record, options.steps, read, BATCH, MEAN), VOCABULARY)


main()
