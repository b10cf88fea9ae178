"""Essays that must not say the same three words twice: what would make a triple again is forbidden to each next word."""
from base_loop import *

SHAPE = Shape(batch=8, room=896)


def triples(text):
    """Which words have followed each pair of words of the text."""
    followers = {}
    for i in range(len(text) - 2):
        followers.setdefault((text[i], text[i + 1]), []).append(text[i + 2])
    return followers


class Pupils:
    def __init__(self, model, with_notebooks):
        self.model, self.cache, self.with_notebooks = model, model.cache(), with_notebooks
        shape = model.shape
        self.tokens = torch.zeros(shape.batch, 1, dtype=torch.long, device="cuda")
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")
        self.scores = torch.zeros(shape.batch, shape.vocabulary, **shape.made())
        self.essays, self.notebooks = [], []
        self.think = replayed(self.score)

    def score(self):
        self.scores.copy_(self.model.next(self.tokens, self.position, self.cache))
        self.position.add_(1)

    def forbidden(self):
        """For each essay the words that may not come next."""
        if self.with_notebooks:
            return [notes.get((essay[-2], essay[-1]), []) for essay, notes in zip(self.essays, self.notebooks)]
        return [triples(essay).get((essay[-2], essay[-1]), []) for essay in self.essays]

    def write_down(self, words):
        for row, word in enumerate(words):
            essay = self.essays[row]
            essay.append(word)
            if self.with_notebooks:
                self.notebooks[row].setdefault((essay[-3], essay[-2]), []).append(word)

    def choose(self, forbidden):
        rows = [row for row, words in enumerate(forbidden) for _ in words]
        if rows:
            columns = [word for words in forbidden for word in words]
            self.scores[torch.tensor(rows, device="cuda"), torch.tensor(columns, device="cuda")] = float("-inf")
        self.tokens.copy_(self.scores.argmax(-1, keepdim=True))
        words = self.tokens[:, 0].tolist()
        self.write_down(words)
        return words

    def begin_essays(self, prompt):
        self.essays = prompt.tolist()
        if self.with_notebooks:
            self.notebooks = [triples(essay) for essay in self.essays]
        self.scores.copy_(self.model.logits(self.model.hidden(prompt, self.cache)))
        self.position.fill_(prompt.shape[1])
        return self.choose(self.forbidden())

    def next_words(self, i):
        forbidden = self.forbidden()
        self.think()
        return self.choose(forbidden)


def main():
    options, record = begin(__doc__)
    pupils = Pupils(Model(SHAPE), with_notebooks=options.fixed)
    beginnings = prompts(options.seed, SHAPE.batch, 512, SHAPE.vocabulary)
    serve(record, beginnings, 1, pupils.begin_essays, pupils.next_words, warm_up=True)
    texts = serve(record, beginnings, options.steps, pupils.begin_essays, pupils.next_words)
    finish(record, texts, SHAPE.vocabulary)


main()
