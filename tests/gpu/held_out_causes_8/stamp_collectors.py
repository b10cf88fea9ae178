"""Looks at sixteen scanned pages of stamps and names the collection of each by one token. The pages have between 150 and
1000 patches of 32 x 32 pixels, which all see each other.

A step is one reading of sixteen pages, from its first call until the names are in a list on the host.
"""
import random

import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, serve_prefills

BATCH, NUMBERS, VOCABULARY, ROOM, STORED = 16, 32 * 32 * 3, 32000, 1024, 4
SHAPE = Shape(inner=4096, heads=16, kv_heads=16, vocabulary=VOCABULARY, room=ROOM, batch=BATCH)
BUCKETS = 256, 512, ROOM


class Page(Block):
    def look_around(self, x, cos, sin, mask):
        query, key, value = self.split(x, cos, sin)
        heads = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.close(x, heads.transpose(1, 2).reshape(x.shape))


class Collectors:
    def __init__(self, model, fixed, seed):
        self.model, self.fixed = model, fixed
        self.enter = SHAPE.linear(NUMBERS, SHAPE.width)
        self.columns = torch.arange(ROOM, device="cuda")
        chance, generator = random.Random(seed), torch.Generator().manual_seed(seed)
        self.albums = []
        for _ in range(STORED):
            sizes = [chance.randrange(900, 1001)]
            sizes += [chance.randrange(300, 481) for _ in range(5)] + [chance.randrange(150, 251) for _ in range(10)]
            chance.shuffle(sizes)
            self.albums.append([torch.randn(size, NUMBERS, generator=generator).to(SHAPE.dtype).cuda() for size in sizes])

    def names(self, pages, length):
        """A token for each page, all filled up to one length."""
        model = self.model
        sizes = torch.tensor([len(page) for page in pages], device="cuda").view(-1, 1)
        filled = torch.stack([F.pad(page, (0, 0, 0, length - len(page))) for page in pages])
        there = self.columns[:length] < sizes
        x = self.enter(filled)
        for block in model.blocks:
            x = block.look_around(x, model.cos[:length], model.sin[:length], there[:, None, None])
        seen = (x * there.unsqueeze(2)).sum(1, keepdim=True, dtype=torch.float32) / sizes.unsqueeze(2)
        return greedy(model.logits(seen.to(x.dtype)))[:, 0]

    def groups(self, pages):
        """Pages that are read together, by their numbers, and the length that they are filled up to."""
        if not self.fixed:
            return [(list(range(len(pages))), ROOM)]
        longer = [min(bucket for bucket in BUCKETS if bucket >= len(page)) for page in pages]
        return [([k for k, length in enumerate(longer) if length == bucket], bucket) for bucket in BUCKETS]

    def read(self, i):
        pages = self.albums[i % STORED]
        groups = self.groups(pages)
        found = torch.cat([self.names([pages[k] for k in numbers], length) for numbers, length in groups]).tolist()
        order = [k for numbers, _ in groups for k in numbers]
        return [token for _, token in sorted(zip(order, found))]


def main():
    options, record = begin(__doc__)
    collectors = Collectors(Model(SHAPE, block=Page), options.fixed, options.seed)
    average = sum(len(page) for album in collectors.albums for page in album) // (STORED * BATCH)
    finish(record, serve_prefills(record, options.steps, collectors.read, BATCH, average), VOCABULARY)


main()
