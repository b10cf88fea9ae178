"""Finds a frame for eight paintings at a time with a model in the manner of Fuyu, which takes patches as tokens.

A painting comes as 800 x 640 pixels of one byte a colour and is brought to 448 x 448 in single precision, levelled
and cut into 1024 patches on the host. A step is one batch, from its paintings until their frames, a token for each, are
in a list on the host.
"""
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Model, Shape, begin, finish, greedy, serve_prefills

BATCH, HEIGHT, WIDTH, SIDE, PATCH, VOCABULARY, STORED = 8, 640, 800, 448, 14, 32000, 4
ACROSS = SIDE // PATCH
PATCHES, PIXELS = ACROSS * ACROSS, PATCH * PATCH * 3
MEAN = torch.tensor((0.481, 0.458, 0.408)).view(1, 3, 1, 1)
SPREAD = torch.tensor((0.269, 0.261, 0.276)).view(1, 3, 1, 1)


def prepare(paintings):
    """Patches of some paintings, (number, PATCHES, PIXELS)."""
    rows = []
    for painting in paintings:
        small = F.interpolate(painting.unsqueeze(0).float() / 255, size=(SIDE, SIDE), mode="bicubic",
                              align_corners=False, antialias=True)
        level = (small.clamp(0, 1) - MEAN) / SPREAD
        patches = level.view(3, ACROSS, PATCH, ACROSS, PATCH).permute(1, 3, 2, 4, 0)
        rows.append(patches.reshape(PATCHES, PIXELS))
    return torch.stack(rows).to(torch.bfloat16)


class Framer:
    def __init__(self, seed):
        self.model = Model(Shape(layers=10, vocabulary=VOCABULARY, room=PATCHES))
        self.enter = nn.Linear(PIXELS, self.model.shape.width, bias=False, **self.model.shape.made())
        generator = torch.Generator().manual_seed(seed)
        # Coarse fields of colour.
        sizes = (STORED, BATCH, 3, HEIGHT // 80, WIDTH // 80)
        fields = torch.randint(256, sizes, generator=generator, dtype=torch.uint8)
        self.paintings = fields.repeat_interleave(80, -2).repeat_interleave(80, -1).unbind(0)

    def patches(self, i):
        return prepare(self.paintings[i % STORED])

    def read(self, i):
        model = self.model
        x = self.enter(self.patches(i).to("cuda"))
        for block in model.blocks:
            x = block.whole(x, model.cos, model.sin)
        return greedy(model.logits(x))[:, 0].tolist()


class BusyFramer(Framer):
    """A thread prepares the paintings of the next step while the model reads those of this one."""

    def __init__(self, seed):
        super().__init__(seed)
        self.helper = ThreadPoolExecutor(1)
        self.coming = self.helper.submit(super().patches, 0)

    def patches(self, i):
        here = self.coming.result()
        self.coming = self.helper.submit(super().patches, i + 1)
        return here


def main():
    options, record = begin(__doc__)
    torch.set_num_threads(4)  # the rest of the host belongs to others
    framer = (BusyFramer if options.fixed else Framer)(options.seed)
    finish(record, serve_prefills(record, options.steps, framer.read, BATCH, PATCHES), VOCABULARY)


main()
