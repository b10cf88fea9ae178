"""A tombola: 128 texts over a large vocabulary, each next word drawn from the forty best."""
from base_loop import *

SHAPE = Shape(layers=6, vocabulary=128256, batch=128)
BEST = 40


class Tombola:
    def __init__(self, model, sorts_all, seed):
        self.model, self.cache, self.sorts_all = model, model.cache(), sorts_all
        shape = model.shape
        generator = torch.Generator().manual_seed(seed)
        self.tickets = torch.rand(301, shape.batch, 1, generator=generator).cuda()  # the last one is the prefill's
        self.tokens = torch.zeros(shape.batch, 1, dtype=torch.long, device="cuda")
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")
        self.logits = torch.zeros(shape.batch, shape.vocabulary, **shape.made())
        self.advance = replayed(self.score)

    def score(self):
        self.logits.copy_(self.model.next(self.tokens, self.position, self.cache))
        self.position.add_(1)

    def best_words(self):
        """The logits of the best words, falling, and which words they are."""
        logits = self.logits.float()
        if self.sorts_all:
            falling, words = logits.sort(dim=-1, descending=True)
            return falling[:, :BEST], words[:, :BEST]
        return logits.topk(BEST, dim=-1)

    def draw(self, ticket):
        falling, words = self.best_words()
        chances = (falling / 0.8).softmax(-1).cumsum(-1)
        place = (chances < ticket).sum(-1, keepdim=True).clamp(max=BEST - 1)
        self.tokens.copy_(words.gather(1, place))
        return self.tokens[:, 0].tolist()

    def open(self, prompt):
        self.logits.copy_(self.model.logits(self.model.hidden(prompt, self.cache)))
        self.position.fill_(prompt.shape[1])
        return self.draw(self.tickets[300])

    def next_draw(self, i):
        self.advance()
        return self.draw(self.tickets[i])


def main():
    options, record = begin(__doc__)
    tombola = Tombola(Model(SHAPE), not options.fixed, options.seed)
    beginnings = prompts(options.seed, SHAPE.batch, 32, SHAPE.vocabulary)
    serve(record, beginnings, 1, tombola.open, tombola.next_draw, warm_up=True)
    texts = serve(record, beginnings, options.steps, tombola.open, tombola.next_draw)
    finish(record, texts, SHAPE.vocabulary)


main()
