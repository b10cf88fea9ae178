"""Sixty-four fortune tellers draw each word from the 64 likeliest ones, of which only those that have nine tenths of their
chances count.

The model's step is a CUDA graph that leaves the logits, with a leaning for each word, on the GPU; the drawing comes after
it. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, LIKELIEST, NUCLEUS, MOST = 64, 32, 128256, 64, 0.9, 300
SHAPE = Shape(layers=8, vocabulary=VOCABULARY, batch=BATCH)


class Tellers(Decoder):
    def __init__(self, model, fixed, seed):
        self.fixed, generator = fixed, torch.Generator().manual_seed(seed)
        self.leaning = (torch.rand(VOCABULARY, generator=generator) / 50).cuda()
        self.dice = torch.rand(MOST + 1, BATCH, 1, generator=generator).cuda()
        self.ranks = torch.arange(VOCABULARY, device="cuda")
        self.logits = torch.zeros(BATCH, VOCABULARY, device="cuda")
        super().__init__(model, greedy)

    def step(self):
        self.logits.copy_(self.model.next(self.tokens, self.position, self.cache).float() + self.leaning)
        self.position.add_(1)

    def best(self, chances):
        """The likeliest words, best first, and their chances; those that are not among them have none."""
        if self.fixed:
            return chances.topk(LIKELIEST)
        ordered, words = chances.sort(-1, descending=True)
        return ordered.masked_fill(self.ranks >= LIKELIEST, 0.0), words

    def draw(self, dice):
        ordered, words = self.best(self.logits.softmax(-1))
        before = ordered.cumsum(-1) - ordered
        ordered = ordered.masked_fill(before >= NUCLEUS * ordered.sum(-1, keepdim=True), 0.0)
        sums = ordered.cumsum(-1)
        rank = (sums <= dice * ordered.sum(-1, keepdim=True)).sum(-1, keepdim=True).clamp(max=LIKELIEST - 1)
        self.tokens.copy_(words.gather(1, rank))

    def start(self, prompt):
        self.logits.copy_(self.model.logits(self.model.hidden(prompt, self.cache)).float() + self.leaning)
        self.draw(self.dice[MOST])
        self.position.fill_(PROMPT)
        return self.words()

    def following(self, i):
        self.advance()
        self.draw(self.dice[i])
        return self.words()


def main():
    options, record = begin(__doc__)
    tellers = Tellers(Model(SHAPE), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, tellers.start, tellers.following, warm_up=True)
    texts = serve(record, prompt, options.steps, tellers.start, tellers.following)
    finish(record, texts, VOCABULARY)


main()
