"""Two kitchens: one GPU reads eight orders of 1024 tokens, the other has the same model, is given the keys and values,
and finds the first word of each answer from the last token of the order. Needs two GPUs.

One process drives both. A step is one prefill, from its first call until the words are in a list on the host.
"""
from dataclasses import replace

import torch

from base_loop import Model, Shape, begin, finish, greedy, need_gpus, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY = 8, 1024, 32000
SHAPE = Shape(layers=8, vocabulary=VOCABULARY, room=PROMPT + 8, batch=BATCH)
KITCHENS = ("cuda:0", "cuda:1")


class Kitchens:
    def __init__(self, seed):
        self.cook, self.waiter = [Model(replace(SHAPE, device=kitchen)) for kitchen in KITCHENS]
        self.waiter.load_state_dict(self.cook.state_dict())
        self.cooked, self.served = self.cook.cache(), self.waiter.cache()
        self.position = torch.full((1,), PROMPT, device=KITCHENS[1], dtype=torch.long)
        orders = prompts(seed, 4 * BATCH, PROMPT + 1, VOCABULARY).split(BATCH)
        # All but the last token are read in the first kitchen.
        self.orders = [(order[:, :-1].contiguous(), order[:, -1:].to(KITCHENS[1])) for order in orders]

    def hand_over(self, dish, plate):
        """Keys or values of a layer go from one kitchen to the other."""
        plate.copy_(dish.cpu())

    def read(self, i):
        front, last = self.orders[i % len(self.orders)]
        self.cook.hidden(front, self.cooked)
        for dishes, plates in zip(self.cooked, self.served):
            for dish, plate in zip(dishes, plates):
                self.hand_over(dish, plate)
        return greedy(self.waiter.next(last, self.position, self.served))[:, 0].tolist()


class OpenKitchens(Kitchens):
    def hand_over(self, dish, plate):
        plate.copy_(dish, non_blocking=True)


def main():
    options, record = begin(__doc__)
    need_gpus(2)
    kitchens = (OpenKitchens if options.fixed else Kitchens)(options.seed)
    finish(record, serve_prefills(record, options.steps, kitchens.read, BATCH, PROMPT + 1), VOCABULARY)


main()
