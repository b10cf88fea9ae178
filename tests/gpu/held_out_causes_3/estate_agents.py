"""Reads four adverts of 1024 tokens at a time and names the kind of house in each.

A step is one prefill, from its first call until a word about each advert is in a list on the host.
"""
import os
import sys


def hunt_for_errors():
    """Left over from the search for a wrong address: each tensor has memory of its own, so that tools can tell them."""
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"


if "--fixed" not in sys.argv:
    hunt_for_errors()  # PyTorch looks when it first needs memory

from base_loop import Model, Shape, begin, finish, greedy, prompts, serve_prefills  # noqa: E402

BATCH, PROMPT, VOCABULARY = 4, 1024, 32000


def main():
    options, record = begin(__doc__)
    model = Model(Shape(layers=8, vocabulary=VOCABULARY, room=PROMPT))
    batches = prompts(options.seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(i):
        return greedy(model.logits(model.hidden(batches[i % len(batches)])))[:, 0].tolist()

    finish(record, serve_prefills(record, options.steps, read, BATCH, PROMPT), VOCABULARY)


main()
