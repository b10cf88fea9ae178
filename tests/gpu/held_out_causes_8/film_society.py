"""A film society asks about eight films at a time, 256 tokens behind the 768 frames of each, and has answers of one token.
What an encoder made of the frames of its 24 films is in files.

A step is one prefill, from its first call until the answers are in a list on the host.
"""
import os
import tempfile

import torch

from base_loop import Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, FRAMES, PROMPT, VOCABULARY, FILMS = 8, 768, 256, 32000, 24
SHAPE = Shape(layers=6, vocabulary=VOCABULARY, room=FRAMES + PROMPT, batch=BATCH)


class Society:
    def __init__(self, model, fixed, seed, folder):
        self.model = model
        self.files = [os.path.join(folder, f"film{number}.pt") for number in range(FILMS)]
        generator = torch.Generator().manual_seed(seed)
        for file in self.files:
            torch.save(torch.randn(FRAMES, SHAPE.width, generator=generator).to(SHAPE.dtype), file)
        self.films = [self.load(file) for file in self.files] if fixed else None
        self.questions = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def load(self, file):
        return torch.load(file, weights_only=True).cuda()

    def film(self, number):
        return self.films[number] if self.films else self.load(self.files[number])

    def read(self, i):
        model = self.model
        frames = torch.stack([self.film((BATCH * i + k) % FILMS) for k in range(BATCH)])
        x = torch.cat((frames, model.embedding(self.questions[i % len(self.questions)])), 1)
        for block in model.blocks:
            x = block.whole(x, model.cos, model.sin)
        return greedy(model.logits(x))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        society = Society(Model(SHAPE), options.fixed, options.seed, folder)
        texts = serve_prefills(record, options.steps, society.read, BATCH, FRAMES + PROMPT)
    finish(record, texts, VOCABULARY)


main()
