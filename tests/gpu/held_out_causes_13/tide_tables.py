"""Tide tables read by a model whose inner layer is eight thirds of its width: prefills of eight texts of 1024 tokens."""
from base_loop import *

BATCH, COUNT = 8, 1024
WIDTH = 2048
INNER = WIDTH * 8 // 3  # 5461
ROUND_INNER = 5504  # the next multiple of 128
SHAPE = Shape(width=WIDTH, inner=INNER, room=COUNT, batch=BATCH)


class TideBlock(Block):
    def __init__(self, shape):
        super().__init__(shape)
        del self.gate_up
        self.gate = shape.linear(shape.width, shape.inner)
        self.up = shape.linear(shape.width, shape.inner)

    def mlp(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))

    def round_up(self, inner):
        """The same function, with an inner layer made larger by zeros."""
        for linear in (self.gate, self.up):
            wide = torch.zeros(inner, self.shape.width, **self.shape.made())
            wide[:self.shape.inner] = linear.weight
            linear.weight = nn.Parameter(wide)
        wide = torch.zeros(self.shape.width, inner, **self.shape.made())
        wide[:, :self.shape.inner] = self.down.weight
        self.down.weight = nn.Parameter(wide)


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, TideBlock)
    if options.fixed:
        for block in model.blocks:
            block.round_up(ROUND_INNER)
    tables = [prompts(options.seed + i, BATCH, COUNT, SHAPE.vocabulary) for i in range(4)]

    def read_tables(i):
        return model.logits(model.hidden(tables[i % len(tables)])).argmax(-1).tolist()

    texts = serve_prefills(record, options.steps, read_tables, BATCH, COUNT)
    finish(record, texts, SHAPE.vocabulary)


main()
