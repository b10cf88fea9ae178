"""The text generator of the years before attention: eight wide LSTM layers with residuals, eight openings at a time, cold.

A step is one pass through the layers, until the eight next tokens are on the host by .cpu(): a prefill step reads eight openings of
one length, a decode step one token of each text. A request is one text. Nothing runs before the first opening, so the first prefill
step, the first decode step and the first batch's requests are warm-up. With --ranges an opening and a token have a range each, and
the drawing one inside them.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
from torch import nn

from contract import Record, arguments, now, ranges, split

VOCABULARY, BATCH = 33280, 8
WIDTH, LAYERS = 4096, 8
MADE = dict(device="cuda", dtype=torch.float16)


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        # One module for each layer, so that there can be a residual around each.
        self.layers = nn.ModuleList(nn.LSTM(WIDTH, WIDTH, batch_first=True, **MADE) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, **MADE) for _ in range(LAYERS))
        self.last, self.head = nn.LayerNorm(WIDTH, **MADE), nn.Linear(WIDTH, VOCABULARY, **MADE)

    def forward(self, ids, states):
        """The logits behind the last of `ids`, and what each layer remembers; `states` of a new text are None."""
        x, after = self.embedding(ids), []
        for layer, norm, state in zip(self.layers, self.norms, states):
            y, state = layer(norm(x), state)
            x = x + y
            after.append(state)
        return self.head(self.last(x[:, -1])), after


def draw(logits):
    return torch.multinomial((logits.float() / 0.8).softmax(-1), 1)


def write(record, mark, model, openings, steps, cold):
    length = len(openings[0])
    start = now()
    with mark("opening"):
        logits, states = model(torch.tensor(openings).to("cuda"), [None] * LAYERS)
        with mark("draw"):
            tokens = draw(logits)
            texts = [tokens.cpu()]
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, cold)
    for i in range(steps):
        begin = now()
        with mark("token"):
            logits, states = model(tokens, states)
            with mark("draw"):
                tokens = draw(logits)
                texts.append(tokens.cpu())
        end = now()
        record.step("decode", begin, end, BATCH, BATCH, cold and i == 0)
    for text in torch.cat(texts, 1).tolist():
        record.request(start, first, end, length, len(text), cold)
        assert all(0 <= token < VOCABULARY for token in text)
    assert bool(torch.isfinite(logits).all()) and bool(torch.isfinite(states[-1][1]).all())


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance, mark, record = random.Random(options.seed), ranges(options.ranges), Record()
    model = Writer().eval()
    torch.cuda.synchronize()
    for number, steps in enumerate(split(options.steps, max(8, min(25, options.steps // 6)))):
        length = chance.randrange(48, 65)
        openings = [[chance.randrange(VOCABULARY) for _ in range(length)] for _ in range(BATCH)]
        write(record, mark, model, openings, steps, cold=number == 0)
    record.finish()


main()
