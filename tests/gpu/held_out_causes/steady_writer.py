"""Writes thirty-two letters at once with wide layers in one CUDA graph; a step is queued before the last one's end.

A step is one decode step and ends when its tokens are in a list on the host; its graph was queued while the step before
it ran, so it starts where that one ended. --fixed is accepted and changes nothing.
"""
import torch

from shared_loop import begin, finish, prompts, serve
from shared_model import Decoder, Model, Sizes

BATCH, PROMPT = 32, 128


class Letters(Decoder):
    def __init__(self, model):
        super().__init__(model)
        self.count = 0
        self.landed = [torch.zeros(BATCH, 1, dtype=torch.long).pin_memory() for _ in range(2)]
        self.arrived = [torch.cuda.Event(), torch.cuda.Event()]

    def queue(self, i):
        self.advance()
        self.landed[i % 2].copy_(self.tokens, non_blocking=True)
        self.arrived[i % 2].record()

    def following(self, i):
        if i == 0:
            self.queue(0)
        if i + 1 < self.count:
            self.queue(i + 1)
        self.arrived[i % 2].synchronize()
        return self.landed[i % 2][:, 0].tolist()


def main():
    options, record = begin(__doc__)
    model = Model(Sizes(width=4096, inner=14336, layers=6, heads=32, kv_heads=8, batch=BATCH))
    letters = Letters(model)
    prompt = prompts(options.seed, BATCH, PROMPT, model.sizes.vocabulary)
    letters.count = 1
    serve(record, prompt, 1, letters.start, letters.following, warm_up=True)
    letters.count = options.steps
    texts = serve(record, prompt, options.steps, letters.start, letters.following)
    finish(record, texts, model.sizes.vocabulary)


main()
