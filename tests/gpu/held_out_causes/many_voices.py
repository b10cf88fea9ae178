"""Forty-eight characters of a play speak at once: penalties for what was said, a least chance, then a draw.

A step is one decode step, from its first call until the tokens are on the host and what it borrowed is given back.
"""
import torch

from shared_loop import begin, finish, prompts, serve
from shared_model import Decoder, Model, Sizes

BATCH, PROMPT, VOCABULARY = 48, 64, 64000
PRESENCE, FREQUENCY, TEMPERATURE, SMALLEST = 0.4, 0.1, 0.7, 0.05


class Speakers(Decoder):
    def __init__(self, model, fixed, seed):
        self.fixed = fixed
        self.generator = torch.Generator("cuda").manual_seed(seed)
        self.said = torch.zeros(BATCH, VOCABULARY, device="cuda")
        self.one = torch.ones(BATCH, 1, device="cuda")
        super().__init__(model, choose=None)

    def sample(self):
        logits = self.logits.float()
        presence = (self.said > 0).float() * PRESENCE
        frequency = self.said * FREQUENCY
        penalised = logits - presence - frequency
        scaled = penalised / TEMPERATURE
        chances = scaled.softmax(-1)
        smallest = chances.amax(-1, keepdim=True) * SMALLEST
        kept = torch.where(chances < smallest, 0.0, chances)
        noise = torch.empty_like(kept).exponential_(generator=self.generator)
        tokens = (kept / noise).argmax(-1, keepdim=True)
        self.said.scatter_add_(1, tokens, self.one)
        self.tokens.copy_(tokens)

    def words(self):
        self.sample()
        tokens = super().words()
        self.give_back()
        return tokens

    def give_back(self):
        if not self.fixed:
            torch.cuda.empty_cache()


def main():
    options, record = begin(__doc__)
    model = Model(Sizes(layers=4, vocabulary=VOCABULARY, batch=BATCH))
    decoder = Speakers(model, options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, decoder.start, decoder.following, warm_up=True)
    texts = serve(record, prompt, options.steps, decoder.start, decoder.following)
    finish(record, texts, VOCABULARY)


main()
