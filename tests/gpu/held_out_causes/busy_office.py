"""An office answers thirty-two letters at once: each word must be allowed by a table, no phrase may be a forbidden one.

The tables are made once, at the start. A step is one decode step, from its first call until the tokens are on the host
and the letters have been searched for forbidden phrases.
"""
import torch

from shared_loop import begin, finish, prompts, serve
from shared_model import Decoder, Model, Sizes

BATCH, PROMPT, VOCABULARY, TABLES, TAIL = 32, 96, 48000, 8, 96
WORDS = [f" word{i}" for i in range(VOCABULARY)]
FORBIDDEN = [f" word{i} word{i + 7}" for i in range(1000, 1040)]
LONGEST = 2 * max(len(word) for word in WORDS)


def has_forbidden(text):
    return any(phrase in text for phrase in FORBIDDEN)


class Office(Decoder):
    def __init__(self, model, fixed):
        self.fixed, self.allowed = fixed, torch.zeros(BATCH, VOCABULARY, device="cuda")
        self.tables = [self.table() for _ in range(TABLES)]
        self.letters, self.ends, self.flagged = [], [], set()
        super().__init__(model, self.choose_allowed)

    def table(self):
        """One table on the host: 0 for an allowed token, else a large negative number."""
        table = torch.where(torch.rand(BATCH, VOCABULARY, device="cuda") < 0.5, 0.0, -1e4).float().cpu()
        return table.pin_memory() if self.fixed else table

    def choose_allowed(self, logits):
        return (logits.float() + self.allowed).argmax(-1, keepdim=True)

    def load_table(self, i):
        self.allowed.copy_(self.tables[i % TABLES], non_blocking=self.fixed)

    def read_tokens(self):
        if self.fixed:
            return self.tokens[:, 0].tolist()
        return [self.tokens[row, 0].item() for row in range(BATCH)]

    def search(self, tokens):
        for row, token in enumerate(tokens):
            self.letters[row].append(token)
            if self.fixed:
                text = self.ends[row] = (self.ends[row] + WORDS[token])[-LONGEST:]
            else:
                text = "".join([WORDS[word] for word in self.letters[row][-TAIL:]])
            if has_forbidden(text):
                self.flagged.add(row)

    def words(self):
        tokens = self.read_tokens()
        self.search(tokens)
        return tokens

    def start(self, prompt):
        self.letters = prompt.tolist()
        texts = ["".join([WORDS[word] for word in letter[-TAIL:]]) for letter in self.letters]
        self.flagged = {row for row, text in enumerate(texts) if has_forbidden(text)}
        self.ends = [text[-LONGEST:] for text in texts]
        return super().start(prompt)

    def following(self, i):
        self.load_table(i)
        return super().following(i)


def main():
    options, record = begin(__doc__)
    model = Model(Sizes(vocabulary=VOCABULARY, batch=BATCH))
    office = Office(model, options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, office.start, office.following, warm_up=True)
    texts = serve(record, prompt, options.steps, office.start, office.following)
    print(f"flagged {sorted(office.flagged)}")
    finish(record, texts, VOCABULARY)


main()
