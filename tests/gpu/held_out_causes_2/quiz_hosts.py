"""Forty-eight hosts of a quiz speak at once; each has two closing phrases of three words and is marked after one.

A step is one decode step, from its first call until the tokens are on the host and it is known who has closed. Those
who have go on all the same, so that the batch keeps its size.
"""
import torch

from common_loop import begin, finish, prompts, serve
from common_model import Decoder, Model, Shape

BATCH, PROMPT, PHRASE, LONGEST = 48, 96, 3, 304


class Hosts(Decoder):
    def __init__(self, model, fixed, seed):
        self.fixed, self.closed, self.end = fixed, set(), 0
        self.closings = prompts(seed + 1, BATCH, 2 * PHRASE, model.shape.vocabulary).view(BATCH, 2, PHRASE)
        self.said = torch.zeros(BATCH, PHRASE + LONGEST, device="cuda", dtype=torch.long)
        self.count = torch.zeros(1, device="cuda", dtype=torch.long)
        super().__init__(model)

    def step(self):
        super().step()
        self.note()

    def note(self):
        self.said.index_copy_(1, self.count, self.tokens)
        self.count.add_(1)

    def has_closed(self, row):
        last = self.said[row, self.end - PHRASE:self.end]
        return any(bool((last == closing).all()) for closing in self.closings[row])

    def words(self):
        if self.fixed:
            last = self.said[:, None, self.end - PHRASE:self.end]
            hit = (last == self.closings).all(-1).any(-1, keepdim=True)
            rows = torch.cat((self.tokens, hit.long()), 1).tolist()
            self.closed.update(row for row, (_, closed) in enumerate(rows) if closed)
            return [token for token, _ in rows]
        self.closed.update(row for row in range(BATCH) if self.has_closed(row))
        return super().words()

    def start(self, prompt):
        self.said.fill_(-1)
        self.count.fill_(PHRASE - 1)
        self.end = PHRASE
        self.tokens.copy_(self.choose(self.model.logits(self.model.hidden(prompt, self.cache))))
        self.position.fill_(PROMPT)
        self.note()
        return self.words()

    def following(self, i):
        self.end = PHRASE + i + 1
        return super().following(i)


def main():
    options, record = begin(__doc__)
    model = Model(Shape(layers=20, batch=BATCH))
    hosts = Hosts(model, options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, model.shape.vocabulary)
    serve(record, prompt, 1, hosts.start, hosts.following, warm_up=True)
    texts = serve(record, prompt, options.steps, hosts.start, hosts.following)
    print(f"closed {sorted(hosts.closed)}")
    finish(record, texts, model.shape.vocabulary)


main()
