"""Eight guests at the coat check talk on, each behind a text of another length, so that their new keys and values go
to different places of the cache.

Nothing is captured. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY = 8, 64, 32000
SHAPE = Shape(layers=12, vocabulary=VOCABULARY, batch=BATCH)
# How much of its prompt each guest has said.
LENGTHS = [PROMPT - 3 * row for row in range(BATCH)]


class Check(Decoder):
    def __init__(self, model):
        self.at = list(LENGTHS)
        self.lengths = torch.tensor(LENGTHS, device="cuda")
        self.places = torch.zeros(BATCH, dtype=torch.long, device="cuda")
        self.rows = torch.arange(BATCH, device="cuda")
        super().__init__(model, greedy, graphed=False)

    def hang(self, keys, values, key, value):
        """Each guest's key and value to its own place."""
        for row, place in enumerate(self.at):
            keys[row, :, place].copy_(key[row, :, 0])
            values[row, :, place].copy_(value[row, :, 0])

    def step(self):
        model = self.model
        cos, sin = [part[self.places].view(BATCH, 1, 1, -1) for part in (model.cos, model.sin)]
        mask = torch.zeros(BATCH, 1, SHAPE.group, SHAPE.room, **SHAPE.made())
        mask = mask.masked_fill(model.columns > self.places.view(BATCH, 1, 1, 1), float("-inf"))
        x = model.embedding(self.tokens)
        for block, keys, values in zip(model.blocks, *self.cache):
            query, key, value = block.split(x, cos, sin)
            self.hang(keys, values, key, value)
            x = block.close(x, block.look(query, keys, values, mask))
        self.tokens.copy_(greedy(model.logits(x)))
        self.places.add_(1)
        self.at = [place + 1 for place in self.at]

    def start(self, prompt):
        # What stands behind a text's end is written over before it is seen.
        x = self.model.hidden(prompt, self.cache)
        ends = x[self.rows, self.lengths - 1].unsqueeze(1)
        self.tokens.copy_(greedy(self.model.logits(ends)))
        self.places.copy_(self.lengths)
        self.at = list(LENGTHS)
        return self.words()


class QuickCheck(Check):
    def hang(self, keys, values, key, value):
        """All at once."""
        keys[self.rows, :, self.places] = key[:, :, 0]
        values[self.rows, :, self.places] = value[:, :, 0]


def main():
    options, record = begin(__doc__)
    check = (QuickCheck if options.fixed else Check)(Model(SHAPE))
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, check.start, check.following, warm_up=True)
    texts = serve(record, prompt, options.steps, check.start, check.following)
    finish(record, texts, VOCABULARY)


main()
