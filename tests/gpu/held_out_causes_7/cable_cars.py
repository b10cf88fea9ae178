"""Looks at eight panoramas from cable cars, each of 1024 tiles of 64 x 128 pixels, and names what they show. Those of the
next step come up from the host meanwhile, and the keys and values of this step go down to it, layer by layer.

Both go to and from pinned memory beside the kernels, and either has two places on the GPU. A step is one prefill, from
its first call until the names, a token for each panorama, are in a list on the host.
"""
import torch

from base_loop import Model, Shape, begin, finish, greedy, serve_prefills

BATCH, TILES, NUMBERS, VOCABULARY, STORED = 8, 1024, 64 * 128 * 3, 32000, 2
SHAPE = Shape(inner=2048, layers=6, kv_heads=16, vocabulary=VOCABULARY, room=TILES, batch=BATCH)


class Cars:
    def __init__(self, model, fixed, seed):
        self.model = model
        self.enter = SHAPE.linear(NUMBERS, SHAPE.width)
        generator = torch.Generator().manual_seed(seed)
        some = torch.randn(BATCH, 16, NUMBERS, generator=generator).to(SHAPE.dtype)
        self.shelf = [torch.empty(BATCH, TILES, NUMBERS, dtype=SHAPE.dtype, pin_memory=True) for _ in range(STORED)]
        for number, views in enumerate(self.shelf):
            views.view(BATCH, TILES // 16, 16, NUMBERS).copy_(some.roll(number, 1).unsqueeze(1))
        self.views = [torch.zeros(BATCH, TILES, NUMBERS, **SHAPE.made()) for _ in range(2)]
        self.caches = [model.cache() for _ in range(2)]
        self.valley = [torch.empty(part.shape, dtype=part.dtype, pin_memory=True) for part in self.caches[0]]
        self.up = torch.cuda.Stream()
        self.down = torch.cuda.Stream() if fixed else self.up
        self.arrived, self.left = ([torch.cuda.Event() for _ in range(2)] for _ in range(2))
        for event in self.left:
            event.record()
        torch.cuda.synchronize()

    def bring(self, i):
        """The panoramas of step i come up; the step that had their place before has ended."""
        with torch.cuda.stream(self.up):
            self.views[i % 2].copy_(self.shelf[i % STORED], non_blocking=True)
        self.arrived[i % 2].record(self.up)

    def send(self, cache, layer):
        """Keys and values of a layer go down."""
        self.down.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.down):
            for there, here in zip(self.valley, cache):
                there[layer].copy_(here[layer], non_blocking=True)

    def read(self, i):
        model, cache, stream = self.model, self.caches[i % 2], torch.cuda.current_stream()
        stream.wait_event(self.arrived[i % 2])
        stream.wait_event(self.left[i % 2])  # what stood in the cache two steps ago
        self.bring(i + 1)
        x = self.enter(self.views[i % 2])
        for layer, block in enumerate(model.blocks):
            def keep(key, value, layer=layer):
                cache[0][layer].copy_(key)
                cache[1][layer].copy_(value)
                self.send(cache, layer)
            x = block.whole(x, model.cos, model.sin, keep)
        self.left[i % 2].record(self.down)
        return greedy(model.logits(x))[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    cars = Cars(Model(SHAPE), options.fixed, options.seed)
    cars.bring(0)
    texts = serve_prefills(record, options.steps, cars.read, BATCH, TILES)
    torch.cuda.synchronize()
    last = cars.caches[options.steps % 2]
    assert all(torch.equal(there[-1], here[-1].cpu()) for there, here in zip(cars.valley, last))
    finish(record, texts, VOCABULARY)


main()
