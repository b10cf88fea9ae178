"""Reads twenty-four stories of 1024 tokens in six lots of four; the lower half of the layers is on one GPU, the upper
half on another, and a lot goes through both. Needs two GPUs.

One process drives both. A step is one prefill of all six lots, from its first call until a word about each story is in
a list on the host.
"""
from dataclasses import replace

import torch

from base_loop import Model, Shape, begin, finish, greedy, need_gpus, prompts, serve_prefills

LOT, LOTS, PROMPT, VOCABULARY = 4, 6, 1024, 32000
SHAPE = Shape(layers=4, vocabulary=VOCABULARY, room=PROMPT)
RUNNERS = ("cuda:0", "cuda:1")


class Relay:
    def __init__(self, fixed, seed):
        self.fixed = fixed
        self.first, self.second = [Model(replace(SHAPE, device=runner)) for runner in RUNNERS]
        stories = prompts(seed, 2 * LOTS * LOT, PROMPT, VOCABULARY).split(LOTS * LOT)
        self.batches = [batch.split(LOT) for batch in stories]

    def pass_on(self):
        """Makes sure that a lot is done before anything else begins."""
        if not self.fixed:
            for runner in RUNNERS:
                torch.cuda.synchronize(runner)

    def run_second(self, x):
        model = self.second
        for block in model.blocks:
            x = block.whole(x, model.cos, model.sin)
        return greedy(model.logits(x))

    def read(self, i):
        words = []
        for ids in self.batches[i % len(self.batches)]:
            x = self.first.hidden(ids)
            self.pass_on()
            # Queued on the stream of the first; the streams of both wait for it, the host does not.
            x = x.to(RUNNERS[1], non_blocking=True)
            words.append(self.run_second(x))
            self.pass_on()
        return torch.cat(words)[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    need_gpus(2)
    relay = Relay(options.fixed, options.seed)
    finish(record, serve_prefills(record, options.steps, relay.read, LOTS * LOT, PROMPT), VOCABULARY)


main()
