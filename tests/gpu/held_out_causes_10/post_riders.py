"""Thirty-two post riders report from the road. They come in two halves; each has a stream and a CUDA graph of its own, so
that the kernels of one half may run beside those of the other.

A step is one decode step of all riders, from its first call until the tokens are in a list on the host.
"""
import torch

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

RIDERS, PROMPT, VOCABULARY = 32, 64, 32000


def shape(batch):
    return Shape(width=4096, inner=14336, layers=6, heads=32, kv_heads=8, vocabulary=VOCABULARY, batch=batch)


class Riders:
    """As many parts as it takes to have all riders in batches of the model's size."""

    def __init__(self, model):
        self.size = model.shape.batch
        self.parts = [Decoder(model) for _ in range(RIDERS // self.size)]
        self.streams = [torch.cuda.Stream() for _ in self.parts]

    def start(self, prompt):
        words = []
        for part, asked in zip(self.parts, prompt.split(self.size)):
            words += part.start(asked)
        return words

    def following(self, i):
        for part, stream in zip(self.parts, self.streams):
            with torch.cuda.stream(stream):
                part.advance()
        words = []
        for part, stream in zip(self.parts, self.streams):
            with torch.cuda.stream(stream):
                words += part.words()
        return words


def main():
    options, record = begin(__doc__)
    riders = Riders(Model(shape(RIDERS if options.fixed else RIDERS // 2)))
    prompt = prompts(options.seed, RIDERS, PROMPT, VOCABULARY)
    serve(record, prompt, 1, riders.start, riders.following, warm_up=True)
    texts = serve(record, prompt, options.steps, riders.start, riders.following)
    finish(record, texts, VOCABULARY)


main()
