"""Thirty-two setters of crosswords name words, one across and one down by turns; half of the words of the language fit
across and the other half down.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import math

import torch

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY = 32, 64, 32000
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Setters(Decoder):
    def __init__(self, model, fixed, seed):
        self.fixed, self.place = fixed, 0
        generator = torch.Generator().manual_seed(seed)
        kinds = torch.randint(2, (VOCABULARY,), generator=generator)
        self.kinds = kinds.tolist()  # 0 across, 1 down
        self.fits = torch.stack((kinds == 0, kinds == 1)).cuda()
        self.rows = torch.arange(BATCH, device="cuda")
        self.logits = torch.zeros(BATCH, VOCABULARY, device="cuda")
        super().__init__(model)

    def step(self):
        self.logits.copy_(self.model.next(self.tokens, self.position, self.cache))
        self.position.add_(1)

    def pick(self):
        """The best word for each that fits."""
        if self.fixed:
            fits = self.fits[(self.rows + self.place) % 2]
            self.tokens.copy_(greedy(self.logits.masked_fill(~fits, -math.inf)))
            picked = self.words()
        else:
            picked = self.checked()
        self.place += 1
        return picked

    def checked(self):
        while True:
            self.tokens.copy_(greedy(self.logits))
            picked = self.words()
            wrong = [row for row, token in enumerate(picked) if self.kinds[token] != (row + self.place) % 2]
            if not wrong:
                return picked
            self.logits[wrong, [picked[row] for row in wrong]] = -math.inf

    def start(self, prompt):
        self.logits.copy_(self.model.logits(self.model.hidden(prompt, self.cache)))
        self.position.fill_(prompt.shape[1])
        self.place = 0
        return self.pick()

    def following(self, i):
        self.advance()
        return self.pick()


def main():
    options, record = begin(__doc__)
    setters = Setters(Model(SHAPE), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, setters.start, setters.following, warm_up=True)
    texts = serve(record, prompt, options.steps, setters.start, setters.following)
    finish(record, texts, VOCABULARY)


main()
