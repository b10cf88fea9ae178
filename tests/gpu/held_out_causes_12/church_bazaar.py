"""Sixty-four stalls of a church bazaar praise what they sell.

Eight small things could be done better, and --fixed does them; none of them matters much by itself. The steps are CUDA graphs. A
step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch

from base_loop import Block, Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY = 64, 64, 32000
SHAPE = Shape(layers=12, vocabulary=VOCABULARY, batch=BATCH)


class Stall(Block):
    """A block with six small flaws."""
    tables = None  # of the angles, cosines and sines

    def next(self, x, position, places, keys, values):
        cos, sin, mask = places
        # 1: the angles looked up again, though all layers have the same.
        cos, sin = self.tables[0][position], self.tables[1][position]
        query, key, value = self.split(x, cos, sin)
        keys.index_copy_(2, position, key)
        # 2: values copied before they are written to the cache.
        values.index_copy_(2, position, value.clone())
        return self.close(x, self.look(query, keys, values, mask))

    def close(self, x, heads):
        # 3: scores are scaled by the attention already; this strength is one.
        x = x + self.out(heads) * 1.0
        # 4: cut to a range that no number leaves.
        return (x + self.mlp(self.norm(x, self.second))).clamp(-30000.0, 30000.0)

    def mlp(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        # 5: the activation as two operations.  6: one half copied before it is used.
        return self.down(gate * torch.sigmoid(gate) * up.contiguous())


class Bazaar(Decoder):
    def __init__(self, model, fixed):
        self.fixed = fixed
        super().__init__(model, greedy if fixed else self.best)

    def best(self, logits):
        # 7: chances in single precision, of which only the order counts.  8: divided by a temperature of one.
        return greedy((logits.float() / 1.0).softmax(-1))


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, block=Block if options.fixed else Stall)
    Stall.tables = model.cos, model.sin
    bazaar = Bazaar(model, options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, bazaar.start, bazaar.following, warm_up=True)
    texts = serve(record, prompt, options.steps, bazaar.start, bazaar.following)
    finish(record, texts, VOCABULARY)


main()
