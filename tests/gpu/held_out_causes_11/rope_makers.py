"""Sixty-four rope makers sing at work. The model has linear attention: a layer keeps a matrix for each text and head, which fades
a little with each token and to which the product of the token's key and value is added.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 64, 16, 32000
SHAPE = Shape(layers=12, kv_heads=16, vocabulary=VOCABULARY, batch=BATCH)


class Strand(Block):
    def __init__(self, shape):
        super().__init__(shape)
        fading = 2 ** -(5 + torch.arange(shape.heads, device=shape.device).float() / 4)
        self.left = (1 - fading).view(-1, 1, 1)

    def step_by_step(self, state, query, key, value):
        """The matrix is (batch, heads, size of keys, size of values)."""
        faded = state * self.left
        product = key.unsqueeze(-1) * value.unsqueeze(-2)
        newest = faded + product
        state.copy_(newest)
        return (newest * query.unsqueeze(-1)).sum(-2)

    def in_place(self, state, query, key, value):
        state.mul_(self.left).addcmul_(key.unsqueeze(-1), value.unsqueeze(-2))
        return torch.matmul(query.unsqueeze(-2), state).squeeze(-2)

    twist = step_by_step

    def spin(self, x, state):
        shape = self.shape
        all_three = self.qkv(self.norm(x, self.first)).view(-1, 3, shape.heads, shape.size).float()
        query, key, value = all_three.unbind(1)
        heads = F.layer_norm(self.twist(state, query, key, value), (shape.size,))
        return self.close(x, heads.to(x.dtype).reshape(-1, 1, shape.heads * shape.size))


class Rope(Model):
    def cache(self):
        shape = self.shape
        return torch.zeros(shape.layers, shape.batch, shape.heads, shape.size, shape.size, device=shape.device)

    def next(self, tokens, position, cache):
        x = self.embedding(tokens)
        for block, state in zip(self.blocks, cache):
            x = block.spin(x, state)
        return self.logits(x)


class Makers(Decoder):
    def start(self, prompt):
        """The prompt is short and goes through the same graph, token by token."""
        self.cache.zero_()
        for column in prompt.split(1, 1):
            self.tokens.copy_(column)
            self.advance()
        return self.words()


def main():
    options, record = begin(__doc__)
    if options.fixed:
        Strand.twist = Strand.in_place
    makers = Makers(Rope(SHAPE, block=Strand))
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, makers.start, makers.following, warm_up=True)
    texts = serve(record, prompt, options.steps, makers.start, makers.following)
    finish(record, texts, VOCABULARY)


main()
