"""Listens to sixteen street singers at a time and names the song of each by one token. Sound comes as 2400 to 4800 frames of
80 bands; two convolutions make a place of two frames. No length comes twice.

A step is one reading of sixteen songs of one length, from its first call until the names are in a list on the host.
"""
import random

import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, serve_prefills

BATCH, BANDS, LONGEST, CHANNELS, VOCABULARY, STORED = 16, 80, 4800, 1024, 32000, 2
SHAPE = Shape(inner=4096, layers=16, heads=16, kv_heads=16, vocabulary=VOCABULARY, room=LONGEST // 2, batch=BATCH)


class Listener(Block):
    def listen(self, x, cos, sin):
        heads = F.scaled_dot_product_attention(*self.split(x, cos, sin))
        return self.close(x, heads.transpose(1, 2).reshape(x.shape))


class Singers:
    def __init__(self, model, fixed, seed):
        torch.backends.cudnn.benchmark = not fixed
        self.model = model
        self.first = nn.Conv1d(BANDS, CHANNELS, 3, padding=1, **SHAPE.made())
        self.second = nn.Conv1d(CHANNELS, SHAPE.width, 3, stride=2, padding=1, **SHAPE.made())
        generator = torch.Generator().manual_seed(seed)
        self.songs = [torch.randn(BATCH, BANDS, LONGEST, generator=generator).to(SHAPE.dtype).cuda() for _ in range(STORED)]
        lengths = list(range(LONGEST // 2, LONGEST, 8))
        random.Random(seed).shuffle(lengths)
        self.lengths = [LONGEST] + lengths  # the longest first, so that memory is there for all others

    def read(self, i):
        model = self.model
        sound = self.songs[i % STORED][:, :, :self.lengths[i]].contiguous()
        x = F.gelu(self.second(F.gelu(self.first(sound)))).transpose(1, 2).contiguous()
        count = x.shape[1]
        for block in model.blocks:
            x = block.listen(x, model.cos[:count], model.sin[:count])
        return greedy(model.logits(x.mean(1, keepdim=True)))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    singers = Singers(Model(SHAPE, block=Listener), options.fixed, options.seed)
    average = sum(singers.lengths) // len(singers.lengths) // 2
    finish(record, serve_prefills(record, options.steps, singers.read, BATCH, average), VOCABULARY)


main()
