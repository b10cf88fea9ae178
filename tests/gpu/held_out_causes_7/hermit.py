"""A hermit goes on with a talk to himself of 32768 tokens, whose keys and values are kept, after a question of 64 tokens.

The decode step is launched operation by operation. A step is one decode step, from its first call until the token is in
a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, greedy, prompts, serve

KEPT, PROMPT, VOCABULARY = 32768, 64, 32000
SHAPE = Shape(layers=8, kv_heads=8, vocabulary=VOCABULARY, room=KEPT + 512)


class Thought(Block):
    def behind(self, x, cos, sin, seen, keys, values):
        """Tokens behind the kept ones; `seen` says which places of the cache they see."""
        query, key, value = self.split(x, cos, sin)
        keys[:, :, KEPT:KEPT + PROMPT] = key
        values[:, :, KEPT:KEPT + PROMPT] = value
        # The queries that share a head of keys stand one behind the other.
        query = query.reshape(1, self.shape.kv_heads, self.shape.group * PROMPT, self.shape.size)
        heads = F.scaled_dot_product_attention(query, keys[:, :, :seen.shape[1]], values[:, :, :seen.shape[1]], attn_mask=seen)
        heads = heads.reshape(1, self.shape.heads, PROMPT, self.shape.size)
        return self.close(x, heads.transpose(1, 2).reshape(1, PROMPT, -1))


class Hermit(Decoder):
    def __init__(self, model, fixed, seed):
        self.fixed, self.place = fixed, 0
        super().__init__(model, greedy, graphed=False)
        generator = torch.Generator().manual_seed(seed)
        some = torch.randn(2, SHAPE.layers, 1, SHAPE.kv_heads, 256, SHAPE.size, generator=generator).cuda().to(SHAPE.dtype)
        for part, kept in zip(self.cache, some):
            part[:, :, :, :KEPT] = kept.repeat(1, 1, 1, KEPT // 256, 1)
        token = torch.arange(PROMPT, device="cuda").view(-1, 1)
        column = torch.arange(KEPT + PROMPT, device="cuda")
        self.seen = (column <= KEPT + token).repeat(SHAPE.group, 1)

    def step(self):
        model = self.model
        if self.fixed:
            # All places up to the newest, and no other, so that no mask is needed.
            mask, count = None, self.place + 1
        else:
            mask, count = model.places(self.position)[2], SHAPE.room
        cos, sin = model.cos[self.position], model.sin[self.position]
        x = model.embedding(self.tokens)
        for block, keys, values in zip(model.blocks, *self.cache):
            x = block.next(x, self.position, (cos, sin, mask), keys[:, :, :count], values[:, :, :count])
        self.tokens.copy_(self.choose(model.logits(x)))
        self.position.add_(1)
        self.place += 1

    def start(self, prompt):
        model = self.model
        cos, sin = model.cos[KEPT:KEPT + PROMPT], model.sin[KEPT:KEPT + PROMPT]
        x = model.embedding(prompt)
        for block, keys, values in zip(model.blocks, *self.cache):
            x = block.behind(x, cos, sin, self.seen, keys, values)
        self.tokens.copy_(self.choose(model.logits(x)))
        self.place = KEPT + PROMPT
        self.position.fill_(self.place)
        return self.words()


def main():
    options, record = begin(__doc__)
    hermit = Hermit(Model(SHAPE, block=Thought), options.fixed, options.seed)
    prompt = prompts(options.seed, 1, PROMPT, VOCABULARY)
    serve(record, prompt, 1, hermit.start, hermit.following, warm_up=True)
    texts = serve(record, prompt, options.steps, hermit.start, hermit.following)
    finish(record, texts, VOCABULARY)


main()
