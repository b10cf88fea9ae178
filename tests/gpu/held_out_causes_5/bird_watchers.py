"""Thirty-two microphones in a wood are described word by word; each word depends on the last 1024 frames of sound, of
which one is new in each step.

The model's step is a CUDA graph that sums up the window and adds it to the embedding. A step is one decode step, from
its first call, with the new frames, until the tokens are in a list on the host.
"""
import torch

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, FRAMES, NUMBERS, STORED = 32, 48, 32000, 1024, 640, 64
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Watchers(Decoder):
    def __init__(self, model, fixed, seed):
        self.fixed, self.count = fixed, 0
        generator = torch.Generator().manual_seed(seed)
        self.sound = torch.randn(STORED, BATCH, NUMBERS, generator=generator)
        # The window is a ring: the newest frame is written over the oldest.
        self.ring = torch.zeros(FRAMES, BATCH, NUMBERS).pin_memory()
        self.ring.copy_(self.sound.repeat(FRAMES // STORED, 1, 1))
        self.first = self.ring.clone()
        self.window = self.ring.cuda()
        self.enter = torch.nn.Linear(NUMBERS, SHAPE.width, bias=False, **SHAPE.made())
        super().__init__(model)

    def step(self):
        model = self.model
        heard = self.enter(self.window.mean(0).to(SHAPE.dtype)).unsqueeze(1)
        places = model.places(self.position)
        x = model.embedding(self.tokens) + heard
        for block, keys, values in zip(model.blocks, *self.cache):
            x = block.next(x, self.position, places, keys, values)
        self.tokens.copy_(greedy(model.logits(x)))
        self.position.add_(1)

    def listen(self):
        place = self.count % FRAMES
        self.ring[place].copy_(self.sound[(7 * self.count + 3) % STORED] * 2)
        self.count += 1
        if self.fixed:
            self.window[place].copy_(self.ring[place], non_blocking=True)
        else:
            self.window.copy_(self.ring, non_blocking=True)

    def start(self, prompt):
        self.count = 0
        self.ring.copy_(self.first)
        self.window.copy_(self.ring, non_blocking=True)
        return super().start(prompt)

    def following(self, i):
        self.listen()
        return super().following(i)


def main():
    options, record = begin(__doc__)
    watchers = Watchers(Model(SHAPE), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, watchers.start, watchers.following, warm_up=True)
    texts = serve(record, prompt, options.steps, watchers.start, watchers.following)
    finish(record, texts, VOCABULARY)


main()
