"""Continues thirty-two library notes and looks for known phrases in them, which the program keeps as a tree of tokens on
the host.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host and
the phrases that they end have been counted.
"""
import gc
import random

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY, PHRASES, LONGEST = 32, 64, 32000, 5000, 4
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)


class Node:
    __slots__ = ("children", "phrase")

    def __init__(self):
        self.children, self.phrase = {}, None


def tree(seed):
    chance, root = random.Random(seed), Node()
    for number in range(PHRASES):
        node = root
        for _ in range(LONGEST):
            node = node.children.setdefault(chance.randrange(VOCABULARY), Node())
        node.phrase = number
    return root


class Library(Decoder):
    def __init__(self, model, fixed, seed):
        super().__init__(model)
        self.root, self.fixed, self.found = tree(seed), fixed, 0
        self.texts = []
        if fixed:
            # The tree stays for good, so nobody has to look through it.
            gc.collect()
            gc.freeze()

    def start(self, prompt):
        self.texts = prompt.tolist()
        return super().start(prompt)

    def look_up(self, text):
        node = self.root
        for token in text[-LONGEST:]:
            node = node.children.get(token)
            if node is None:
                return 0
        return node.phrase is not None

    def following(self, i):
        tokens = super().following(i)
        for text, token in zip(self.texts, tokens):
            text.append(token)
            self.found += self.look_up(text)
        if not self.fixed:
            gc.collect()  # keeps memory low
        return tokens


def main():
    options, record = begin(__doc__)
    library = Library(Model(SHAPE), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, library.start, library.following, warm_up=True)
    texts = serve(record, prompt, options.steps, library.start, library.following)
    print(f"phrases found {library.found}")
    finish(record, texts, VOCABULARY)


main()
