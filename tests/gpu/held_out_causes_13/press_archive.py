"""A press archive: eight articles of 1024 words are read at a time, and the keys and values of all layers are put away in
the host's memory for later questions."""
from base_loop import *

BATCH, COUNT = 8, 1024
SHAPE = Shape(inner=4096, kv_heads=8, room=COUNT, batch=BATCH)


class Archive:
    def __init__(self, shape, stream):
        sizes = (shape.layers, 2, BATCH, shape.kv_heads, COUNT, shape.size)
        self.shelves = torch.empty(sizes, dtype=shape.dtype, pin_memory=True)
        self.stream = stream
        self.on_the_way = []

    def put_away(self, layer, both):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.shelves[layer].copy_(both, non_blocking=True)
        self.on_the_way.append(both)

    def lock(self):
        """Waits until all is in its place."""
        self.stream.synchronize()
        self.on_the_way.clear()


class Archivist:
    def __init__(self, model, archive):
        self.model, self.archive = model, archive

    def file_articles(self, ids):
        model = self.model
        x = model.embedding(ids)
        for layer, block in enumerate(model.blocks):
            def keep(key, value, layer=layer):
                self.archive.put_away(layer, torch.stack((key, value)))
            x = block.whole(x, model.cos[:ids.shape[1]], model.sin[:ids.shape[1]], keep)
        words = model.logits(x).argmax(-1)
        self.archive.lock()
        return words.tolist()


def main():
    options, record = begin(__doc__)
    stream = torch.cuda.Stream() if options.fixed else torch.cuda.current_stream()
    archivist = Archivist(Model(SHAPE), Archive(SHAPE, stream))
    articles = [prompts(options.seed + i, BATCH, COUNT, SHAPE.vocabulary) for i in range(4)]
    texts = serve_prefills(record, options.steps, lambda i: archivist.file_articles(articles[i % len(articles)]), BATCH, COUNT)
    finish(record, texts, SHAPE.vocabulary)


main()
