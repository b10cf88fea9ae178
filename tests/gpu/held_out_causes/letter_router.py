"""Routes letters in many languages, eight of 448 tokens at a time: the first word of an answer names the desk.

A step is one prefill, from its first call until the words are in a list on the host.
"""
from shared_loop import begin, finish, prompts, serve_prefills
from shared_model import Model, Sizes

BATCH, PROMPT, VOCABULARY = 8, 448, 128256


class Router:
    def __init__(self, model, fixed):
        self.model, self.fixed = model, fixed

    def scores(self, x):
        if self.fixed:
            x = x[:, -1:]
        return self.model.head(self.model.last(x)).float()

    def read(self, ids):
        return self.scores(self.model.hidden(ids))[:, -1].argmax(-1).tolist()


def main():
    options, record = begin(__doc__)
    model = Model(Sizes(layers=8, vocabulary=VOCABULARY, length=PROMPT))
    router = Router(model, options.fixed)
    batches = prompts(options.seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)
    finish(record, serve_prefills(record, batches, options.steps, router.read), VOCABULARY)


main()
