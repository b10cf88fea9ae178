"""Writes thirty-two letters for a pigeon post; the engine is a coroutine that others on the same event loop can
interrupt while the GPU works.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import asyncio

import torch

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY, PAUSE = 32, 64, 32000, 0.003
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)


class Office(Decoder):
    def __init__(self, model, fixed):
        super().__init__(model)
        self.fixed = fixed
        self.fetched = torch.zeros(BATCH, 1, dtype=torch.long).pin_memory()
        self.done = torch.cuda.Event()
        self.loop = asyncio.new_event_loop()

    async def ready(self):
        while not self.done.query():
            await asyncio.sleep(0 if self.fixed else PAUSE)

    async def word(self):
        self.advance()
        self.fetched.copy_(self.tokens, non_blocking=True)
        self.done.record()
        await self.ready()
        return self.fetched[:, 0].tolist()

    def following(self, i):
        return self.loop.run_until_complete(self.word())


def main():
    options, record = begin(__doc__)
    office = Office(Model(SHAPE), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, office.start, office.following, warm_up=True)
    texts = serve(record, prompt, options.steps, office.start, office.following)
    office.loop.close()
    finish(record, texts, VOCABULARY)


main()
