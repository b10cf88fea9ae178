"""Reads four essays of 1024 tokens at a time and gives each a mark, which is one token.

The inner width is two thirds of four times the width, rounded down. A step is one prefill, from its first call until
the marks are in a list on the host.
"""
from torch import nn
from torch.nn import functional as F

from shared_loop import begin, finish, prompts, serve_prefills
from shared_model import Layer, Model, Sizes, greedy

BATCH, PROMPT, VOCABULARY, WIDTH = 4, 1024, 32000, 2048
INNER = 2 * 4 * WIDTH // 3  # 5461


class Essay(Layer):
    def build_mlp(self, sizes):
        self.gate = nn.Linear(sizes.width, sizes.inner, bias=False, **sizes.made())
        self.up = nn.Linear(sizes.width, sizes.inner, bias=False, **sizes.made())
        self.down = nn.Linear(sizes.inner, sizes.width, bias=False, **sizes.made())

    def mlp(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))

    def pad(self, multiple):
        """Fills the inner width up to a multiple with zeros, which add nothing."""
        more = -self.sizes.inner % multiple
        self.gate.weight = nn.Parameter(F.pad(self.gate.weight, (0, 0, 0, more)), requires_grad=False)
        self.up.weight = nn.Parameter(F.pad(self.up.weight, (0, 0, 0, more)), requires_grad=False)
        self.down.weight = nn.Parameter(F.pad(self.down.weight, (0, more)), requires_grad=False)


def main():
    options, record = begin(__doc__)
    model = Model(Sizes(width=WIDTH, inner=INNER, length=PROMPT), layer=Essay)
    if options.fixed:
        for layer in model.layers:
            layer.pad(128)
    batches = prompts(options.seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(prompt):
        return greedy(model.prefill(prompt))[:, 0].tolist()

    finish(record, serve_prefills(record, batches, options.steps, read), VOCABULARY)


main()
