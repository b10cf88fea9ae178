"""A notary writes sixteen deeds at once; the cache has room for the longest deed, of 8192 tokens, these are short.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, replayed, serve

BATCH, PROMPT, ROOM, PIECE, LONGEST, VOCABULARY = 16, 224, 8192, 256, 224 + 304, 32000
SHAPE = Shape(vocabulary=VOCABULARY, room=ROOM, batch=BATCH)


class Notary(Decoder):
    def __init__(self, model, lengths):
        super().__init__(model, graphed=False)
        # A graph for each length of what the attention looks at.
        self.graphs = {length: replayed(lambda length=length: self.write(length)) for length in lengths}

    def make_mask(self, length):
        mask = torch.zeros(BATCH, 1, SHAPE.group, length, **SHAPE.made())
        return mask.masked_fill(self.model.columns[:length] > self.position, float("-inf"))

    def write(self, length):
        """One decode step that looks at the first `length` places of the cache."""
        model = self.model
        places = model.cos[self.position], model.sin[self.position], self.make_mask(length)
        x = model.embedding(self.tokens)
        for block, keys, values in zip(model.blocks, *self.cache):
            x = block.next(x, self.position, places, keys[:, :, :length], values[:, :, :length])
        self.tokens.copy_(greedy(model.logits(x)))
        self.position.add_(1)

    def following(self, i):
        length = next(length for length in self.graphs if length > PROMPT + i)
        self.graphs[length]()
        return self.words()


def main():
    options, record = begin(__doc__)
    lengths = range(PIECE, LONGEST + PIECE, PIECE) if options.fixed else (ROOM,)
    notary = Notary(Model(SHAPE), lengths)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, notary.start, notary.following, warm_up=True)
    texts = serve(record, prompt, options.steps, notary.start, notary.following)
    finish(record, texts, VOCABULARY)


main()
