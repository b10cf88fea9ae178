"""Sixteen glass blowers tell how they work; the model computes in bf16.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY = 16, 64, 32000
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Blowers(Decoder):
    def __init__(self, model, fixed):
        self.fixed = fixed
        super().__init__(model, greedy)

    def bf16(self):
        # The fixed model is in bf16 as it stands.
        return torch.autocast("cuda", dtype=torch.bfloat16, enabled=not self.fixed, cache_enabled=False)

    def step(self):
        with self.bf16():
            super().step()

    def start(self, prompt):
        with self.bf16():
            return super().start(prompt)


def load_model(fixed):
    model = Model(SHAPE)
    return model if fixed else model.float()


def main():
    options, record = begin(__doc__)
    blowers = Blowers(load_model(options.fixed), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, blowers.start, blowers.following, warm_up=True)
    texts = serve(record, prompt, options.steps, blowers.start, blowers.following)
    finish(record, texts, VOCABULARY)


main()
