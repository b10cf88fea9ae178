"""Reads the papers of twenty-four barges, 1024 tokens each, and names the berth of each by one token. The layers are on two GPUs,
and the papers go through them in six parts, so that one GPU has the next part while the other has this one.

A step is one prefill of all six parts, from its first call until the berths are in a list on the host.
"""
import torch

from base_loop import Model, Shape, begin, finish, greedy, need_gpus, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY, PARTS, LAYERS, SMALL = 24, 1024, 32000, 6, 16, 0.02


class Path:
    def __init__(self, first, seed):
        """`first` of the layers on the first GPU, the others on the second."""
        layers = first, LAYERS - first
        self.halves = [Model(Shape(layers=count, vocabulary=VOCABULARY, room=PROMPT, device=f"cuda:{gpu}"))
                       for gpu, count in enumerate(layers)]
        # Which layer is on which GPU does not change its weights.
        for gpu, half in enumerate(self.halves):
            for i, block in enumerate(half.blocks):
                generator = torch.Generator(half.shape.device).manual_seed(1000 * seed + i + gpu * first)
                for weight in block.parameters():
                    if weight.dim() == 2:
                        bound = weight.shape[1] ** -0.5
                        weight.uniform_(-bound, bound, generator=generator)
        head = self.halves[1].head.weight
        generator = torch.Generator(head.device).manual_seed(1000 * seed + LAYERS)
        head.uniform_(-SMALL, SMALL, generator=generator)
        self.stored = prompts(seed, 3 * BATCH, PROMPT, VOCABULARY).split(BATCH)

    def read(self, i):
        berths = []
        for part in self.stored[i % len(self.stored)].split(BATCH // PARTS):
            x = self.halves[0].embedding(part)
            for half in self.halves:
                x = x.to(half.shape.device)
                for block in half.blocks:
                    x = block.whole(x, half.cos, half.sin)
            berths.append(greedy(self.halves[1].logits(x))[:, 0])
        return torch.cat(berths).tolist()


def main():
    options, record = begin(__doc__)
    need_gpus(2)
    path = Path(LAYERS // 2 if options.fixed else 13, options.seed)
    finish(record, serve_prefills(record, options.steps, path.read, BATCH, PROMPT), VOCABULARY)


main()
