"""Four players tell their fortunes; each has a temperature and a nucleus of their own to draw words from.

The points that are drawn are the same for the same seed. A step is one decode step, from its first call until the
tokens are in a list on the host.
"""
import torch

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY, LONGEST = 4, 96, 32000, 304


class Players(Decoder):
    def __init__(self, model, home, seed):
        generator = torch.Generator().manual_seed(seed)
        self.home = home  # where words are drawn
        self.points = torch.rand(LONGEST, BATCH, 1, generator=generator, dtype=torch.double).to(home)
        self.temperature = torch.linspace(0.7, 1.1, BATCH).view(-1, 1).to(home)
        self.nucleus = torch.linspace(0.85, 0.95, BATCH, dtype=torch.double).view(-1, 1).to(home)
        self.logits = torch.zeros(BATCH, VOCABULARY, **model.shape.made())
        super().__init__(model)

    def step(self):
        self.logits.copy_(self.model.next(self.tokens, self.position, self.cache))
        self.position.add_(1)

    def draw(self, number):
        """A word for each player, from the smallest set of words that together have the chance of the nucleus."""
        # Stable, since half precision makes many logits equal.
        logits = self.logits.to(self.home).float() / self.temperature
        ordered, words = logits.sort(stable=True, dim=-1, descending=True)
        chances = ordered.double().softmax(-1)
        before = chances.cumsum(-1) - chances
        kept = torch.where(before < self.nucleus, chances, 0.0).cumsum(-1)
        pick = (kept < self.points[number] * kept[:, -1:]).sum(-1, keepdim=True).clamp(max=VOCABULARY - 1)
        chosen = words.gather(1, pick)
        self.tokens.copy_(chosen)
        return chosen[:, 0].tolist()

    def start(self, prompt):
        self.logits.copy_(self.model.logits(self.model.hidden(prompt, self.cache)))
        self.position.fill_(PROMPT)
        return self.draw(0)

    def following(self, i):
        self.advance()
        return self.draw(i + 1)


def main():
    options, record = begin(__doc__)
    model = Model(Shape(vocabulary=VOCABULARY, batch=BATCH))
    players = Players(model, "cuda" if options.fixed else "cpu", options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, players.start, players.following, warm_up=True)
    texts = serve(record, prompt, options.steps, players.start, players.following)
    finish(record, texts, VOCABULARY)


main()
