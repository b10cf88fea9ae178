"""Reads two speeches of 512 tokens at a time and draws the first word of an answer to each from a nucleus.

A step is one prefill, from its first call until the words are in a list on the host.
"""
import torch

from common_loop import begin, finish, prompts, serve_prefills
from common_model import Model, Shape

BATCH, PROMPT, VOCABULARY, TEMPERATURE, NUCLEUS = 2, 512, 32000, 0.8, 0.9


class Reader:
    def __init__(self, model, fixed, seed):
        self.model, self.fixed = model, fixed
        self.batches = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)
        generator = torch.Generator().manual_seed(seed)
        self.points = torch.rand(len(self.batches), BATCH, 1, generator=generator).cuda()

    def nucleus(self, x):
        """Chances of the words in falling order, zero outside the nucleus, and which words they are."""
        logits = self.model.head(self.model.blocks[0].norm(x, self.model.last)).float() / TEMPERATURE
        # Stable, since half precision makes many logits equal.
        ordered, words = logits.sort(stable=True, dim=-1, descending=True)
        chances = ordered.softmax(-1)
        before = chances.cumsum(-1) - chances
        kept = torch.where(before < NUCLEUS, chances, 0.0)
        return kept / kept.sum(-1, keepdim=True), words

    def read(self, i):
        i %= len(self.batches)
        x = self.model.hidden(self.batches[i])
        if self.fixed:
            x = x[:, -1:]
        chances, words = self.nucleus(x)
        pick = (chances[:, -1].cumsum(-1) < self.points[i]).sum(-1, keepdim=True).clamp(max=VOCABULARY - 1)
        return words[:, -1].gather(1, pick)[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    reader = Reader(Model(Shape(layers=14, vocabulary=VOCABULARY, room=PROMPT)), options.fixed, options.seed)
    finish(record, serve_prefills(record, options.steps, reader.read, BATCH, PROMPT), VOCABULARY)


main()
