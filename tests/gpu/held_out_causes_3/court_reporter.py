"""Takes down what forty-eight speakers say; each word is a line of JSON in a log.

A step is one decode step, from its first call until the tokens are on the host and noted.
"""
import json
import logging
import random
import tempfile

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY, WINDOW = 48, 64, 32000, 32
LETTERS = "etaoinshrdlucmfwypvbgkqjxzäöüßéñ"


def make_pieces(seed):
    """The bytes of each token."""
    chance = random.Random(seed)
    return [("".join(chance.choices(LETTERS, k=chance.randint(1, 7))) + " " * chance.randint(0, 1)).encode()
            for _ in range(VOCABULARY)]


class Reporter(Decoder):
    def __init__(self, model, fixed, seed):
        self.fixed, self.pieces = fixed, make_pieces(seed)
        self.said, self.kept, self.lines = [], [], 0
        self.file = tempfile.TemporaryFile("w", encoding="utf-8")
        handler = logging.StreamHandler(self.file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
        self.log = logging.getLogger("court")
        self.log.setLevel(logging.INFO)
        self.log.propagate = False
        self.log.addHandler(handler)
        super().__init__(model)

    def spell(self, tokens):
        return b"".join([self.pieces[token] for token in tokens]).decode("utf-8", errors="replace")

    def take_down(self, tokens):
        """A line for each speaker; the last words are spelled with and without the new token, to see what it adds."""
        for speaker, (said, token) in enumerate(zip(self.said, tokens)):
            said.append(token)
            window = said[-WINDOW:]
            words = self.spell(window)
            new = words[len(self.spell(window[:-1])):]
            tail = " ".join(words.split()[-8:])
            line = {"speaker": speaker, "place": len(said), "token": token, "new": new, "tail": tail}
            self.log.info(json.dumps(line))
            self.lines += 1

    def take_down_kept(self):
        for tokens in self.kept:
            self.take_down(tokens)
        self.kept.clear()

    def words(self):
        tokens = super().words()
        if self.fixed:
            self.kept.append(tokens)
        else:
            self.take_down(tokens)
        return tokens

    def start(self, prompt):
        self.said = [[] for _ in range(BATCH)]
        return super().start(prompt)


def main():
    options, record = begin(__doc__)
    reporter = Reporter(Model(Shape(layers=8, vocabulary=VOCABULARY, batch=BATCH)), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, reporter.start, reporter.following, warm_up=True)
    reporter.take_down_kept()
    texts = serve(record, prompt, options.steps, reporter.start, reporter.following)
    reporter.take_down_kept()
    assert reporter.lines == BATCH * (options.steps + 3)
    finish(record, texts, VOCABULARY)


main()
