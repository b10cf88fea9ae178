"""Two ships' logs of 24576 words each, restored from a store, asked and continued."""
from base_loop import *

KEPT = 24576
SHAPE = Shape(layers=6, heads=16, kv_heads=16, room=KEPT + 512, batch=2)


def restored(shape, generator):
    """Keys or values of one layer as the store hands them out."""
    return torch.randn(shape.batch, shape.kv_heads, KEPT, shape.size, generator=generator, **shape.made())


class GrowingLog:
    def __init__(self, shape, generator):
        self.keys, self.values = [], []
        for _ in range(shape.layers):
            self.keys.append(restored(shape, generator))
            self.values.append(restored(shape, generator))

    def append(self, layer, key, value):
        self.keys[layer] = torch.cat((self.keys[layer], key), 2)
        self.values[layer] = torch.cat((self.values[layer], value), 2)
        return self.keys[layer], self.values[layer]


class RuledLog:
    def __init__(self, shape, generator):
        sizes = (shape.layers, shape.batch, shape.kv_heads, shape.room, shape.size)
        self.keys, self.values = torch.zeros(sizes, **shape.made()), torch.zeros(sizes, **shape.made())
        self.ends = [KEPT] * shape.layers
        for layer in range(shape.layers):
            self.keys[layer][:, :, :KEPT] = restored(shape, generator)
            self.values[layer][:, :, :KEPT] = restored(shape, generator)

    def append(self, layer, key, value):
        begin, end = self.ends[layer], self.ends[layer] + key.shape[2]
        self.keys[layer][:, :, begin:end] = key
        self.values[layer][:, :, begin:end] = value
        self.ends[layer] = end
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]


class Mate:
    def __init__(self, model, log_kind, seed):
        self.model, self.log_kind, self.seed = model, log_kind, seed
        self.log, self.end, self.words = None, KEPT, None

    def read(self, ids, mask=None):
        """The next word behind `ids`, which go to the end of the log."""
        model, count = self.model, ids.shape[1]
        cos, sin = model.cos[self.end:self.end + count], model.sin[self.end:self.end + count]
        x = model.embedding(ids)
        for layer, block in enumerate(model.blocks):
            query, key, value = block.split(x, cos, sin)
            keys, values = self.log.append(layer, key, value)
            heads = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
            x = block.close(x, heads.transpose(1, 2).reshape(x.shape[0], count, -1))
        self.end += count
        self.words = greedy(model.logits(x))
        return self.words[:, 0].tolist()

    def open_logs(self, prompt):
        self.log, self.end = None, KEPT
        self.log = self.log_kind(self.model.shape, torch.Generator("cuda").manual_seed(self.seed))
        count = prompt.shape[1]
        mask = torch.ones(count, KEPT + count, dtype=torch.bool, device="cuda").tril(KEPT)
        return self.read(prompt, mask)

    def next_entry(self, i):
        return self.read(self.words)


def main():
    options, record = begin(__doc__)
    mate = Mate(Model(SHAPE), RuledLog if options.fixed else GrowingLog, options.seed)
    questions = prompts(options.seed, SHAPE.batch, 32, SHAPE.vocabulary)
    serve(record, questions, 1, mate.open_logs, mate.next_entry, warm_up=True)
    texts = serve(record, questions, options.steps, mate.open_logs, mate.next_entry)
    finish(record, texts, SHAPE.vocabulary)


main()
