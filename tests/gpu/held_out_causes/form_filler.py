"""Fills in forty-eight forms at once: what a field may hold is a table of allowed tokens, another one in each step.

The tables are made once, at the start. A step is one decode step, from its first call until the tokens are in a list
on the host.
"""
import torch

from shared_loop import begin, finish, prompts, serve
from shared_model import Decoder, Model, Sizes

BATCH, PROMPT, VOCABULARY, FIELDS = 48, 64, 64000, 8


class Constrained(Decoder):
    def __init__(self, model, fixed):
        self.fixed, self.allowed = fixed, torch.zeros(BATCH, VOCABULARY, device="cuda")
        self.tables = [self.table() for _ in range(FIELDS)]
        super().__init__(model, self.choose_allowed)

    def table(self):
        """One field's table on the host: 0 for an allowed token, else a large negative number."""
        table = torch.where(torch.rand(BATCH, VOCABULARY, device="cuda") < 0.5, 0.0, -1e4).float().cpu()
        return table.pin_memory() if self.fixed else table

    def choose_allowed(self, logits):
        return (logits.float() + self.allowed).argmax(-1, keepdim=True)

    def load_table(self, i):
        self.allowed.copy_(self.tables[i % FIELDS], non_blocking=self.fixed)

    def following(self, i):
        self.load_table(i)
        return super().following(i)


def main():
    options, record = begin(__doc__)
    model = Model(Sizes(layers=10, vocabulary=VOCABULARY, batch=BATCH))
    decoder = Constrained(model, options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, decoder.start, decoder.following, warm_up=True)
    texts = serve(record, prompt, options.steps, decoder.start, decoder.following)
    finish(record, texts, VOCABULARY)


main()
