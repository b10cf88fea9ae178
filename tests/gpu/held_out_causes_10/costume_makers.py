"""Eight dialogues of two persons, who say one token each in turns. Each person has an adapter of rank sixteen for all
matrices of the layers, which is put on like a costume.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import copy
from functools import partial

import torch

from base_loop import Decoder, Model, Shape, begin, finish, prompts, replayed, serve

BATCH, PROMPT, VOCABULARY, PERSONS, RANK = 8, 64, 32000, 2, 16
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)
MATRICES = "qkv", "out", "gate_up", "down"


def costume(blocks):
    """Two thin matrices for each matrix of each layer."""
    made = []
    for block in blocks:
        parts = {}
        for name in MATRICES:
            outputs, inputs = getattr(block, name).weight.shape
            parts[name] = (torch.randn(outputs, RANK, **SHAPE.made()) / RANK,
                           torch.randn(RANK, inputs, **SHAPE.made()) / inputs ** 0.5)
        made.append(parts)
    return made


def wear(blocks, costume, sign):
    """Adds the costume to the weights, or takes it away."""
    for block, parts in zip(blocks, costume):
        for name, (left, right) in parts.items():
            getattr(block, name).weight.addmm_(left, right, alpha=sign)


class Stage(Decoder):
    def __init__(self, model, fixed):
        super().__init__(model, graphed=False)
        costumes = [costume(model.blocks) for _ in range(PERSONS)]
        if fixed:
            self.dressed = [copy.deepcopy(model) for _ in costumes]
            self.persons = []
            for self.model, worn in zip(self.dressed, costumes):
                wear(self.model.blocks, worn, 1)
                self.persons.append(replayed(self.step))
            self.model = model
        else:
            self.replay = replayed(self.step)
            self.persons = [partial(self.dress_and_say, worn) for worn in costumes]

    def dress_and_say(self, worn):
        wear(self.model.blocks, worn, 1)
        self.replay()
        wear(self.model.blocks, worn, -1)

    def following(self, i):
        self.persons[i % PERSONS]()
        return self.words()


def main():
    options, record = begin(__doc__)
    stage = Stage(Model(SHAPE), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, stage.start, stage.following, warm_up=True)
    texts = serve(record, prompt, options.steps, stage.start, stage.following)
    finish(record, texts, VOCABULARY)


main()
