"""Names what is on thirty-two photographs at a time with a model in the manner of Fuyu, which takes their patches as
they are in place of tokens.

A photograph has 256 patches of 28 x 28 pixels in single precision (77 MB for a step) and comes from the host. A step is
one prefill, from its first call until the names, a token for each, are in a list on the host.
"""
import torch
from torch import nn

from base_loop import Model, Shape, begin, finish, greedy, serve_prefills

BATCH, PATCHES, PIXELS, VOCABULARY, STORED = 32, 256, 28 * 28 * 3, 32000, 4


class Album:
    def __init__(self, seed):
        self.model = Model(Shape(layers=6, vocabulary=VOCABULARY, room=PATCHES))
        self.enter = nn.Linear(PIXELS, self.model.shape.width, bias=False, **self.model.shape.made())
        generator = torch.Generator().manual_seed(seed)
        self.photos = [torch.rand(BATCH, PATCHES, PIXELS, generator=generator) for _ in range(STORED)]

    def bring(self, i):
        """The photographs of step i on the GPU."""
        return self.photos[i % STORED].to("cuda")

    def release(self, i):
        """Those of step i have been read."""

    def read(self, i):
        model = self.model
        x = self.enter((self.bring(i) - 0.5).to(model.shape.dtype))
        self.release(i)
        for block in model.blocks:
            x = block.whole(x, model.cos, model.sin)
        return greedy(model.logits(x))[:, 0].tolist()


class QueuedAlbum(Album):
    """Photographs of the next step travel while the model reads those of this one."""

    def __init__(self, seed):
        super().__init__(seed)
        self.photos = [photos.pin_memory() for photos in self.photos]
        self.places = [torch.zeros(BATCH, PATCHES, PIXELS, device="cuda") for _ in range(2)]
        self.arrived, self.free = ([torch.cuda.Event() for _ in range(2)] for _ in range(2))
        self.side = torch.cuda.Stream()
        self.side.wait_stream(torch.cuda.current_stream())
        self.send(0)

    def send(self, i):
        place = i % 2
        with torch.cuda.stream(self.side):
            self.side.wait_event(self.free[place])
            self.places[place].copy_(self.photos[i % STORED], non_blocking=True)
            self.arrived[place].record(self.side)

    def bring(self, i):
        self.send(i + 1)
        torch.cuda.current_stream().wait_event(self.arrived[i % 2])
        return self.places[i % 2]

    def release(self, i):
        self.free[i % 2].record(torch.cuda.current_stream())


def main():
    options, record = begin(__doc__)
    album = (QueuedAlbum if options.fixed else Album)(options.seed)
    finish(record, serve_prefills(record, options.steps, album.read, BATCH, PATCHES), VOCABULARY)


main()
