"""Grades eight fleeces at a time, each described by 1024 tokens, and names the grade by one token. The outputs of all linear
layers are observed to find the scales of a later model in eight bits.

A step is one prefill, from its first call until the grades are in a list on the host.
"""
import torch
from torch import nn

from base_loop import Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY = 8, 1024, 32000
SHAPE = Shape(layers=12, vocabulary=VOCABULARY, room=PROMPT, batch=BATCH)


class Observer:
    """The largest output that was seen of each channel."""

    def __init__(self, linear):
        self.largest = torch.zeros(linear.out_features, device="cuda")
        self.handle = linear.register_forward_hook(self.observe)

    def observe(self, linear, inputs, output):
        strength = output.float().abs()
        self.largest = torch.maximum(self.largest, strength.flatten(0, 1).amax(0))


class Graders:
    def __init__(self, model, fixed, seed):
        self.model, self.fixed = model, fixed
        self.observers = [Observer(part) for part in model.blocks.modules() if isinstance(part, nn.Linear)]
        self.stored = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(self, i):
        grades = greedy(self.model.logits(self.model.hidden(self.stored[i % len(self.stored)])))[:, 0].tolist()
        if self.fixed and i == 0:
            # The warm-up has shown what there is to see.
            for observer in self.observers:
                observer.handle.remove()
        return grades


def main():
    options, record = begin(__doc__)
    graders = Graders(Model(SHAPE), options.fixed, options.seed)
    texts = serve_prefills(record, options.steps, graders.read, BATCH, PROMPT)
    print(f"{len(graders.observers)} linear layers were observed")
    finish(record, texts, VOCABULARY)


main()
