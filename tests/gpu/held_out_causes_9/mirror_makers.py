"""Twenty-four mirror makers go on with letters of 1536 tokens. The steps are CUDA graphs, and a graph works where it was
captured.

A step is one decode step, from its first call until the tokens are in a list on the host.
"""
from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 24, 1536, 32000
SHAPE = Shape(vocabulary=VOCABULARY, room=PROMPT + 320, batch=BATCH)


class Mirrors(Decoder):
    """`cache` is that of the graph, `kept` that of the letters."""

    def __init__(self, model, fixed):
        super().__init__(model)
        self.fixed, self.kept = fixed, self.cache if fixed else model.cache()

    def start(self, prompt):
        self.tokens.copy_(self.choose(self.model.logits(self.model.hidden(prompt, self.kept))))
        self.position.fill_(prompt.shape[1])
        return self.words()

    def replay(self):
        if self.fixed:
            self.advance()
            return
        for inside, kept in zip(self.cache, self.kept):
            inside.copy_(kept)
        self.advance()
        for inside, kept in zip(self.cache, self.kept):
            kept.copy_(inside)

    def following(self, i):
        self.replay()
        return self.words()


def main():
    options, record = begin(__doc__)
    mirrors = Mirrors(Model(SHAPE), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, mirrors.start, mirrors.following, warm_up=True)
    texts = serve(record, prompt, options.steps, mirrors.start, mirrors.following)
    finish(record, texts, VOCABULARY)


main()
