"""Two quarries: the lower layers work on one GPU and the upper ones on another, in one process. Sixteen texts of 1024
words are read in two loads, so that both can work at a time."""
from base_loop import *

BATCH, COUNT, LOADS = 16, 1024, 2


def part(device):
    return Shape(layers=5, room=COUNT, batch=BATCH // LOADS, device=device)


class Quarries:
    def __init__(self, lower, upper, directly):
        self.lower, self.upper, self.directly = lower, upper, directly

    def carry_over(self, x):
        """What the lower layers made, for the GPU of the upper ones."""
        if self.directly:
            return x.to("cuda:1", non_blocking=True)
        return x.cpu().to("cuda:1")

    def work(self, model, x):
        for block in model.blocks:
            x = block.whole(x, model.cos[:COUNT], model.sin[:COUNT])
        return x

    def read(self, ids):
        words = []
        for load in ids.chunk(LOADS):
            x = self.work(self.lower, self.lower.embedding(load))
            x = self.work(self.upper, self.carry_over(x))
            words.append(self.upper.logits(x).argmax(-1))
        return torch.cat(words).tolist()


def main():
    options, record = begin(__doc__)
    need_gpus(2)
    quarries = Quarries(Model(part("cuda:0")), Model(part("cuda:1")), directly=options.fixed)
    vocabulary = quarries.upper.shape.vocabulary
    stones = [prompts(options.seed + i, BATCH, COUNT, vocabulary) for i in range(4)]
    texts = serve_prefills(record, options.steps, lambda i: quarries.read(stones[i % len(stones)]), BATCH, COUNT)
    finish(record, texts, vocabulary)


main()
