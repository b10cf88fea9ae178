"""Sixteen lamp lighters report from their streets. A thread of its own looks now and then whether the GPU still multiplies
as it should, on a stream of its own.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import threading

import torch

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 16, 64, 32000
SIDE, ROUNDS, OFTEN, SELDOM = 4096, 5, 0.001, 0.5
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Health(threading.Thread):
    """Multiplies two matrices a few times, every so many seconds, until it is told to stop."""

    def __init__(self, pause):
        super().__init__(daemon=True)
        self.pause, self.done, self.checks = pause, threading.Event(), 0
        self.stream = torch.cuda.Stream()
        self.left = torch.ones(SIDE, SIDE, **SHAPE.made())
        self.right = torch.full((SIDE, SIDE), 1 / SIDE, **SHAPE.made())
        self.product = torch.ones(SIDE, SIDE, **SHAPE.made())

    def run(self):
        with torch.no_grad(), torch.cuda.stream(self.stream):
            while not self.done.wait(self.pause):
                for _ in range(ROUNDS):
                    torch.mm(self.left, self.right, out=self.product)
                self.stream.synchronize()
                self.checks += 1

    def stop(self):
        self.done.set()
        self.join()
        return bool((self.product == 1).all())


def main():
    options, record = begin(__doc__)
    lighters = Decoder(Model(SHAPE))
    health = Health(SELDOM if options.fixed else OFTEN)
    torch.cuda.synchronize()
    health.start()
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, lighters.start, lighters.following, warm_up=True)
    texts = serve(record, prompt, options.steps, lighters.start, lighters.following)
    print(f"healthy: {health.stop()}, looked {health.checks} times")
    finish(record, texts, VOCABULARY)


main()
