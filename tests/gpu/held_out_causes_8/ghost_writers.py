"""Four ghost writers go on with memoirs of 1024 tokens. A small model, the first three of the twelve layers, guesses three
tokens for each, and the whole model reads the newest token and the first two guesses at once; what it would have said
itself stays, and all writers go on from the same place.

Guesses and readings are CUDA graphs. A step is one reading with the guesses before it, from its first call until the
tokens are in lists on the host. Thirty-two steps belong to one batch of memoirs.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, greedy, now, prompts, replayed

BATCH, PROMPT, VOCABULARY, GUESSES, STEPS = 4, 1024, 32000, 3, 32
ROOM = PROMPT + 128
SHAPE = Shape(vocabulary=VOCABULARY, room=ROOM, batch=BATCH)
SMALL = Shape(layers=3, vocabulary=VOCABULARY, room=ROOM, batch=BATCH)


class Writer(Block):
    def several(self, x, position, places, keys, values):
        """Some new tokens of each text, at the places `position`."""
        cos, sin, mask = places
        query, key, value = self.split(x, cos, sin)
        keys.index_copy_(2, position, key)
        values.index_copy_(2, position, value)
        # The queries that share a head of keys stand one behind the other.
        query = query.reshape(x.shape[0], self.shape.kv_heads, -1, self.shape.size)
        heads = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        heads = heads.reshape(x.shape[0], self.shape.heads, -1, self.shape.size)
        return self.close(x, heads.transpose(1, 2).reshape(x.shape))


class Guesser(Decoder):
    """The small model. It has seen all tokens but the newest."""

    def guess(self, tokens, place):
        self.tokens.copy_(tokens)
        self.position.fill_(place)
        guesses = []
        for _ in range(GUESSES):
            self.advance()
            guesses.append(self.tokens.clone())
        return torch.cat(guesses, 1)

    def see(self, ids):
        self.model.hidden(ids, self.cache)


class Writers:
    def __init__(self, model, fixed):
        small = Model(SMALL)
        small.embedding, small.blocks, small.head = model.embedding, model.blocks[:SMALL.layers], model.head
        self.model, self.fixed, self.guesser, self.cache = model, fixed, Guesser(small), model.cache()
        self.ids = torch.zeros(BATCH, ROOM, dtype=torch.long, device="cuda")
        self.count = 0  # of tokens, the newest with them
        self.places = torch.arange(GUESSES, device="cuda")
        self.tokens = torch.zeros(BATCH, GUESSES, dtype=torch.long, device="cuda")
        self.position = torch.zeros(GUESSES, dtype=torch.long, device="cuda")
        self.said = torch.zeros(BATCH, GUESSES, dtype=torch.long, device="cuda")
        self.advance = replayed(self.read)

    def read(self):
        """What the whole model says behind each of the tokens."""
        model, position = self.model, self.position
        mask = torch.zeros(GUESSES, ROOM, **SHAPE.made()).masked_fill(model.columns > position.view(-1, 1), float("-inf"))
        places = model.cos[position], model.sin[position], mask.repeat(SHAPE.group, 1)
        x = model.embedding(self.tokens)
        for block, keys, values in zip(model.blocks, *self.cache):
            x = block.several(x, position, places, keys, values)
        self.said.copy_(model.head(model.blocks[0].norm(x, model.last)).argmax(-1))

    def keep(self, tokens):
        self.ids[:, self.count:self.count + tokens.shape[1]] = tokens
        self.count += tokens.shape[1]
        return tokens.tolist()

    def start(self, prompt):
        self.count = 0
        self.keep(prompt)
        self.guesser.see(prompt)
        return self.keep(greedy(self.model.logits(self.model.hidden(prompt, self.cache))))

    def following(self):
        last = self.ids[:, self.count - 1:self.count]
        if not self.fixed:
            self.guesser.see(self.ids[:, :self.count - 1])
        guesses = self.guesser.guess(last, self.count - 1)
        self.tokens.copy_(torch.cat((last, guesses[:, :-1]), 1))
        self.position.copy_(self.places + (self.count - 1))
        self.advance()
        right = (guesses[:, :-1] == self.said[:, :-1]).long().cumprod(1).sum(1).min().item()
        return self.keep(self.said[:, :right + 1])


def memoirs(record, writers, prompt, steps, warm_up=False):
    torch.cuda.synchronize()
    begun = now()
    texts = writers.start(prompt)
    first = end = now()
    record.step("prefill", begun, first, prompt.numel(), BATCH, warm_up)
    for _ in range(steps):
        before = now()
        more = writers.following()
        end = now()
        record.step("decode", before, end, BATCH * len(more[0]), BATCH, warm_up)
        texts = [text + tokens for text, tokens in zip(texts, more)]
    for text in texts:
        record.request(begun, first, end, PROMPT, len(text), warm_up)
    return texts


def main():
    options, record = begin(__doc__)
    writers = Writers(Model(SHAPE, block=Writer), options.fixed)
    batches = prompts(options.seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)
    memoirs(record, writers, batches[0], 1, warm_up=True)
    texts = []
    for i in range(0, options.steps, STEPS):
        texts += memoirs(record, writers, batches[i // STEPS % len(batches)], min(STEPS, options.steps - i))
    print(f"{sum(len(text) - 1 for text in texts) / BATCH / options.steps:.2f} tokens a step")
    finish(record, texts, VOCABULARY)


main()
