"""Eight pupils are answered at the same time by one model; the steps are CUDA graphs.

A step is one decode step for all, from its first call until the eight tokens are in a list on the host.
"""
import torch

from common_loop import begin, finish, prompts, serve
from common_model import Model, Shape, greedy, replayed

BATCH, PROMPT = 8, 64


class School:
    def __init__(self, model, at_once):
        self.model, self.cache = model, model.cache()
        self.tokens = torch.zeros(BATCH, 1, device="cuda", dtype=torch.long)
        self.position = torch.zeros(1, device="cuda", dtype=torch.long)
        # Each graph answers the pupils from `first` on.
        self.graphs = [replayed(lambda first=first: self.answer(first, first + at_once))
                       for first in range(0, BATCH, at_once)]

    def answer(self, first, end):
        tokens, cache = self.tokens[first:end], [part[:, first:end] for part in self.cache]
        tokens.copy_(greedy(self.model.next(tokens, self.position, cache)))

    def start(self, prompt):
        self.tokens.copy_(greedy(self.model.logits(self.model.hidden(prompt, self.cache))))
        self.position.fill_(PROMPT)
        return self.tokens[:, 0].tolist()

    def following(self, i):
        for answer in self.graphs:
            answer()
        self.position.add_(1)
        return self.tokens[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    model = Model(Shape(batch=BATCH))
    school = School(model, BATCH if options.fixed else 1)
    prompt = prompts(options.seed, BATCH, PROMPT, model.shape.vocabulary)
    serve(record, prompt, 1, school.start, school.following, warm_up=True)
    texts = serve(record, prompt, options.steps, school.start, school.following)
    finish(record, texts, model.shape.vocabulary)


main()
