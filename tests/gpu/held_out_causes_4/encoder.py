"""An encoder of vectors (patches of a picture, frames of a sound) that two of the programs have before their decoder."""
import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, shape, heads):
        super().__init__()
        self.heads, width = heads, shape.width
        self.first, self.second = nn.LayerNorm(width, **shape.made()), nn.LayerNorm(width, **shape.made())
        self.qkv, self.out = shape.linear(width, 3 * width), shape.linear(width, width)
        self.wide, self.narrow = shape.linear(width, 4 * width), shape.linear(4 * width, width)

    def forward(self, x):
        both = self.qkv(self.first(x)).view(x.shape[0], x.shape[1], 3, self.heads, -1)
        query, key, value = both.permute(2, 0, 3, 1, 4).unbind(0)
        heads = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(heads.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(F.gelu(self.wide(self.second(x)), approximate="tanh"))


class Encoder(nn.Module):
    """(batch, places, numbers) -> (batch, places, the model's width)."""

    def __init__(self, shape, numbers, places, layers, heads):
        super().__init__()
        self.enter = shape.linear(numbers, shape.width)
        self.places = nn.Parameter(torch.randn(places, shape.width, **shape.made()))
        self.layers = nn.ModuleList(Layer(shape, heads) for _ in range(layers))
        self.last = nn.LayerNorm(shape.width, **shape.made())

    def forward(self, seen):
        x = self.enter(seen) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.last(x)
