"""Reads eight case histories of 1024 tokens at a time with a mixture of experts: eight in each layer, two for a token.

A step is one prefill, from its first call until a word about each case is in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY, DOCTORS, ASKED = 8, 1024, 32000, 8, 2
SHAPE = Shape(inner=2816, layers=6, vocabulary=VOCABULARY, room=PROMPT)


class Doctor(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gate_up, self.down = shape.linear(shape.width, 2 * shape.inner), shape.linear(shape.inner, shape.width)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Ward(Block):
    def __init__(self, shape):
        super().__init__(shape)
        del self.gate_up, self.down
        self.router = shape.linear(shape.width, DOCTORS)
        self.doctors = nn.ModuleList(Doctor(shape) for _ in range(DOCTORS))
        self.numbers = torch.arange(DOCTORS, device=shape.device)

    def mlp(self, x):
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).float().softmax(-1).topk(ASKED, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        return self.consult(tokens, weights, chosen).view_as(x)

    def consult(self, tokens, weights, chosen):
        """All are asked about each token; the answers of those not chosen count nothing."""
        total = torch.zeros_like(tokens)
        for number, doctor in enumerate(self.doctors):
            weight = torch.where(chosen == number, weights, 0.0).sum(-1, keepdim=True)
            total = total + weight * doctor(tokens)
        return total


class QuietWard(Ward):
    def consult(self, tokens, weights, chosen):
        """Tokens in the order of who is asked about them, so that each doctor has a piece."""
        chosen = chosen.flatten()
        order = chosen.argsort(stable=True)
        questions = tokens[order // ASKED]
        counts = (chosen.unsqueeze(-1) == self.numbers).sum(0).tolist()
        answers = torch.empty_like(questions)
        answers[order] = torch.cat([doctor(piece) for doctor, piece in zip(self.doctors, questions.split(counts))])
        return (answers.view(-1, ASKED, answers.shape[-1]) * weights.unsqueeze(-1)).sum(1)


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, block=QuietWard if options.fixed else Ward)
    batches = prompts(options.seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(i):
        return greedy(model.logits(model.hidden(batches[i % len(batches)])))[:, 0].tolist()

    finish(record, serve_prefills(record, options.steps, read, BATCH, PROMPT), VOCABULARY)


main()
