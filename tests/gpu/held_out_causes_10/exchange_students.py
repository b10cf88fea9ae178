"""Thirty-two exchange students go on with diaries of 640 tokens. Keys and values are kept in the order in which tokens come,
and the weights are those of a trainer, who may have newer ones at any time.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 32, 640, 32000
SHAPE = Shape(layers=8, kv_heads=8, vocabulary=VOCABULARY, room=PROMPT + 320, batch=BATCH)


class Student(Block):
    def look(self, query, keys, values, mask=None):
        return super().look(query, keys.contiguous(), values.contiguous(), mask)


class Diaries(Model):
    by_text = False

    def kept(self):
        """Empty keys or values, token by token, seen as (layers, batch, kv_heads, room, size)."""
        shape = self.shape
        made = torch.zeros(shape.layers, shape.room, shape.batch, shape.kv_heads, shape.size, **shape.made())
        return made.permute(0, 2, 3, 1, 4)

    def cache(self):
        return super().cache() if self.by_text else (self.kept(), self.kept())


class Trainer:
    """Has the newest weights and their number, which do not change in the time of this program."""

    def __init__(self, model):
        self.version, self.weights = 1, [weight.detach().clone() for weight in model.parameters()]


class Students(Decoder):
    def __init__(self, model, fixed):
        super().__init__(model)
        self.trainer, self.weights, self.fixed, self.version = Trainer(model), list(model.parameters()), fixed, 1

    def refresh(self):
        if self.fixed and self.version == self.trainer.version:
            return
        for weight, newest in zip(self.weights, self.trainer.weights):
            weight.copy_(newest)
        self.version = self.trainer.version

    def following(self, i):
        self.refresh()
        return super().following(i)


def main():
    options, record = begin(__doc__)
    model = Diaries(SHAPE, block=Student)
    model.by_text = options.fixed
    students = Students(model, options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, students.start, students.following, warm_up=True)
    texts = serve(record, prompt, options.steps, students.start, students.following)
    finish(record, texts, VOCABULARY)


main()
