"""Eight speakers in a guild hall; each layer has eight experts, two of which work on a token.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 8, 64, 32000
EXPERTS, CHOSEN, INNER = 8, 2, 256
SHAPE = Shape(inner=64, layers=16, vocabulary=VOCABULARY, batch=BATCH)


class Guild(Block):
    def __init__(self, shape):
        super().__init__(shape)
        self.router = shape.linear(shape.width, EXPERTS)
        self.gate_up = nn.Parameter(torch.randn(EXPERTS, shape.width, 2 * INNER, **shape.made()) / shape.width ** 0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, INNER, shape.width, **shape.made()) / INNER ** 0.5)

    def route(self, x):
        """The experts of each token and their weights, (tokens, CHOSEN)."""
        weights, experts = self.router(x).float().softmax(-1).topk(CHOSEN)
        return weights.to(x.dtype), experts

    def work(self, x, gate_up, down):
        """(matrices, tokens, width), each through the matrices of its own."""
        gate, up = torch.bmm(x, gate_up).chunk(2, -1)
        return torch.bmm(F.silu(gate) * up, down)

    def all_experts(self, x):
        weights, experts = self.route(x)
        shares = x.new_zeros(len(x), EXPERTS).scatter_(1, experts, weights)
        made = self.work(x.expand(EXPERTS, *x.shape), self.gate_up, self.down)
        return (made * shares.t().unsqueeze(2)).sum(0)

    def own_experts(self, x):
        weights, experts = self.route(x)
        called = experts.flatten()
        guests = x.unsqueeze(1).expand(-1, CHOSEN, -1).reshape(len(called), 1, -1)
        made = self.work(guests, self.gate_up[called], self.down[called]).reshape(len(x), CHOSEN, -1)
        return (made * weights.unsqueeze(2)).sum(1)

    def few(self, x):
        return self.own_experts(x)

    def mlp(self, x):
        tokens = x.flatten(0, 1)
        made = self.few(tokens) if len(tokens) <= BATCH else self.all_experts(tokens)
        return made.reshape(x.shape)


class FixedGuild(Guild):
    def few(self, x):
        return self.all_experts(x)


def main():
    options, record = begin(__doc__)
    hall = Decoder(Model(SHAPE, block=FixedGuild if options.fixed else Guild))
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, hall.start, hall.following, warm_up=True)
    texts = serve(record, prompt, options.steps, hall.start, hall.following)
    finish(record, texts, VOCABULARY)


main()
