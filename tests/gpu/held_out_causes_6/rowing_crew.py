"""Answers a rowing crew: eight at the oars and one who steers, all at the same place of their texts.

There are CUDA graphs of the decode step for several numbers of texts. A step is one decode step, from its first call
until the tokens are in a list on the host.
"""
import torch

from base_loop import Model, Shape, begin, finish, greedy, prompts, replayed, serve

CREW, PROMPT, VOCABULARY, SIZES = 9, 64, 32000, (1, 2, 4, 8, 16)
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=max(SIZES))


class Crew:
    def __init__(self, model, fixed):
        self.model, self.fixed, self.cache = model, fixed, model.cache()
        self.tokens = torch.zeros(SHAPE.batch, 1, dtype=torch.long, device="cuda")
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")
        self.graphs = {size: replayed(lambda size=size: self.step(size)) for size in SIZES}

    def front(self, rows):
        return [part[:, :rows] for part in self.cache]

    def step(self, rows):
        tokens = self.tokens[:rows]
        tokens.copy_(greedy(self.model.next(tokens, self.position, self.front(rows))))
        self.position.add_(1)

    def advance(self, rows):
        if self.fixed:
            # The rows to spare compute what nobody reads.
            rows = min(size for size in self.graphs if size >= rows)
        if rows in self.graphs:
            self.graphs[rows]()
        else:
            self.step(rows)

    def words(self):
        return self.tokens[:CREW, 0].tolist()

    def start(self, prompt):
        x = self.model.hidden(prompt, self.front(CREW))
        self.tokens[:CREW].copy_(greedy(self.model.logits(x)))
        self.position.fill_(PROMPT)
        return self.words()

    def following(self, i):
        self.advance(CREW)
        return self.words()


def main():
    options, record = begin(__doc__)
    crew = Crew(Model(SHAPE), options.fixed)
    prompt = prompts(options.seed, CREW, PROMPT, VOCABULARY)
    serve(record, prompt, 1, crew.start, crew.following, warm_up=True)
    texts = serve(record, prompt, options.steps, crew.start, crew.following)
    finish(record, texts, VOCABULARY)


main()
