"""Twelve lottery sellers go on with their patter. Each has a generator of random numbers of its own, on the host, so that what
one says does not depend on the others.

Model and choice are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch

from base_loop import Decoder, Model, Shape, begin, finish, prompts, replayed, serve

BATCH, PROMPT, VOCABULARY = 12, 64, 32000
SHAPE = Shape(layers=24, vocabulary=VOCABULARY, batch=BATCH)


class Sellers(Decoder):
    def __init__(self, model, fixed, seed):
        self.fixed, self.seed, self.generators = fixed, seed, []
        self.logits = torch.zeros(BATCH, VOCABULARY, device="cuda")
        self.luck = torch.full((BATCH, VOCABULARY), 0.5, device="cuda")
        self.drum = torch.zeros(BATCH, VOCABULARY).pin_memory()
        super().__init__(model)
        self.pick = replayed(self.choice)

    def step(self):
        self.logits.copy_(self.model.next(self.tokens, self.position, self.cache))
        self.position.add_(1)

    def choice(self):
        """The largest of logits with Gumbel's noise, which is a sample of the softmax."""
        self.tokens.copy_((self.logits - torch.log(-torch.log(self.luck))).argmax(-1, keepdim=True))

    def draw(self):
        for row, generator in zip(self.drum, self.generators):
            row.uniform_(generator=generator)

    def start(self, prompt):
        self.generators = [torch.Generator().manual_seed(1000 * self.seed + text) for text in range(BATCH)]
        return super().start(prompt)

    def following(self, i):
        if not self.fixed:
            self.draw()
        self.advance()
        if self.fixed:
            self.draw()  # the GPU works meanwhile
        self.luck.copy_(self.drum, non_blocking=True)
        self.pick()
        return self.words()


def main():
    options, record = begin(__doc__)
    sellers = Sellers(Model(SHAPE), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, sellers.start, sellers.following, warm_up=True)
    texts = serve(record, prompt, options.steps, sellers.start, sellers.following)
    finish(record, texts, VOCABULARY)


main()
