"""Eight clock winders tell how late it is. The weights of their layers come as a direction and a length, as in training.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 8, 64, 32000
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Winder(Block):
    def matrices(self):
        return self.qkv, self.out, self.gate_up, self.down

    def __init__(self, shape):
        super().__init__(shape)
        for matrix in self.matrices():
            weight_norm(matrix)

    def settle(self):
        for matrix in self.matrices():
            parametrize.remove_parametrizations(matrix, "weight", leave_parametrized=True)


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, block=Winder)
    if options.fixed:
        for block in model.blocks:
            block.settle()
    winders = Decoder(model)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, winders.start, winders.following, warm_up=True)
    texts = serve(record, prompt, options.steps, winders.start, winders.following)
    finish(record, texts, VOCABULARY)


main()
