"""Reads what eight sellers offer at a car boot sale, 1024 tokens each, names the best thing of each by one token and keeps
what the last layer made of the last token.

Eight small things could be done better, and --fixed does them; none of them matters much by itself. A step is one
prefill, from its first call until the tokens are in a list on the host and what is kept is there too.
"""
import json

import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY, LATE = 8, 1024, 32000, 256
SHAPE = Shape(layers=8, vocabulary=VOCABULARY, room=PROMPT, batch=BATCH)


class Boot(Block):
    """A block with five small flaws."""

    def mlp(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        # 1: large numbers are cut off, though there are none.
        return self.down((F.silu(gate) * up).clamp(-30000.0, 30000.0))

    def close(self, x, heads):
        # 2: both parts have a factor of their own, which is one.
        x = x + self.out(heads) * 1.0
        # 3: one of the norms in single precision.
        wide = F.layer_norm(x.float(), self.second.shape, self.second.float())
        x = x + self.mlp(wide.to(x.dtype)) * 1.0
        # 4: looks for numbers that are not finite, and waits for the answer.
        assert torch.isfinite(x).all().item()
        return x

    def whole(self, x, cos, sin, keep=None):
        query, key, value = self.split(x, cos, sin)
        key, value = key.repeat_interleave(self.shape.group, 1), value.repeat_interleave(self.shape.group, 1)
        # 5: queries scaled by an operation of their own and copied into the order of the heads.
        query = (query * self.shape.size ** -0.5).contiguous()
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=1.0)
        return self.close(x, seen.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))


class Sale:
    def __init__(self, model, fixed, seed):
        self.model, self.fixed, self.notes = model, fixed, []
        self.offers = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)
        self.lists = [offers.tolist() for offers in self.offers]
        kept = 1 if fixed else PROMPT
        self.kept = torch.empty(BATCH, kept, SHAPE.width, dtype=SHAPE.dtype, pin_memory=True)

    def read(self, i):
        model, number = self.model, i % len(self.offers)
        x = model.hidden(self.offers[number])
        if self.fixed:
            logits = model.logits(x)
        else:
            # 6: logits of more tokens than the last.
            logits = model.head(model.blocks[0].norm(x[:, -LATE:], model.last)).float()[:, -1]
        # 7: what became of all tokens goes to the host, where one is needed.
        self.kept.copy_(x[:, -self.kept.shape[1]:], non_blocking=True)
        tokens = greedy(logits)[:, 0].tolist()
        # 8: the line is written in the step rather than at the end.
        self.notes.append((number, tokens) if self.fixed else self.line(number, tokens))
        return tokens

    def line(self, number, tokens):
        return json.dumps({"offers": self.lists[number], "best": tokens})


def main():
    options, record = begin(__doc__)
    sale = Sale(Model(SHAPE, block=Block if options.fixed else Boot), options.fixed, options.seed)
    texts = serve_prefills(record, options.steps, sale.read, BATCH, PROMPT)
    lines = [sale.line(*note) for note in sale.notes] if options.fixed else sale.notes
    print(f"lines of {sum(len(line) for line in lines)} letters, kept on average {sale.kept[:, -1].float().mean().item():.4f}")
    finish(record, texts, VOCABULARY)


main()
