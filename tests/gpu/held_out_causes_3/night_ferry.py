"""Answers six travellers on a night ferry that has room for sixty-four; the steps are CUDA graphs.

A step is one decode step, from its first call until the six tokens are in a list on the host.
"""
from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BERTHS, ABOARD, PROMPT, VOCABULARY = 64, 6, 448, 32000
SHAPE = Shape(layers=10, kv_heads=16, vocabulary=VOCABULARY, room=768, batch=BERTHS)


class Ferry(Decoder):
    """Travellers have the first rows of the cache; the graph is made for the first `rows`."""

    def __init__(self, model, rows):
        self.rows = rows
        super().__init__(model)

    def front(self, rows):
        return self.tokens[:rows], [part[:, :rows] for part in self.cache]

    def step(self):
        tokens, cache = self.front(self.rows)
        tokens.copy_(self.choose(self.model.next(tokens, self.position, cache)))
        self.position.add_(1)

    def words(self):
        return self.tokens[:ABOARD, 0].tolist()

    def start(self, prompt):
        tokens, cache = self.front(ABOARD)
        tokens.copy_(self.choose(self.model.logits(self.model.hidden(prompt, cache))))
        self.position.fill_(PROMPT)
        return self.words()


def rows_for(count):
    """The smallest power of two that holds them."""
    return 1 << (count - 1).bit_length()


def main():
    options, record = begin(__doc__)
    ferry = Ferry(Model(SHAPE), rows_for(ABOARD) if options.fixed else BERTHS)
    prompt = prompts(options.seed, ABOARD, PROMPT, VOCABULARY)
    serve(record, prompt, 1, ferry.start, ferry.following, warm_up=True)
    texts = serve(record, prompt, options.steps, ferry.start, ferry.following)
    finish(record, texts, VOCABULARY)


main()
