"""Sixteen portrait painters describe their sitters.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch

from base_loop import Block, Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY = 16, 64, 32000
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Easel(Block):
    def at(self, x, place, places, keys, values):
        """One new token of each text at `place`, a number."""
        cos, sin, mask = places
        query, key, value = self.split(x, cos, sin)
        keys[:, :, place:place + 1] = key
        values[:, :, place:place + 1] = value
        return self.close(x, self.look(query, keys, values, mask))


class Painters(Decoder):
    """The place of the next token is a number in Python and has a graph of its own."""

    def __init__(self, model):
        self.graphs, self.pool, self.stream = {}, torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        super().__init__(model, greedy, graphed=False)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(2):
                self.step_at(0)
        torch.cuda.current_stream().wait_stream(self.stream)

    def step_at(self, place):
        model = self.model
        mask = torch.zeros(1, 1, SHAPE.group, SHAPE.room, **SHAPE.made()).masked_fill(model.columns > place, float("-inf"))
        places = model.cos[place:place + 1], model.sin[place:place + 1], mask
        x = model.embedding(self.tokens)
        for block, keys, values in zip(model.blocks, *self.cache):
            x = block.at(x, place, places, keys, values)
        self.tokens.copy_(self.choose(model.logits(x)))

    def graph(self, place):
        if place not in self.graphs:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                self.step_at(place)
            self.graphs[place] = graph
        return self.graphs[place]

    def following(self, i):
        self.graph(PROMPT + i).replay()
        return self.words()


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, block=Easel)
    painters = Decoder(model) if options.fixed else Painters(model)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, painters.start, painters.following, warm_up=True)
    texts = serve(record, prompt, options.steps, painters.start, painters.following)
    finish(record, texts, VOCABULARY)


main()
