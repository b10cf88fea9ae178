"""Sixty-four dealers at a fair of antiques praise what they sell; a line about each step goes to a journal.

Eight small things could be done better, and --fixed does them; none of them matters much by itself. The steps are CUDA
graphs. A step is one decode step, from its first call until the tokens are in a list on the host and the journal has them.
"""
import json

import torch
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, SOLD = 64, 64, 32000, 7
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Dealer(Block):
    """A block with five small flaws."""

    def mlp(self, x):
        # 1: one matrix as two.
        gate, up = (F.linear(x, part) for part in self.gate_up.weight.chunk(2))
        # 2: the activation written out.
        return self.down(gate * torch.sigmoid(gate) * up)

    def close(self, x, heads):
        # 3: one of the sums in single precision.
        x = (x.float() + self.out(heads)).to(x.dtype)
        return x + self.mlp(self.norm(x, self.second))

    def look(self, query, keys, values, mask=None):
        # 4: queries have a factor of their own, which is one.
        return super().look(query * 1.0, keys, values, mask)

    def split(self, x, cos, sin):
        query, key, value = super().split(x, cos, sin)
        # 5: keys and values copied before they go to the cache.
        return query, key.clone(), value.clone()


def logarithms(logits):
    # 6: logarithms of all chances, of which the largest is that of the largest number.
    return greedy(logits.float().log_softmax(-1))


class Fair(Decoder):
    def __init__(self, model, fixed):
        self.fixed, self.lines, self.notes, self.sold = fixed, [], [], 0
        super().__init__(model, greedy if fixed else logarithms)

    def line(self, tokens):
        return json.dumps([{"dealer": number, "token": token} for number, token in enumerate(tokens)])

    def words(self):
        tokens = super().words()
        if self.fixed:
            self.sold += tokens.count(SOLD)
            self.notes.append(tokens)
        else:
            # 7: asks the GPU once more.
            self.sold += (self.tokens == SOLD).sum().item()
            # 8: the line is written in the step rather than at the end.
            self.lines.append(self.line(tokens))
        return tokens


def main():
    options, record = begin(__doc__)
    fair = Fair(Model(SHAPE, block=Block if options.fixed else Dealer), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, fair.start, fair.following, warm_up=True)
    texts = serve(record, prompt, options.steps, fair.start, fair.following)
    lines = fair.lines + [fair.line(tokens) for tokens in fair.notes]
    print(f"lines of {sum(len(line) for line in lines)} letters, sold {fair.sold}")
    finish(record, texts, VOCABULARY)


main()
