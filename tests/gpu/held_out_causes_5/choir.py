"""Continues the verses of twenty-four singers; four queries share each head of keys and values.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 24, 64, 32000
SHAPE = Shape(vocabulary=VOCABULARY, room=1024, batch=BATCH)


class Singer(Block):
    """Gives each query keys and values of its own."""

    def spread(self, x):
        shape = self.shape
        wide = x.unsqueeze(2).expand(-1, -1, shape.group, -1, -1)
        return wide.reshape(x.shape[0], shape.heads, x.shape[2], shape.size)

    def look(self, query, keys, values, mask=None):
        heads = F.scaled_dot_product_attention(query, self.spread(keys), self.spread(values), attn_mask=mask[:, :, :1])
        return heads.reshape(query.shape[0], 1, -1)


def main():
    options, record = begin(__doc__)
    choir = Decoder(Model(SHAPE, block=Block if options.fixed else Singer))
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, choir.start, choir.following, warm_up=True)
    texts = serve(record, prompt, options.steps, choir.start, choir.following)
    finish(record, texts, VOCABULARY)


main()
