"""Eight town criers are heard as they speak. A language model says one frame of sound for each in a step, and a second network
makes samples of the newest frames: convolutions that look back, written as multiplications.

The steps are CUDA graphs. A step is one decode step with its sound, from its first call until the tokens are in a list on the
host and the samples in pinned memory.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 8, 64, 32000
CHANNELS, CONVOLUTIONS, FRAMES, SAMPLES = 1024, 8, 768, 320
NEAR = 32  # eight convolutions over three frames see the newest one and sixteen before it
SHAPE = Shape(layers=12, vocabulary=VOCABULARY, batch=BATCH)


class Voice(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.frames = nn.Embedding(VOCABULARY, CHANNELS, **shape.made())
        self.convolutions = nn.ModuleList(shape.linear(3 * CHANNELS, CHANNELS) for _ in range(CONVOLUTIONS))
        self.leave = shape.linear(CHANNELS, SAMPLES)

    def forward(self, tokens):
        """The samples of all frames: (batch, count, samples)."""
        x = self.frames(tokens)
        for convolution in self.convolutions:
            wide = F.pad(x, (0, 0, 2, 0))
            three = torch.cat((wide[:, :-2], wide[:, 1:-1], wide[:, 2:]), -1)
            x = x + F.silu(convolution(three))
        return torch.tanh(self.leave(x))


class Criers(Decoder):
    def __init__(self, model, voice, fixed):
        self.voice, self.seen, self.loudest = voice, NEAR if fixed else FRAMES, 0.0
        self.said = torch.zeros(BATCH, FRAMES, dtype=torch.long, device="cuda")
        self.sound = torch.zeros(BATCH, SAMPLES, dtype=SHAPE.dtype, device="cuda")
        self.heard = torch.zeros(BATCH, SAMPLES, dtype=SHAPE.dtype).pin_memory()
        super().__init__(model)

    def step(self):
        super().step()
        self.said.copy_(torch.cat((self.said[:, 1:], self.tokens), 1))
        # Only the samples of the newest frame have not been heard yet.
        self.sound.copy_(self.voice(self.said[:, -self.seen:])[:, -1])

    def start(self, prompt):
        self.said.zero_()
        return super().start(prompt)

    def following(self, i):
        self.advance()
        self.heard.copy_(self.sound, non_blocking=True)
        words = self.words()
        self.loudest = max(self.loudest, self.heard.float().abs().max().item())
        return words


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE)
    criers = Criers(model, Voice(SHAPE).eval(), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, criers.start, criers.following, warm_up=True)
    texts = serve(record, prompt, options.steps, criers.start, criers.following)
    print(f"loudest sample {criers.loudest:.2f}")
    finish(record, texts, VOCABULARY)


main()
