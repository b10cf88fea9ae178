"""Takes up sixteen long talks again: the keys and values of 4096 tokens each are kept, a question of 32 is new.

The kept ones are random. A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch
from torch.nn import functional as F

from common_loop import begin, finish, prompts, serve
from common_model import Model, Shape, greedy

BATCH, KEPT, QUESTION, LONGEST, VOCABULARY = 16, 4096, 32, 304, 32000
SHAPE = Shape(layers=6, heads=16, kv_heads=16, vocabulary=VOCABULARY, room=KEPT + QUESTION + LONGEST, batch=BATCH)


def careful_attention(query, keys, values):
    """In single precision throughout, for the sake of exactness."""
    scores = query.float() @ keys.float().transpose(-1, -2)
    weights = torch.softmax(scores * query.shape[-1] ** -0.5, -1)
    return (weights @ values.float()).to(query.dtype)


class Talks:
    def __init__(self, model, attention, seed):
        self.model, self.attention, self.tokens = model, attention, None
        self.keys, self.values = model.cache()
        generator = torch.Generator("cuda").manual_seed(seed)
        self.keys.normal_(generator=generator)
        self.values.normal_(generator=generator)

    def start(self, prompt):
        end = KEPT + QUESTION
        cos, sin = self.model.cos[KEPT:end], self.model.sin[KEPT:end]
        seen = torch.ones(QUESTION, end, device="cuda", dtype=torch.bool).tril(KEPT)
        x = self.model.embedding(prompt)
        for block, keys, values in zip(self.model.blocks, self.keys, self.values):
            query, key, value = block.split(x, cos, sin)
            keys[:, :, KEPT:end] = key
            values[:, :, KEPT:end] = value
            heads = F.scaled_dot_product_attention(query, keys[:, :, :end], values[:, :, :end], attn_mask=seen)
            x = block.close(x, heads.transpose(1, 2).reshape(BATCH, QUESTION, -1))
        self.tokens = greedy(self.model.logits(x))
        return self.tokens[:, 0].tolist()

    def following(self, i):
        end = KEPT + QUESTION + i + 1
        cos, sin = self.model.cos[end - 1:end], self.model.sin[end - 1:end]
        x = self.model.embedding(self.tokens)
        for block, keys, values in zip(self.model.blocks, self.keys, self.values):
            query, key, value = block.split(x, cos, sin)
            keys[:, :, end - 1:end] = key
            values[:, :, end - 1:end] = value
            heads = self.attention(query, keys[:, :, :end], values[:, :, :end])
            x = block.close(x, heads.reshape(BATCH, 1, -1))
        self.tokens = greedy(self.model.logits(x))
        return self.tokens[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    attention = F.scaled_dot_product_attention if options.fixed else careful_attention
    talks = Talks(Model(SHAPE), attention, options.seed)
    prompt = prompts(options.seed, BATCH, QUESTION, VOCABULARY)
    serve(record, prompt, 1, talks.start, talks.following, warm_up=True)
    texts = serve(record, prompt, options.steps, talks.start, talks.following)
    finish(record, texts, VOCABULARY)


main()
