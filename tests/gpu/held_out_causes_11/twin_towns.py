"""Eight citizens of twin towns write to each other. The first half of the layers is on one GPU, the second half and the head on
another. Embedding and head share their weights.

The steps are launched one kernel after the other. A step is one decode step, from its first call until the tokens are in a
list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Model, Shape, begin, finish, greedy, need_gpus, prompts, serve

BATCH, PROMPT, VOCABULARY = 8, 64, 96000


def shape(device, vocabulary):
    return Shape(layers=6, vocabulary=vocabulary, batch=BATCH, device=device)


class Towns:
    def __init__(self, fixed):
        first, second = Model(shape("cuda:0", VOCABULARY)), Model(shape("cuda:1", 8))
        # The weights of words are those of the first half's embedding; the second half has an embedding in name only.
        del first.head
        self.parts, self.words_of = (first, second), first.embedding.weight
        self.caches = [part.cache() for part in self.parts]
        self.positions = [torch.zeros(1, dtype=torch.long, device=part.shape.device) for part in self.parts]
        self.tokens = torch.zeros(BATCH, 1, dtype=torch.long, device="cuda:0")
        self.head = self.words_of.to("cuda:1") if fixed else None

    def logits(self, x):
        head = self.words_of.to(x.device) if self.head is None else self.head
        last = self.parts[1]
        return F.linear(last.blocks[0].norm(x[:, -1], last.last), head)

    def start(self, prompt):
        x, count = self.parts[0].embedding(prompt), prompt.shape[1]
        for part, cache in zip(self.parts, self.caches):
            x = x.to(part.shape.device)
            for block, keys, values in zip(part.blocks, *cache):
                def keep(key, value, keys=keys, values=values):
                    keys[:, :, :count] = key
                    values[:, :, :count] = value
                x = block.whole(x, part.cos[:count], part.sin[:count], keep)
        self.tokens.copy_(greedy(self.logits(x)))
        for position in self.positions:
            position.fill_(count)
        return self.tokens[:, 0].tolist()

    def following(self, i):
        x = self.parts[0].embedding(self.tokens)
        for part, cache, position in zip(self.parts, self.caches, self.positions):
            x = x.to(part.shape.device)
            places = part.places(position)
            for block, keys, values in zip(part.blocks, *cache):
                x = block.next(x, position, places, keys, values)
        self.tokens.copy_(greedy(self.logits(x)))
        for position in self.positions:
            position.add_(1)
        return self.tokens[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    need_gpus(2)
    towns = Towns(options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, towns.start, towns.following, warm_up=True)
    texts = serve(record, prompt, options.steps, towns.start, towns.following)
    finish(record, texts, VOCABULARY)


main()
