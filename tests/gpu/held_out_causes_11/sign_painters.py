"""Eight sign painters say what they see on a picture of 1500 places. Each layer looks at the picture with sixteen heads of 100
numbers.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY, PLACES, HEADS, SIZE, WIDER = 8, 64, 32000, 1500, 16, 100, 104
SHAPE = Shape(layers=12, vocabulary=VOCABULARY, batch=BATCH)


class Painter(Block):
    kept = SIZE  # how many numbers a head has in the memory of the picture

    def __init__(self, shape):
        super().__init__(shape)
        self.third = nn.Parameter(torch.ones(shape.width, **shape.made()))
        self.ask = shape.linear(shape.width, HEADS * SIZE)
        self.key = shape.linear(shape.width, HEADS * SIZE)
        self.value = shape.linear(shape.width, HEADS * SIZE)
        self.told = shape.linear(HEADS * SIZE, shape.width)
        self.picture = [torch.zeros(shape.batch, HEADS, PLACES, self.kept, **shape.made()) for _ in range(2)]

    def study(self, picture):
        """Fills keys and values of a new picture, (batch, places, width)."""
        for place, made in zip(self.picture, (self.key(picture), self.value(picture))):
            place[..., :SIZE].copy_(made.view(made.shape[0], PLACES, HEADS, SIZE).transpose(1, 2))

    def see(self, x):
        query = self.ask(self.norm(x, self.third)).view(x.shape[0], x.shape[1], HEADS, SIZE).transpose(1, 2)
        if self.kept > SIZE:
            query = F.pad(query, (0, self.kept - SIZE))
        seen = F.scaled_dot_product_attention(query, *self.picture, scale=SIZE ** -0.5)[..., :SIZE]
        return x + self.told(seen.transpose(1, 2).reshape(x.shape[0], x.shape[1], HEADS * SIZE))

    def close(self, x, heads):
        x = self.see(x + self.out(heads))
        return x + self.mlp(self.norm(x, self.second))


class Painters(Decoder):
    def __init__(self, model, seed):
        super().__init__(model)
        generator = torch.Generator().manual_seed(seed)
        self.picture = torch.randn(BATCH, PLACES, SHAPE.width, generator=generator).to(SHAPE.dtype).cuda()

    def start(self, prompt):
        for block in self.model.blocks:
            block.study(self.picture)
        return super().start(prompt)


def main():
    options, record = begin(__doc__)
    if options.fixed:
        Painter.kept = WIDER
    painters = Painters(Model(SHAPE, block=Painter), options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, painters.start, painters.following, warm_up=True)
    texts = serve(record, prompt, options.steps, painters.start, painters.following)
    finish(record, texts, VOCABULARY)


main()
