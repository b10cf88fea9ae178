"""Sixteen readers ask at a reference desk. For each token the desk finds the eight of 65536 catalogue cards that are nearest
to what the model has in mind, and the words on them become more likely.

The layers are a CUDA graph; what follows is launched one kernel after the other. A step is one decode step, from its first
call until the tokens are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY = 16, 64, 32000
CARDS, SIZE, NEAREST, MORE = 65536, 256, 8, 0.25
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Reader(Model):
    def logits(self, x):
        self.mind = self.blocks[0].norm(x[:, -1], self.last)
        return self.head(self.mind)


class Desk(Decoder):
    def __init__(self, model, fixed):
        self.project = torch.randn(SHAPE.width, SIZE, **SHAPE.made()) / SHAPE.width ** 0.5
        cards = F.normalize(torch.randn(CARDS, SIZE, device="cuda"))
        self.cards = cards if fixed else cards.cpu()
        self.on_cards = torch.randint(VOCABULARY, (CARDS,), device="cuda")
        self.more = torch.full((BATCH, NEAREST), MORE, **SHAPE.made())
        self.scores = torch.zeros(BATCH, VOCABULARY, **SHAPE.made())
        self.query = torch.zeros(BATCH, SIZE, device="cuda")
        super().__init__(model)

    def ask(self, scores):
        self.scores.copy_(scores)
        self.query.copy_(self.model.mind @ self.project)

    def step(self):
        self.ask(self.model.next(self.tokens, self.position, self.cache))
        self.position.add_(1)

    def search(self):
        likeness = self.query.to(self.cards.device) @ self.cards.t()
        return likeness.topk(NEAREST).indices.cuda()

    def answer(self):
        self.scores.scatter_add_(1, self.on_cards[self.search()], self.more)
        self.tokens.copy_(self.choose(self.scores))
        return self.words()

    def start(self, prompt):
        self.ask(self.model.logits(self.model.hidden(prompt, self.cache)))
        self.position.fill_(prompt.shape[1])
        return self.answer()

    def following(self, i):
        self.advance()
        return self.answer()


def main():
    options, record = begin(__doc__)
    desk = Desk(Reader(SHAPE), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, desk.start, desk.following, warm_up=True)
    texts = serve(record, prompt, options.steps, desk.start, desk.following)
    finish(record, texts, VOCABULARY)


main()
