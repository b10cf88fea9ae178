"""Thirty-two bell ringers write down changes; a token becomes the less likely the more often it stands among the last 128
of its text.

The steps, with the counts of tokens, are CUDA graphs. A step is one decode step, from its first call until the tokens
are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, HEARD, PENALTY = 32, 128, 32000, 128, 0.0625
SHAPE = Shape(layers=8, vocabulary=VOCABULARY, batch=BATCH)


class Ringers(Decoder):
    def __init__(self, model, fixed):
        self.fixed = fixed
        self.heard = torch.zeros(BATCH, HEARD, dtype=torch.long, device="cuda")
        self.oldest = torch.zeros(1, dtype=torch.long, device="cuda")
        self.ones = torch.ones(BATCH, HEARD, device="cuda")
        super().__init__(model, self.choose_rare)

    def counts(self):
        """How often each token was heard, (BATCH, VOCABULARY)."""
        if self.fixed:
            return torch.zeros(BATCH, VOCABULARY, device="cuda").scatter_add_(1, self.heard, self.ones)
        return F.one_hot(self.heard, VOCABULARY).sum(1)

    def choose_rare(self, logits):
        tokens = greedy(logits.float() - PENALTY * self.counts())
        self.heard.index_copy_(1, self.oldest, tokens)
        self.oldest.add_(1).remainder_(HEARD)
        return tokens

    def start(self, prompt):
        self.heard.copy_(prompt)
        self.oldest.zero_()
        return super().start(prompt)


def main():
    options, record = begin(__doc__)
    ringers = Ringers(Model(SHAPE), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, ringers.start, ringers.following, warm_up=True)
    texts = serve(record, prompt, options.steps, ringers.start, ringers.following)
    finish(record, texts, VOCABULARY)


main()
