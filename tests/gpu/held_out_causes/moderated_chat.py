"""Sixteen chats are continued together and watched: each token's surprise, the entropy and the lead go into a log.

A step is one decode step, from its first call until the tokens and the three numbers of every chat are on the host.
"""
import torch

from shared_loop import begin, finish, prompts, serve
from shared_model import Decoder, Model, Sizes

BATCH, PROMPT = 16, 128


class Watched(Decoder):
    """A decoder whose step leaves four numbers of each text in `seen`: token, surprise, entropy, lead."""

    def __init__(self, model, fixed):
        self.seen = [torch.zeros(BATCH, device="cuda", dtype=torch.float64) for _ in range(4)]
        self.together, self.fixed, self.log = torch.zeros(4, BATCH, device="cuda", dtype=torch.float64), fixed, []
        super().__init__(model, self.observe)

    def observe(self, logits):
        chances = logits.float().log_softmax(-1)
        best, tokens = chances.topk(2, -1)
        self.seen[0].copy_(tokens[:, 0])
        self.seen[1].copy_(-best[:, 0])
        self.seen[2].copy_(-(chances.exp() * chances).sum(-1))
        self.seen[3].copy_(best[:, 0] - best[:, 1])
        torch.stack(self.seen, out=self.together)
        return tokens[:, :1]

    def words(self):
        if self.fixed:
            rows = list(zip(*self.together.tolist()))
        else:
            rows = self.read_one_by_one()
        self.log.extend(row[1:] for row in rows)
        return [int(row[0]) for row in rows]

    def read_one_by_one(self):
        rows = []
        for chat in range(BATCH):
            token = self.seen[0][chat].item()
            surprise = self.seen[1][chat].item()
            entropy = self.seen[2][chat].item()
            lead = self.seen[3][chat].item()
            rows.append((token, surprise, entropy, lead))
        return rows


def main():
    options, record = begin(__doc__)
    model = Model(Sizes(batch=BATCH))
    decoder = Watched(model, options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, model.sizes.vocabulary)
    serve(record, prompt, 1, decoder.start, decoder.following, warm_up=True)
    texts = serve(record, prompt, options.steps, decoder.start, decoder.following)
    assert all(surprise >= 0 and entropy >= 0 and lead >= 0 for surprise, entropy, lead in decoder.log)
    finish(record, texts, model.sizes.vocabulary)


main()
