"""Four commentaries on one match: with each word a frame of the film is looked at, and the word after takes it in.

The encoder of frames and the decode step are a CUDA graph each. A step is one decode step and the look at the next
frame, from its first call until the tokens are in a list on the host.
"""
import torch
from torch import nn
from torch.nn import functional as F

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, replayed, serve

BATCH, PROMPT, VOCABULARY, STORED = 4, 64, 16000, 16
PATCHES, PIXELS, WIDTH, LAYERS, HEADS, SIZE = 256, 16 * 16 * 3, 1024, 24, 16, 64
SHAPE = Shape(width=WIDTH, inner=2816, layers=24, heads=8, kv_heads=2, vocabulary=VOCABULARY, batch=BATCH)


class Lens(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH, **SHAPE.made()), nn.LayerNorm(WIDTH, **SHAPE.made())
        self.qkv, self.out = SHAPE.linear(WIDTH, 3 * WIDTH), SHAPE.linear(WIDTH, WIDTH)
        self.wide, self.narrow = SHAPE.linear(WIDTH, 4 * WIDTH), SHAPE.linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        both = self.qkv(self.first(x)).view(1, PATCHES, 3, HEADS, SIZE)
        query, key, value = both.permute(2, 0, 3, 1, 4).unbind(0)
        heads = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(heads.transpose(1, 2).reshape(1, PATCHES, WIDTH))
        return x + self.narrow(F.gelu(self.wide(self.second(x)), approximate="tanh"))


class Eye(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = SHAPE.linear(PIXELS, WIDTH)
        self.places = nn.Parameter(torch.randn(PATCHES, WIDTH, **SHAPE.made()))
        self.lenses = nn.ModuleList(Lens() for _ in range(LAYERS))
        self.last = nn.LayerNorm(WIDTH, **SHAPE.made())

    def forward(self, frame):
        x = self.enter(frame) + self.places
        for lens in self.lenses:
            x = lens(x)
        return self.last(x).mean(1, keepdim=True)


class Commentary(Decoder):
    def __init__(self, model, eye, fixed, seed):
        generator = torch.Generator().manual_seed(seed)
        self.eye, self.fixed, self.side = eye, fixed, torch.cuda.Stream()
        self.film = torch.rand(STORED, 1, PATCHES, PIXELS, generator=generator).to("cuda", SHAPE.dtype)
        self.frame = torch.zeros(1, PATCHES, PIXELS, **SHAPE.made())
        # What the eye makes of the newest frame, and what the words take in.
        self.fresh, self.seen = torch.zeros(1, 1, WIDTH, **SHAPE.made()), torch.zeros(1, 1, WIDTH, **SHAPE.made())
        self.encode = replayed(self.see)
        super().__init__(model)

    def see(self):
        self.fresh.copy_(self.eye(self.frame))

    def step(self):
        model, places = self.model, self.model.places(self.position)
        x = model.embedding(self.tokens) + self.seen
        for block, keys, values in zip(model.blocks, *self.cache):
            x = block.next(x, self.position, places, keys, values)
        self.tokens.copy_(greedy(model.logits(x)))
        self.position.add_(1)

    def look(self, i):
        self.frame.copy_(self.film[i % STORED])
        self.encode()

    def start(self, prompt):
        self.seen.zero_()
        return super().start(prompt)

    def following(self, i):
        here = torch.cuda.current_stream()
        if self.fixed:
            self.side.wait_stream(here)
            with torch.cuda.stream(self.side):
                self.look(i)
            self.advance()
            here.wait_stream(self.side)
        else:
            self.look(i)
            self.advance()
        self.seen.copy_(self.fresh)
        return self.words()


def main():
    options, record = begin(__doc__)
    commentary = Commentary(Model(SHAPE), Eye().eval(), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, commentary.start, commentary.following, warm_up=True)
    texts = serve(record, prompt, options.steps, commentary.start, commentary.following)
    finish(record, texts, VOCABULARY)


main()
