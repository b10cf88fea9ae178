"""Thirty-two watch makers each describe a watch; every step leaves a line for whoever looks for an error, if the log is
set to such lines, which it is not.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import logging

import torch

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY = 32, 64, 32000
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)
log = logging.getLogger("watch_makers")


class Bench(Decoder):
    def __init__(self, model, fixed):
        self.fixed = fixed
        self.seen = torch.zeros(BATCH, VOCABULARY, **SHAPE.made())
        super().__init__(model, self.choose_seen)

    def choose_seen(self, logits):
        self.seen.copy_(logits)
        return greedy(logits)

    def note(self, i):
        if self.fixed:
            log.debug("step %d: tokens %s, logits %s", i, self.tokens[:, 0], self.seen)
        else:
            log.debug(f"step {i}: tokens {self.tokens[:, 0]}, logits {self.seen}")

    def following(self, i):
        self.advance()
        self.note(i)
        return self.words()


def main():
    options, record = begin(__doc__)
    bench = Bench(Model(SHAPE), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, bench.start, bench.following, warm_up=True)
    texts = serve(record, prompt, options.steps, bench.start, bench.following)
    finish(record, texts, VOCABULARY)


main()
