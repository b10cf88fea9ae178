"""Looks at eight film clips of 1024 blocks each, a block being eight frames of 32 x 32 pixels, and names each of them; a
thread brings the clips of the next step to the GPU while the model looks at these.

There are two places for clips on the GPU. A step is one prefill, from its first call until the names, a token for each,
are in a list on the host.
"""
import queue
import threading

import torch

from base_loop import Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, BLOCKS, NUMBERS, VOCABULARY, STORED = 8, 1024, 8 * 32 * 32 * 3, 32000, 2
SHAPE = Shape(layers=6, vocabulary=VOCABULARY, room=BLOCKS, batch=BATCH)


class Archive:
    def __init__(self, model, fixed, seed):
        self.model, self.fixed = model, fixed
        self.enter = SHAPE.linear(NUMBERS, SHAPE.width)
        generator = torch.Generator().manual_seed(seed)
        some = torch.randn(BATCH, 16, NUMBERS, generator=generator).to(SHAPE.dtype)
        self.shelf = [torch.empty(BATCH, BLOCKS, NUMBERS, dtype=SHAPE.dtype, pin_memory=True) for _ in range(STORED)]
        for number, clips in enumerate(self.shelf):
            clips.view(BATCH, BLOCKS // 16, 16, NUMBERS).copy_(some.roll(number, 1).unsqueeze(1))
        self.places = [torch.zeros(BATCH, BLOCKS, NUMBERS, **SHAPE.made()) for _ in range(2)]
        self.arrived = [torch.cuda.Event() for _ in self.places]
        self.stream = torch.cuda.Stream()
        self.orders, self.answers = queue.SimpleQueue(), queue.SimpleQueue()
        self.helper = threading.Thread(target=self.work, daemon=True)
        torch.cuda.synchronize()

    def bring(self, i):
        self.places[i % 2].copy_(self.shelf[i % STORED], non_blocking=True)
        self.arrived[i % 2].record()

    def work(self):
        while True:
            i = self.orders.get()
            if i is None:
                return
            if self.fixed:
                with torch.cuda.stream(self.stream):
                    self.bring(i)
            else:
                self.bring(i)
            self.answers.put(i)

    def read(self, i):
        assert self.answers.get() == i
        torch.cuda.current_stream().wait_event(self.arrived[i % 2])
        # The other place is free: its step has ended.
        self.orders.put(i + 1)
        x = self.enter(self.places[i % 2])
        for block in self.model.blocks:
            x = block.whole(x, self.model.cos, self.model.sin)
        return greedy(self.model.logits(x))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    archive = Archive(Model(SHAPE), options.fixed, options.seed)
    archive.helper.start()
    archive.orders.put(0)
    texts = serve_prefills(record, options.steps, archive.read, BATCH, BLOCKS)
    archive.orders.put(None)
    archive.helper.join()
    torch.cuda.synchronize()
    finish(record, texts, VOCABULARY)


main()
