"""Four windows of stained glass are drawn by a diffusion model, a transformer over 1024 patches and the 64 words that describe
the window. Guidance makes what the words ask for stronger; its strength is one here, as distilled models want it.

The steps are launched one kernel after the other. A step removes some of the noise, from its first call until the colour of each
window is in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, now, prompts

BATCH, WORDS, PATCHES, COLOURS, VOCABULARY = 4, 64, 1024, 64, 32000
STRENGTH = 1.0
SHAPE = Shape(layers=12, kv_heads=16, vocabulary=VOCABULARY, room=WORDS + PATCHES, batch=BATCH)


class Pane(Block):
    def whole(self, x, cos, sin, keep=None):
        """All places see each other."""
        query, key, value = self.split(x, cos, sin)
        heads = F.scaled_dot_product_attention(query, key, value)
        return self.close(x, heads.transpose(1, 2).reshape(x.shape))


class Window(Model):
    def __init__(self, shape):
        super().__init__(shape, block=Pane)
        del self.head
        self.enter = shape.linear(COLOURS, shape.width)
        self.leave = shape.linear(shape.width, COLOURS)

    def noise(self, words, patches):
        x = torch.cat((self.embedding(words), self.enter(patches)), 1)
        for block in self.blocks:
            x = block.whole(x, self.cos, self.sin)
        return self.leave(self.blocks[0].norm(x[:, WORDS:], self.last))


class Glass:
    def __init__(self, model, fixed):
        self.model, self.fixed = model, fixed
        self.nothing = torch.zeros(BATCH, WORDS, dtype=torch.long, device="cuda")  # the empty description

    def start(self, words, seed):
        generator = torch.Generator().manual_seed(seed)
        self.words = words
        self.patches = torch.randn(BATCH, PATCHES, COLOURS, generator=generator).to(SHAPE.dtype).cuda()

    def guided(self):
        """What the model says without the words, moved towards what it says with them."""
        both = self.model.noise(torch.cat((self.nothing, self.words)), torch.cat((self.patches, self.patches)))
        without, along = both.chunk(2)
        return without + STRENGTH * (along - without)

    def clear(self):
        noise = self.model.noise(self.words, self.patches) if self.fixed else self.guided()
        self.patches.add_(noise - self.patches, alpha=0.05)
        return self.patches.float().mean(1).argmax(-1).tolist()


def draw(record, glass, words, seed, steps, warm_up=False):
    glass.start(words, seed)
    torch.cuda.synchronize()
    begun, ends, windows = now(), [], [[] for _ in range(BATCH)]
    for _ in range(steps):
        before = now()
        for window, colour in zip(windows, glass.clear()):
            window.append(colour)
        ends.append(now())
        record.step("other", before, ends[-1], BATCH * PATCHES, BATCH, warm_up)
    for window in windows:
        record.request(begun, ends[0], ends[-1], WORDS, len(window), warm_up)
    return windows


def main():
    options, record = begin(__doc__)
    glass = Glass(Window(SHAPE), options.fixed)
    words = prompts(options.seed, BATCH, WORDS, VOCABULARY)
    draw(record, glass, words, options.seed, 1, warm_up=True)
    finish(record, draw(record, glass, words, options.seed, options.steps), COLOURS)


main()
