"""Thirty-two night nurses go on with their notes. Each layer has eight experts, of which a token asks two. Since a weight was
once found damaged, the length of each tensor of weights is looked at.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY, EXPERTS, ASKED = 32, 64, 32000, 8, 2
SHAPE = Shape(inner=1408, layers=8, vocabulary=VOCABULARY, batch=BATCH)


class Ward(Block):
    def __init__(self, shape):
        super().__init__(shape)
        del self.gate_up, self.down
        self.route = shape.linear(shape.width, EXPERTS)
        self.enter = self.experts(shape.width, 2 * shape.inner)
        self.leave = self.experts(shape.inner, shape.width)

    def experts(self, inputs, outputs):
        bound = inputs ** -0.5
        return nn.Parameter(torch.empty(EXPERTS, inputs, outputs, **self.shape.made()).uniform_(-bound, bound))

    def mlp(self, x):
        """With this many texts nearly all experts are asked by some: each reads its weights once, for all texts."""
        flat = x.reshape(-1, self.shape.width)
        chances = self.route(flat).float().softmax(-1)
        best, which = chances.topk(ASKED, -1)
        share = torch.zeros_like(chances).scatter_(1, which, best).to(x.dtype)
        gate, up = torch.bmm(flat.expand(EXPERTS, -1, -1), self.enter).chunk(2, -1)
        said = torch.bmm(F.silu(gate) * up, self.leave)
        return (said * share.t().unsqueeze(-1)).sum(0).view(x.shape)


class Nurses(Decoder):
    def __init__(self, model, fixed):
        self.weights, self.watchful = list(model.parameters()), not fixed
        self.healthy = torch.ones(1, dtype=torch.bool, device="cuda")
        self.watch(self.weights)
        assert self.healthy.item()
        super().__init__(model)

    def watch(self, weights):
        lengths = torch.stack([torch.linalg.vector_norm(weight, dtype=torch.float32) for weight in weights])
        self.healthy.copy_(lengths.isfinite().all())

    def step(self):
        if self.watchful:
            self.watch(self.weights)
        super().step()

    def following(self, i):
        words = super().following(i)
        assert self.healthy.item()
        return words


def main():
    options, record = begin(__doc__)
    nurses = Nurses(Model(SHAPE, block=Ward), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, nurses.start, nurses.following, warm_up=True)
    texts = serve(record, prompt, options.steps, nurses.start, nurses.following)
    finish(record, texts, VOCABULARY)


main()
