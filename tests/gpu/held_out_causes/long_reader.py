"""Reads two reports of 2048 tokens at a time and says one word about each.

A step is one prefill, from its first call until the two words are in a list on the host.
"""
import torch

from shared_loop import begin, finish, prompts, serve_prefills
from shared_model import Layer, Model, Sizes, greedy

BATCH, PROMPT, VOCABULARY = 2, 2048, 32000


class WrittenOut(Layer):
    def attend(self, query, key, value):
        count = query.shape[2]
        mask = torch.full((count, count), float("-inf"), device="cuda", dtype=query.dtype).triu(1)
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        scores = scores + mask
        weights = torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype)
        return weights @ value


def main():
    options, record = begin(__doc__)
    model = Model(Sizes(length=PROMPT), layer=Layer if options.fixed else WrittenOut)
    batches = prompts(options.seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(prompt):
        return greedy(model.prefill(prompt))[:, 0].tolist()

    finish(record, serve_prefills(record, batches, options.steps, read), VOCABULARY)


main()
