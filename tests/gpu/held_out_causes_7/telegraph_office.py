"""Thirty-two telegrams are written at once; a clerk, which is another process, spells what has come of each and counts the
letters, which are paid for at the end.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host and
with the clerk.
"""
import json
import subprocess
import sys

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY = 32, 64, 32000
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)

# The clerk reads a line of tokens, one of each telegram, and answers by a line with the number of letters so far.
CLERK = """
import json, re, sys

def word(token):
    letters = ""
    while token:
        token, letter = divmod(token, 26)
        letters += chr(97 + letter)
    return letters

telegrams = []
for line in sys.stdin:
    tokens = json.loads(line)
    telegrams = telegrams or [[7 * token % 32000 for token in range(first, first + 240)] for first in tokens]
    paid = 0
    for telegram, token in zip(telegrams, tokens):
        telegram.append(token)
        spelled = " ".join(word(token) for token in telegram[-240:])
        paid += sum(len(part) for part in re.findall("[a-z]+", spelled))
    print(paid, flush=True)
"""


class Office(Decoder):
    def __init__(self, model, fixed):
        self.fixed, self.waiting, self.paid = fixed, 0, []
        super().__init__(model, greedy)

    def open(self):
        self.clerk = subprocess.Popen([sys.executable, "-c", CLERK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answers(self):
        """Reads the answers that are still to come."""
        while self.waiting:
            self.paid.append(int(self.clerk.stdout.readline()))
            self.waiting -= 1

    def close(self):
        self.answers()
        self.clerk.stdin.close()
        self.clerk.wait()

    def words(self):
        tokens = super().words()
        self.clerk.stdin.write(json.dumps(tokens) + "\n")
        self.clerk.stdin.flush()
        self.waiting += 1
        if not self.fixed:
            self.answers()
        return tokens


def main():
    options, record = begin(__doc__)
    office = Office(Model(SHAPE), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    office.open()
    serve(record, prompt, 1, office.start, office.following, warm_up=True)
    office.answers()
    texts = serve(record, prompt, options.steps, office.start, office.following)
    office.close()
    print(f"answers {len(office.paid)}, letters in the last one {office.paid[-1]}")
    finish(record, texts, VOCABULARY)


main()
