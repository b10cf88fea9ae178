"""Sixteen seal engravers go on with letters of 768 tokens. To find texts that begin alike, each full block of sixteen tokens has
a seal, a hash of its tokens and of the seal before it, and the seals are looked up before each step.

The steps are CUDA graphs. A step is one decode step with what is looked up for it, from its first call until the tokens are in
a list on the host.
"""
import hashlib
from array import array

import torch

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, READ, BLOCK = 16, 64, 32000, 768, 16
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, room=READ + 304, batch=BATCH)


class Letters(Model):
    def cache(self):
        """What was read before; the prompt goes to the front of it."""
        return tuple(empty.normal_() for empty in super().cache())


class Engravers(Decoder):
    def __init__(self, model, fixed, seed):
        generator = torch.Generator().manual_seed(seed)
        self.fixed, self.read = fixed, torch.randint(VOCABULARY, (BATCH, READ), generator=generator).tolist()
        self.letters, self.seals, self.pages = [], [], {}
        super().__init__(model)

    def engrave(self, letter, seals):
        """Adds the seals that are missing."""
        for start in range(BLOCK * len(seals), len(letter) - BLOCK + 1, BLOCK):
            seal = hashlib.sha256(seals[-1] if seals else b"")
            seal.update(array("i", letter[start:start + BLOCK]).tobytes())
            seals.append(seal.digest())
        return seals

    def look_up(self):
        if not self.fixed:
            self.seals = [[] for _ in self.letters]
        for letter, seals in zip(self.letters, self.seals):
            self.engrave(letter, seals)
            self.pages[seals[-1]] = len(seals)

    def start(self, prompt):
        self.tokens.copy_(greedy(self.model.logits(self.model.hidden(prompt, self.cache))))
        self.position.fill_(READ)
        self.letters, self.seals = [letter.copy() for letter in self.read], [[] for _ in self.read]
        self.look_up()
        return self.words()

    def following(self, i):
        self.look_up()
        self.advance()
        words = self.words()
        for letter, word in zip(self.letters, words):
            letter.append(word)
        return words


def main():
    options, record = begin(__doc__)
    engravers = Engravers(Letters(SHAPE), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, engravers.start, engravers.following, warm_up=True)
    texts = serve(record, prompt, options.steps, engravers.start, engravers.following)
    print(f"{len(engravers.pages)} last pages have a seal")
    finish(record, texts, VOCABULARY)


main()
