"""Thirty-two harbour masters keep their books; the scores of all words of each step are kept on the host, where they are
looked at when all is written.

The steps are CUDA graphs. A step is one decode step, from its first call until scores and tokens are on the host, the
tokens in a list.
"""
import torch

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY = 32, 64, 65536
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Masters(Decoder):
    def __init__(self, model, fixed, steps):
        self.scores = torch.zeros(BATCH, VOCABULARY, device="cuda")
        self.books = torch.empty(steps, BATCH, VOCABULARY, pin_memory=True) if fixed else None
        self.kept = []
        super().__init__(model, self.choose_kept)

    def choose_kept(self, logits):
        self.scores.copy_(logits)
        return greedy(logits)

    def page(self, i):
        """Pinned memory for the scores of one step."""
        if self.books is None:
            return torch.empty(BATCH, VOCABULARY, pin_memory=True)
        return self.books[i]

    def start(self, prompt):
        self.kept.clear()
        return super().start(prompt)

    def following(self, i):
        page = self.page(i)
        self.advance()
        page.copy_(self.scores, non_blocking=True)
        self.kept.append(page)
        return self.words()


def main():
    options, record = begin(__doc__)
    masters = Masters(Model(SHAPE), options.fixed, options.steps)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, masters.start, masters.following, warm_up=True)
    texts = serve(record, prompt, options.steps, masters.start, masters.following)
    best = [page.amax(-1).mean().item() for page in masters.kept]
    print(f"pages {len(best)}, best score on average {sum(best) / len(best):.3f}")
    finish(record, texts, VOCABULARY)


main()
