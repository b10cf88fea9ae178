"""Forty-eight interpreters speak four languages; for each language the model has an adapter of rank sixty-four beside each
of its matrices, and the texts of a batch have different ones.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch
from torch import nn

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY, LANGUAGES, RANK = 48, 64, 32000, 4, 64
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Adapted(nn.Module):
    """A matrix, and for each language a product of two thin ones that is added to it."""

    def __init__(self, matrix, language):
        super().__init__()
        outputs, inputs = matrix.weight.shape
        self.matrix, self.language = matrix, language
        self.first = torch.randn(LANGUAGES, inputs, RANK, **SHAPE.made()) / inputs ** 0.5
        self.second = torch.randn(LANGUAGES, RANK, outputs, **SHAPE.made()) / 16


class OneByOne(Adapted):
    def forward(self, x):
        low = torch.bmm(x, self.first[self.language])
        return self.matrix(x) + torch.bmm(low, self.second[self.language])


class AllAtOnce(Adapted):
    """The adapters of all languages stand side by side, and the numbers of other languages than the text's become zero."""

    def __init__(self, matrix, language):
        super().__init__(matrix, language)
        self.first = self.first.transpose(0, 1).reshape(-1, LANGUAGES * RANK)
        self.second = self.second.reshape(LANGUAGES * RANK, -1)
        column = torch.arange(LANGUAGES * RANK, device="cuda") // RANK
        self.own = (column == language.view(-1, 1, 1)).to(SHAPE.dtype)

    def forward(self, x):
        return self.matrix(x) + (x @ self.first * self.own) @ self.second


class Interpreter(Block):
    adapted = OneByOne

    def __init__(self, shape):
        super().__init__(shape)
        language = torch.arange(BATCH, device="cuda") % LANGUAGES
        for name in ("qkv", "out", "gate_up", "down"):
            setattr(self, name, self.adapted(getattr(self, name), language))


class FixedInterpreter(Interpreter):
    adapted = AllAtOnce


def main():
    options, record = begin(__doc__)
    people = Decoder(Model(SHAPE, block=FixedInterpreter if options.fixed else Interpreter))
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, people.start, people.following, warm_up=True)
    texts = serve(record, prompt, options.steps, people.start, people.following)
    finish(record, texts, VOCABULARY)


main()
