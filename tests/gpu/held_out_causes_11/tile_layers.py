"""Four tile layers talk about their work. Each operation of the model has a CUDA graph of its own, so that any of them can be
exchanged without capturing the others again.

A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, greedy, prompts, replayed, serve

BATCH, PROMPT, VOCABULARY = 4, 64, 32000
SHAPE = Shape(width=1024, inner=4096, layers=24, heads=8, kv_heads=2, vocabulary=VOCABULARY, batch=BATCH)


class Tile(Block):
    """What `next` of a block does, in ten pieces."""

    def turn(self, both, cos, sin):
        heads, kv_heads, size = self.shape.heads, self.shape.kv_heads, self.shape.size
        turning, value = both.view(-1, 1, heads + 2 * kv_heads, size).transpose(1, 2).split((heads + kv_heads, kv_heads), 1)
        a, b = turning.chunk(2, -1)
        query, key = torch.addcmul(turning * cos, torch.cat((b, a), -1), sin).split((heads, kv_heads), 1)
        return query, key, value

    def write(self, position, key, value, keys, values):
        keys.index_copy_(2, position, key)
        values.index_copy_(2, position, value)

    def add_heads(self, x, heads):
        return x + self.out(heads)

    def gated(self, both):
        gate, up = both.chunk(2, -1)
        return F.silu(gate) * up

    def add_mlp(self, x, inner):
        return x + self.down(inner)

    def laid(self, do, x, position, places, keys, values):
        cos, sin, mask = places
        query, key, value = do(self.turn, do(self.qkv, do(self.norm, x, self.first)), cos, sin)
        do(self.write, position, key, value, keys, values)
        x = do(self.add_heads, x, do(self.look, query, keys, values, mask))
        return do(self.add_mlp, x, do(self.gated, do(self.gate_up, do(self.norm, x, self.second))))


def at_once(piece, *inputs):
    return piece(*inputs)


class Layers(Decoder):
    def __init__(self, model, fixed):
        super().__init__(model, graphed=False)
        if fixed:
            self.advance = replayed(lambda: self.lay(at_once))
        else:
            self.stream, self.pool, self.graphs, self.kept = torch.cuda.Stream(), torch.cuda.graph_pool_handle(), [], []
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self.lay(at_once)
            torch.cuda.current_stream().wait_stream(self.stream)
            self.lay(self.capture)
            self.advance = self.replay

    def capture(self, piece, *inputs):
        """A graph for this piece; what it makes is kept, since the next graph reads it there."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
            made = piece(*inputs)
        self.graphs.append(graph)
        self.kept.append(made)
        return made

    def replay(self):
        for graph in self.graphs:
            graph.replay()

    def lay(self, do):
        model = self.model
        places = do(model.places, self.position)
        x = do(model.embedding, self.tokens)
        for block, keys, values in zip(model.blocks, *self.cache):
            x = block.laid(do, x, self.position, places, keys, values)
        do(self.end, x)

    def end(self, x):
        self.tokens.copy_(greedy(self.model.logits(x)))
        self.position.add_(1)


def main():
    options, record = begin(__doc__)
    layers = Layers(Model(SHAPE, block=Tile), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, layers.start, layers.following, warm_up=True)
    texts = serve(record, prompt, options.steps, layers.start, layers.following)
    finish(record, texts, VOCABULARY)


main()
