"""Twenty-four bookkeepers go on with their books, and the program keeps an account of the memory that the model takes.

The steps are launched operation by operation. A step is one decode step, from its first call until the tokens are in a
list on the host.
"""
import torch

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 24, 64, 32000
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)


class Account:
    def __init__(self):
        self.rows = []

    def note(self):
        self.rows.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))

    def peak(self):
        return torch.cuda.max_memory_allocated()


class Noted(Block):
    """Puts down the memory in use after the layer."""
    account = Account()

    def next(self, x, position, places, keys, values):
        x = super().next(x, position, places, keys, values)
        self.account.note()
        return x


def main():
    options, record = begin(__doc__)
    books = Decoder(Model(SHAPE, block=Block if options.fixed else Noted), graphed=False)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, books.start, books.following, warm_up=True)
    texts = serve(record, prompt, options.steps, books.start, books.following)
    Noted.account.note()  # the fixed twin has this row only
    print(f"rows {len(Noted.account.rows)}, at most {Noted.account.peak() / 1e9:.2f} GB")
    finish(record, texts, VOCABULARY)


main()
