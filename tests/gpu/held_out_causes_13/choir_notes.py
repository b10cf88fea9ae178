"""A choir's notes, read eight sheets of 1024 marks at a time by a model with a plain inner layer and GELU."""
import math

from base_loop import *

BATCH, COUNT = 8, 1024
SHAPE = Shape(inner=8192, layers=10, room=COUNT, batch=BATCH)


def soft_gate(x):
    """GELU in the form with the hyperbolic tangent, in single precision as in the paper's code."""
    y = x.float()
    y = 0.5 * y * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (y + 0.044715 * torch.pow(y, 3.0))))
    return y.to(x.dtype)


def fused_gate(x):
    return F.gelu(x, approximate="tanh")


class ChoirBlock(Block):
    gate = staticmethod(soft_gate)

    def __init__(self, shape):
        super().__init__(shape)
        del self.gate_up
        self.up = shape.linear(shape.width, shape.inner)

    def mlp(self, x):
        return self.down(self.gate(self.up(x)))


class FusedChoirBlock(ChoirBlock):
    gate = staticmethod(fused_gate)


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, FusedChoirBlock if options.fixed else ChoirBlock)
    sheets = [prompts(options.seed + i, BATCH, COUNT, SHAPE.vocabulary) for i in range(4)]

    def read_sheets(i):
        return model.logits(model.hidden(sheets[i % len(sheets)])).argmax(-1).tolist()

    texts = serve_prefills(record, options.steps, read_sheets, BATCH, COUNT)
    finish(record, texts, SHAPE.vocabulary)


main()
