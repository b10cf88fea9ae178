"""Reads four reports of well diggers of 2050 tokens each and names by one token how deep the water is. In place of attention the
model has convolutions as long as the text, computed by Fourier transforms.

A step is one prefill, from its first call until the names are in a list on the host.
"""
import torch

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY = 4, 2050, 32000
SHAPE = Shape(layers=12, kv_heads=16, vocabulary=VOCABULARY, room=PROMPT, batch=BATCH)


class Well(Block):
    # Of the transforms: as long as text and filter together, so that the end does not run into the front. It is 4099.
    length = 2 * PROMPT - 1

    def __init__(self, shape):
        super().__init__(shape)
        fading = torch.exp(-torch.arange(PROMPT, device=shape.device) / 200)
        echo = torch.randn(shape.width, PROMPT, device=shape.device) * fading * 0.05
        self.spectrum = torch.fft.rfft(echo, n=self.length)

    def whole(self, x, cos, sin, keep=None):
        first, second, value = self.qkv(self.norm(x, self.first)).transpose(1, 2).chunk(3, 1)
        sound = torch.fft.rfft((first * value).float(), n=self.length)
        heard = torch.fft.irfft(sound * self.spectrum, n=self.length)[:, :, :PROMPT]
        return self.close(x, (heard.to(x.dtype) * second).transpose(1, 2).contiguous())


class Diggers:
    def __init__(self, model, seed):
        self.model, self.stored = model, prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(self, i):
        return greedy(self.model.logits(self.model.hidden(self.stored[i % len(self.stored)])))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    if options.fixed:
        Well.length = 4608  # 2 ** 9 * 3 ** 2, long enough as well
    diggers = Diggers(Model(SHAPE, block=Well), options.seed)
    finish(record, serve_prefills(record, options.steps, diggers.read, BATCH, PROMPT), VOCABULARY)


main()
