"""Sixty-four genealogists write about families; what stands among the last 1024 tokens of a text, of which the model sees
the newest only, becomes less likely.

The steps, with what makes tokens less likely, are CUDA graphs. A step is one decode step, from its first call until the
tokens are in a list on the host.
"""
import torch

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY, KNOWN, PENALTY = 64, 64, 32000, 1024, 1.2
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Genealogists(Decoder):
    def __init__(self, model, fixed, seed):
        self.fixed = fixed
        self.before = prompts(seed + 1, BATCH, KNOWN - PROMPT, VOCABULARY).tolist()
        self.texts = []
        self.known = torch.zeros(BATCH, KNOWN, dtype=torch.long, device="cuda")
        self.oldest = torch.zeros(1, dtype=torch.long, device="cuda")  # which of the known tokens goes next
        super().__init__(model, self.choose_new)

    def choose_new(self, logits):
        logits = logits.float()
        points = logits.gather(1, self.known)
        logits.scatter_(1, self.known, torch.where(points > 0, points / PENALTY, points * PENALTY))
        return logits.argmax(-1, keepdim=True)

    def learn(self):
        """Puts the newest tokens in the places of the oldest known ones."""
        self.known.index_copy_(1, self.oldest, self.tokens)
        self.oldest.add_(1).remainder_(KNOWN)

    def step(self):
        super().step()
        if self.fixed:
            self.learn()

    def look_up(self):
        """Brings the last tokens of all texts to the GPU."""
        self.known.copy_(torch.tensor([text[-KNOWN:] for text in self.texts]))

    def take_up(self, tokens):
        for text, token in zip(self.texts, tokens):
            text.append(token)
        return tokens

    def start(self, prompt):
        self.texts = [before + ids for before, ids in zip(self.before, prompt.tolist())]
        self.look_up()
        self.oldest.zero_()
        tokens = super().start(prompt)
        if self.fixed:
            self.learn()
        return self.take_up(tokens)

    def following(self, i):
        if not self.fixed:
            self.look_up()
        return self.take_up(super().following(i))


def main():
    options, record = begin(__doc__)
    people = Genealogists(Model(SHAPE), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, people.start, people.following, warm_up=True)
    texts = serve(record, prompt, options.steps, people.start, people.following)
    assert sorted(people.known[0].tolist()) == sorted(people.texts[0][-KNOWN - (not options.fixed):][:KNOWN])
    finish(record, texts, VOCABULARY)


main()
