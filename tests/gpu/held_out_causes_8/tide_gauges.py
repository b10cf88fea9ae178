"""Reads what 24 tide gauges wrote, 160 tokens each, and foretells the next token. Two of twelve layers have a fading memory
in place of attention: what a token adds to a matrix is weakened by each token after it, the more the less the model
wants to remember.

A step is one prefill, from its first call until the tokens are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY = 24, 160, 32000
SHAPE = Shape(vocabulary=VOCABULARY, room=PROMPT, batch=BATCH)
FADING = 3, 8  # the layers with a memory


class Gauge(Block):
    """Turns a layer of attention into one of memory, with a matrix for each head of keys."""
    fixed = False

    def __init__(self, shape):
        super().__init__(shape)
        self.keep = shape.linear(shape.width, shape.kv_heads)

    def one_by_one(self, query, key, value, keep):
        keep = torch.sigmoid(keep)
        memory, seen = torch.zeros_like(key[:, :, 0, :, None] * value[:, :, 0, None, :]), []
        for t in range(query.shape[3]):
            memory = memory * keep[:, :, t, None, None] + key[:, :, t, :, None] * value[:, :, t, None, :]
            seen.append(query[:, :, :, t] @ memory)
        return torch.stack(seen, 3)

    def at_once(self, query, key, value, keep):
        """How much a token has left of another follows from the sum of the logarithms between them."""
        fading = F.logsigmoid(keep).cumsum(-1)
        left = (fading[:, :, :, None] - fading[:, :, None]).masked_fill(self.later, float("-inf")).exp()
        return query @ key.unsqueeze(2).transpose(-1, -2) * left.unsqueeze(2) @ value.unsqueeze(2)

    def whole(self, x, cos, sin, keep=None):
        shape, count = self.shape, x.shape[1]
        query, key, value = (part.float() for part in self.split(x, cos, sin))
        query = query.view(-1, shape.kv_heads, shape.group, count, shape.size) * shape.size ** -0.5
        left = self.keep(self.norm(x, self.first)).float().transpose(1, 2) + 2
        seen = (self.at_once if self.fixed else self.one_by_one)(query, key, value, left)
        seen = F.layer_norm(seen, (shape.size,)).to(x.dtype).view(-1, shape.heads, count, shape.size)
        return self.close(x, seen.transpose(1, 2).reshape(x.shape[0], count, -1))


class FixedGauge(Gauge):
    fixed = True

    def __init__(self, shape):
        super().__init__(shape)
        place = torch.arange(PROMPT, device="cuda")
        self.later = place > place.view(-1, 1)  # tokens that have not been yet


class Coast:
    def __init__(self, model, fixed, seed):
        self.model = model
        for layer in FADING:
            model.blocks[layer] = (FixedGauge if fixed else Gauge)(SHAPE)
        self.books = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(self, i):
        return greedy(self.model.logits(self.model.hidden(self.books[i % len(self.books)])))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    coast = Coast(Model(SHAPE), options.fixed, options.seed)
    finish(record, serve_prefills(record, options.steps, coast.read, BATCH, PROMPT), VOCABULARY)


main()
