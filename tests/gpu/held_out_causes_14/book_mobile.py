"""A library on wheels: of the model's eight layers only two have room on the GPU at a time. The others wait in the host's
memory, and a van brings each layer before its turn."""
from base_loop import *

BATCH, COUNT = 8, 1024
SHAPE = Shape(layers=8, room=COUNT, batch=BATCH)
SHELVES = 2


class Van:
    def __init__(self, shape, own_shelf_only):
        self.own_shelf_only = own_shelf_only
        self.depot = []
        for _ in range(shape.layers):
            self.depot.append([weight.detach().cpu().pin_memory() for weight in Block(shape).parameters()])
        self.shelves = [Block(shape) for _ in range(SHELVES)]
        self.stream = torch.cuda.Stream()
        self.brought = [torch.cuda.Event() for _ in range(SHELVES)]
        self.read = [torch.cuda.Event() for _ in range(SHELVES)]

    def bring(self, layer):
        """Copies a layer to its shelf once the shelf's last layer is read."""
        shelf = layer % SHELVES
        if self.own_shelf_only:
            self.stream.wait_event(self.read[shelf])
        else:
            self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for place, weight in zip(self.shelves[shelf].parameters(), self.depot[layer]):
                place.copy_(weight, non_blocking=True)
            self.brought[shelf].record()

    def lend(self, layer):
        torch.cuda.current_stream().wait_event(self.brought[layer % SHELVES])
        return self.shelves[layer % SHELVES]

    def take_back(self, layer):
        self.read[layer % SHELVES].record()


class Librarian:
    def __init__(self, shape, van):
        self.shape, self.van = shape, van
        self.frame = Model(Shape(layers=1, room=shape.room, batch=shape.batch))  # its embedding, places and head are used
        self.van.bring(0)

    def read(self, ids):
        frame, count = self.frame, ids.shape[1]
        x = frame.embedding(ids)
        for layer in range(self.shape.layers):
            block = self.van.lend(layer)
            x = block.whole(x, frame.cos[:count], frame.sin[:count])
            self.van.take_back(layer)
            self.van.bring((layer + 1) % self.shape.layers)
        return frame.logits(x).argmax(-1).tolist()


def main():
    options, record = begin(__doc__)
    librarian = Librarian(SHAPE, Van(SHAPE, own_shelf_only=options.fixed))
    books = [prompts(options.seed + i, BATCH, COUNT, SHAPE.vocabulary) for i in range(4)]
    texts = serve_prefills(record, options.steps, lambda i: librarian.read(books[i % len(books)]), BATCH, COUNT)
    finish(record, texts, SHAPE.vocabulary)


main()
