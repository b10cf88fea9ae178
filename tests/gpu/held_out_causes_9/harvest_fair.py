"""Forty-eight farmers at a harvest fair tell of their pumpkins; a notice says after each step how far they are.

Eight small things could be done better, and --fixed does them; none of them matters much by itself. The steps are CUDA
graphs. A step is one decode step, from its first call until the tokens are in a list on the host and the notice is made.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY = 48, 64, 32000
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Farmer(Block):
    """A block with five small flaws."""

    def close(self, x, heads):
        # 1: the sum has a factor, which is one.
        x = x + self.out(heads) * 1.0
        # 2: this norm in single precision.
        return x + self.mlp(F.layer_norm(x.float(), self.second.shape).to(x.dtype) * self.second)

    def mlp(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        # 3: the activation in two operations.
        return self.down(gate * torch.sigmoid(gate) * up)

    def look(self, query, keys, values, mask=None):
        # 4: what the attention made is copied.
        return super().look(query, keys, values, mask).clone()

    def next(self, x, position, places, keys, values):
        cos, sin, mask = places
        # 5: each layer has a mask of its own.
        return super().next(x, position, (cos, sin, mask.clone()), keys, values)


def likeliest(logits):
    # 6: chances of all words, of which the largest is that of the largest number.
    return greedy(logits.float().softmax(-1))


class Fair(Decoder):
    def __init__(self, model, fixed):
        self.fixed, self.count, self.notice = fixed, 0, ""
        super().__init__(model, greedy if fixed else likeliest)

    def start(self, prompt):
        self.count = prompt.shape[1]
        return super().start(prompt)

    def following(self, i):
        tokens = super().following(i)
        self.count += 1
        if self.fixed:
            self.notice = f"place {self.count}"
        else:
            # 7: asks the GPU for a number that the host knows.
            place = self.position.item()
            # 8: a line for each farmer.
            lines = [f"place {place}, farmer {number:02d} says {token:>6d}" for number, token in enumerate(tokens)]
            self.notice = "\n".join(lines)
        return tokens


def main():
    options, record = begin(__doc__)
    fair = Fair(Model(SHAPE, block=Block if options.fixed else Farmer), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, fair.start, fair.following, warm_up=True)
    texts = serve(record, prompt, options.steps, fair.start, fair.following)
    print(f"the last notice begins: {fair.notice.splitlines()[0]}")
    finish(record, texts, VOCABULARY)


main()
