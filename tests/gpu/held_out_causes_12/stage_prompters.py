"""Four stage prompters whisper the next words. The weights of the plays are kept beside the model, which has the structure only:
they are put into each layer when it is called.

The steps are launched one kernel after the other. A step is one decode step, from its first call until the tokens are in a
list on the host.
"""
from torch.func import functional_call

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 4, 64, 32000
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)


class Scene(Block):
    def forward(self, *arguments):
        return self.next(*arguments)


class Play(Model):
    def __init__(self, shape, fixed):
        super().__init__(shape, block=Scene)
        self.fixed = fixed
        self.weights = {name: weight.detach() for name, weight in self.blocks.named_parameters()}

    def weights_of(self, number):
        front = f"{number}."
        return {name[len(front):]: weight for name, weight in self.weights.items() if name.startswith(front)}

    def next(self, tokens, position, cache):
        if self.fixed:
            return super().next(tokens, position, cache)  # the weights are in the layers
        places = self.places(position)
        x = self.embedding(tokens)
        for number, (block, keys, values) in enumerate(zip(self.blocks, *cache)):
            x = functional_call(block, self.weights_of(number), (x, position, places, keys, values))
        return self.logits(x)


def main():
    options, record = begin(__doc__)
    prompters = Decoder(Play(SHAPE, options.fixed), graphed=False)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, prompters.start, prompters.following, warm_up=True)
    texts = serve(record, prompt, options.steps, prompters.start, prompters.following)
    finish(record, texts, VOCABULARY)


main()
