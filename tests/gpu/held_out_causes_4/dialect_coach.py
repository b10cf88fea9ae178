"""Answers sixteen actors in the dialect of one valley, which the model was taught by small additions of rank sixteen to
all matrices of its layers.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
from torch import nn

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY, RANK, STRENGTH = 16, 64, 32000, 16, 2.0
SHAPE = Shape(layers=20, width=1536, inner=4096, heads=12, vocabulary=VOCABULARY, batch=BATCH)


class Taught(nn.Module):
    """A matrix and what was added to it."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        made = dict(device=linear.weight.device, dtype=linear.weight.dtype)
        self.narrow = nn.Linear(linear.in_features, RANK, bias=False, **made)
        self.wide = nn.Linear(RANK, linear.out_features, bias=False, **made)

    def forward(self, x):
        return self.linear(x) + STRENGTH * self.wide(self.narrow(x))


class Fluent(Taught):
    """The sum of both, made once."""

    def __init__(self, linear):
        super().__init__(linear)
        added = STRENGTH * (self.wide.weight.float() @ self.narrow.weight.float())
        linear.weight.copy_(linear.weight.float() + added)
        del self.narrow, self.wide

    def forward(self, x):
        return self.linear(x)


class Pupil(Block):
    way = Taught

    def __init__(self, shape):
        super().__init__(shape)
        for name in ("qkv", "out", "gate_up", "down"):
            setattr(self, name, self.way(getattr(self, name)))


class FluentPupil(Pupil):
    way = Fluent


def main():
    options, record = begin(__doc__)
    coach = Decoder(Model(SHAPE, block=FluentPupil if options.fixed else Pupil))
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, coach.start, coach.following, warm_up=True)
    texts = serve(record, prompt, options.steps, coach.start, coach.following)
    finish(record, texts, VOCABULARY)


main()
