"""Tells forty-eight stories at once: top 96 with a penalty for words already told, a temperature and a nucleus.

A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import math
import random

import torch

from shared_loop import begin, finish, prompts, serve
from shared_model import Decoder, Model, Sizes

BATCH, PROMPT, TOP = 48, 96, 96
PENALTY, TEMPERATURE, NUCLEUS = 1.2, 0.8, 0.95


def draw(logits, tokens, told, point):
    """One text's next token."""
    scores = []
    for logit, token in zip(logits, tokens):
        if token in told:
            logit = logit / PENALTY if logit > 0 else logit * PENALTY
        scores.append(logit / TEMPERATURE)
    largest = max(scores)
    weights = [math.exp(score - largest) for score in scores]
    total = sum(weights)
    chances = [weight / total for weight in weights]
    order = sorted(range(TOP), key=lambda place: -chances[place])
    kept, mass = [], 0.0
    for place in order:
        kept.append(place)
        mass += chances[place]
        if mass >= NUCLEUS:
            break
    left = point * mass
    for place in kept:
        left -= chances[place]
        if left <= 0:
            break
    return tokens[place]


def draw_all(values, places, told, points):
    """The same for all texts on the GPU; `told` is a table of texts and vocabulary."""
    scores, hit = values.double(), told.gather(1, places)
    scores = torch.where(hit, torch.where(scores > 0, scores / PENALTY, scores * PENALTY), scores) / TEMPERATURE
    chances, order = scores.softmax(-1).sort(stable=True, dim=-1, descending=True)
    mass = chances.cumsum(-1)
    kept = mass - chances < NUCLEUS
    left = points * (chances * kept).sum(-1, keepdim=True)
    last = kept.sum(-1, keepdim=True) - 1
    pick = torch.minimum((mass < left).sum(-1, keepdim=True), last)
    return places.gather(1, order.gather(1, pick))


class Storyteller(Decoder):
    def __init__(self, model, fixed, seed, steps):
        chance = random.Random(seed)
        self.points = [[chance.random() for _ in range(BATCH)] for _ in range(steps + 4)]
        self.drawn, self.fixed = 0, fixed
        if fixed:
            self.points = torch.tensor(self.points, device="cuda", dtype=torch.float64).unsqueeze(2)
            self.told = torch.zeros(BATCH, model.sizes.vocabulary, device="cuda", dtype=torch.bool)
        else:
            self.told = [set() for _ in range(BATCH)]
        super().__init__(model, choose=None)

    def sample_on_host(self, values, places, points):
        tokens = []
        for logits, candidates, told, point in zip(values.float().tolist(), places.tolist(), self.told, points):
            token = draw(logits, candidates, told, point)
            told.add(token)
            tokens.append(token)
        self.tokens.copy_(torch.tensor(tokens).view(BATCH, 1))
        return tokens

    def sample_on_gpu(self, values, places, points):
        tokens = draw_all(values, places, self.told, points)
        self.told.scatter_(1, tokens, True)
        self.tokens.copy_(tokens)
        return self.tokens[:, 0].tolist()

    def words(self):
        values, places = self.logits.topk(TOP, -1)
        points, self.drawn = self.points[self.drawn], self.drawn + 1
        return (self.sample_on_gpu if self.fixed else self.sample_on_host)(values, places, points)


def main():
    options, record = begin(__doc__)
    model = Model(Sizes(batch=BATCH))
    decoder = Storyteller(model, options.fixed, options.seed, options.steps)
    prompt = prompts(options.seed, BATCH, PROMPT, model.sizes.vocabulary)
    serve(record, prompt, 1, decoder.start, decoder.following, warm_up=True)
    texts = serve(record, prompt, options.steps, decoder.start, decoder.following)
    finish(record, texts, model.sizes.vocabulary)


main()
