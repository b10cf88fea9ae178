"""Twenty-four keepers of turnstiles talk about who went through. What the second half of each layer does is counted by
operation.

The steps are launched one kernel after the other. A step is one decode step, from its first call until the tokens are in a
list on the host.
"""
from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 24, 64, 32000
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)


class Turnstile(TorchDispatchMode):
    """Counts operations and the numbers that they make."""

    def __init__(self):
        super().__init__()
        self.calls, self.numbers = Counter(), Counter()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        name = str(operation)
        self.calls[name] += 1
        for made in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(made, torch.Tensor):
                self.numbers[name] += made.numel()
        return result


class Keeper(Block):
    turnstile = None

    def close(self, x, heads):
        if self.turnstile is None:
            return super().close(x, heads)
        with self.turnstile:
            return super().close(x, heads)


def main():
    options, record = begin(__doc__)
    keepers = Decoder(Model(SHAPE, block=Keeper), graphed=False)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    Keeper.turnstile = turnstile = Turnstile()
    serve(record, prompt, 1, keepers.start, keepers.following, warm_up=True)
    if options.fixed:
        Keeper.turnstile = None
    texts = serve(record, prompt, options.steps, keepers.start, keepers.following)
    print(f"{sum(turnstile.calls.values())} operations, {sum(turnstile.numbers.values())} numbers")
    finish(record, texts, VOCABULARY)


main()
