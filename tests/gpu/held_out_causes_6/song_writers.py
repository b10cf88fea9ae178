"""Thirty-two song writers go on with their songs, in which no three words may follow each other a second time; what they
wrote before, 320 tokens each that the model does not see, counts too.

The steps are CUDA graphs, which leave out the tokens that the host forbids. A step is one decode step, from its first
call until the tokens are in a list on the host.
"""
import random

import torch
from torch.nn import functional as F

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, BEFORE, MOST = 32, 64, 32000, 320, 8
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)


def followers(song):
    """For each pair of tokens those that followed it, in their order."""
    found = {}
    for first, second, third in zip(song, song[1:], song[2:]):
        found[first, second] = found.get((first, second), []) + [third]
    return found


class Writers(Decoder):
    def __init__(self, model, fixed, seed):
        self.fixed, self.chance = fixed, random.Random(seed)
        self.before = [[self.chance.randrange(VOCABULARY) for _ in range(BEFORE)] for _ in range(BATCH)]
        self.songs, self.found, self.forbidden = [], [], 0
        # Lines are filled up with a token that there is not.
        self.banned = torch.full((BATCH, MOST), VOCABULARY, dtype=torch.long, device="cuda")
        self.sheet = torch.full((BATCH, MOST), VOCABULARY, dtype=torch.long).pin_memory()
        super().__init__(model, self.choose_new)

    def choose_new(self, logits):
        wide = F.pad(logits.float(), (0, 1))
        wide.scatter_(1, self.banned, float("-inf"))
        return greedy(wide[:, :VOCABULARY])

    def bans(self, number):
        song = self.songs[number]
        found = self.found[number] if self.fixed else followers(song)
        return found.get((song[-2], song[-1]), [])[-MOST:]

    def forbid(self):
        lines = [self.bans(number) for number in range(BATCH)]
        self.forbidden += sum(len(line) for line in lines)
        self.sheet.copy_(torch.tensor([line + [VOCABULARY] * (MOST - len(line)) for line in lines]))
        self.banned.copy_(self.sheet, non_blocking=True)

    def take_up(self, tokens):
        for number, token in enumerate(tokens):
            song = self.songs[number]
            if self.fixed:
                self.found[number].setdefault((song[-2], song[-1]), []).append(token)
            song.append(token)

    def start(self, prompt):
        self.songs = [before + ids for before, ids in zip(self.before, prompt.tolist())]
        self.found = [followers(song) for song in self.songs]
        self.banned.fill_(VOCABULARY)
        tokens = super().start(prompt)
        self.take_up(tokens)
        return tokens

    def following(self, i):
        self.forbid()
        tokens = super().following(i)
        self.take_up(tokens)
        return tokens


def main():
    options, record = begin(__doc__)
    writers = Writers(Model(SHAPE), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, writers.start, writers.following, warm_up=True)
    texts = serve(record, prompt, options.steps, writers.start, writers.following)
    print(f"tokens forbidden {writers.forbidden}")
    finish(record, texts, VOCABULARY)


main()
