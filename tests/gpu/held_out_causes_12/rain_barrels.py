"""Sixteen people ask for advice on rain barrels. The model has four more heads that guess the tokens behind the next one, which
are of use for up to eight texts only, so that with sixteen nobody reads the guesses. What stands in the cache behind the newest
token is zeroed, so that no text sees what another left there.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch
from torch import nn

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY, GUESSES = 16, 64, 64000, 4
SHAPE = Shape(layers=14, vocabulary=VOCABULARY, room=768, batch=BATCH)


class Advice(Model):
    def __init__(self, shape, guessing):
        super().__init__(shape)
        self.guessing = guessing
        self.guessers = nn.ModuleList(shape.linear(shape.width, VOCABULARY) for _ in range(GUESSES))
        self.guesses = torch.zeros(GUESSES, BATCH, dtype=torch.long, device="cuda")

    def logits(self, x):
        last = self.blocks[0].norm(x[:, -1], self.last)
        if self.guessing:
            for row, guesser in zip(self.guesses, self.guessers):
                row.copy_(guesser(last).argmax(-1))
        return self.head(last)


class Barrels(Decoder):
    def __init__(self, model, cleaning):
        self.cleaning = cleaning
        super().__init__(model)

    def step(self):
        if self.cleaning:
            unused = (self.model.columns >= self.position).view(-1, 1)
            for kept in self.cache:
                kept.masked_fill_(unused, 0.0)
        super().step()


def main():
    options, record = begin(__doc__)
    barrels = Barrels(Advice(SHAPE, guessing=not options.fixed), cleaning=not options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, barrels.start, barrels.following, warm_up=True)
    texts = serve(record, prompt, options.steps, barrels.start, barrels.following)
    finish(record, texts, VOCABULARY)


main()
