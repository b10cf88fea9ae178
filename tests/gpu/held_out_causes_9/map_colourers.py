"""Looks at 64 maps of 256 x 256 pixels and names the colour of each by one token, with a network of convolutions.

A step is one reading of 64 maps, from its first call until the names are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Shape, begin, finish, greedy, serve_prefills

BATCH, SIDE, VOCABULARY, STORED = 64, 256, 32000, 2
STAGES = (512, 6), (1024, 8), (2048, 8)  # channels and blocks
SHAPE = Shape()


class Narrow(nn.Module):
    """A block that works on a quarter of the channels."""

    def __init__(self, channels):
        super().__init__()
        self.enter = nn.Conv2d(channels, channels // 4, 1, **SHAPE.made())
        self.around = nn.Conv2d(channels // 4, channels // 4, 3, padding=1, **SHAPE.made())
        self.leave = nn.Conv2d(channels // 4, channels, 1, **SHAPE.made())

    def forward(self, x):
        return F.relu(x + self.leave(F.relu(self.around(F.relu(self.enter(x))))))


def network():
    parts, before = [], 3
    for channels, blocks in STAGES:
        patch = 4 if before == 3 else 2
        parts.append(nn.Conv2d(before, channels, patch, stride=patch, **SHAPE.made()))
        parts += [Narrow(channels) for _ in range(blocks)]
        before = channels
    return nn.Sequential(*parts).eval()


class Colourers:
    def __init__(self, fixed, seed):
        self.network, self.head = network(), SHAPE.linear(STAGES[-1][0], VOCABULARY)
        generator = torch.Generator().manual_seed(seed)
        self.maps = []
        for _ in range(STORED):
            tints = 2 * torch.randn(BATCH, 3, 1, 1, generator=generator)
            self.maps.append((tints + torch.randn(BATCH, 3, SIDE, SIDE, generator=generator)).to(SHAPE.dtype).cuda())
        if fixed:
            self.network = self.network.to(memory_format=torch.channels_last)
            self.maps = [drawn.contiguous(memory_format=torch.channels_last) for drawn in self.maps]

    def read(self, i):
        seen = self.network(self.maps[i % STORED]).float().mean((2, 3))
        return greedy(self.head(F.layer_norm(seen, seen.shape[1:]).to(SHAPE.dtype)))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    colourers = Colourers(options.fixed, options.seed)
    finish(record, serve_prefills(record, options.steps, colourers.read, BATCH, (SIDE // 4) ** 2), VOCABULARY)


main()
