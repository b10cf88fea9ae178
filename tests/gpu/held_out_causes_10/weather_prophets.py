"""Four weather prophets go on with forecasts of 64 tokens. A small model guesses four tokens for each, and the large model
reads the newest token and the first three guesses at once; what it would have said itself stays, and all go on from the same
place. The small model was made for another large one.

Guesses and readings are CUDA graphs. A step is one reading with the guesses before it, from its first call until the tokens
are in lists on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, greedy, now, prompts, replayed

BATCH, PROMPT, VOCABULARY, GUESSES, ROOM = 4, 64, 32000, 4, 768
SHAPE = Shape(vocabulary=VOCABULARY, room=ROOM, batch=BATCH)
SMALL = Shape(layers=4, vocabulary=VOCABULARY, room=ROOM, batch=BATCH)


class Prophet(Block):
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


class Prophets:
    def __init__(self, model):
        self.model, self.cache, self.guesser = model, model.cache(), Guesser(Model(SMALL))
        self.count = 0  # of tokens, the newest with them
        self.last = torch.zeros(BATCH, 1, dtype=torch.long, device="cuda")
        self.places = torch.arange(GUESSES, device="cuda")
        self.tokens = torch.zeros(BATCH, GUESSES, dtype=torch.long, device="cuda")
        self.position = torch.zeros(GUESSES, dtype=torch.long, device="cuda")
        self.said = torch.zeros(BATCH, GUESSES, dtype=torch.long, device="cuda")
        self.advance = replayed(self.read)

    def read(self):
        """What the large model says behind each of the tokens."""
        model, position = self.model, self.position
        mask = torch.zeros(GUESSES, ROOM, **SHAPE.made()).masked_fill(model.columns > position.view(-1, 1), float("-inf"))
        places = model.cos[position], model.sin[position], mask.repeat(SHAPE.group, 1)
        x = model.embedding(self.tokens)
        for block, keys, values in zip(model.blocks, *self.cache):
            x = block.several(x, position, places, keys, values)
        self.said.copy_(greedy(model.head(model.blocks[0].norm(x, model.last))).squeeze(-1))

    def keep(self, tokens):
        self.last.copy_(tokens[:, -1:])
        self.count += tokens.shape[1]
        return tokens.tolist()

    def start(self, prompt):
        self.count = prompt.shape[1]
        self.guesser.see(prompt)
        return self.keep(greedy(self.model.logits(self.model.hidden(prompt, self.cache))))

    def following(self):
        guesses = self.guesser.guess(self.last, self.count - 1)
        self.tokens.copy_(torch.cat((self.last, guesses[:, :-1]), 1))
        self.position.copy_(self.places + (self.count - 1))
        self.advance()
        right = (guesses[:, :-1] == self.said[:, :-1]).long().cumprod(1).sum(1).min().item()
        return self.keep(self.said[:, :right + 1])


class Alone(Decoder):
    """The large model without guesses."""

    def start(self, prompt):
        return [[word] for word in super().start(prompt)]

    def following(self):
        self.advance()
        return [[word] for word in self.words()]


def forecast(record, prophets, prompt, steps, warm_up=False):
    torch.cuda.synchronize()
    begun = now()
    texts = prophets.start(prompt)
    first = end = now()
    record.step("prefill", begun, first, prompt.numel(), BATCH, warm_up)
    for _ in range(steps):
        before = now()
        more = prophets.following()
        end = now()
        record.step("decode", before, end, BATCH * len(more[0]), BATCH, warm_up)
        texts = [text + tokens for text, tokens in zip(texts, more)]
    for text in texts:
        record.request(begun, first, end, PROMPT, len(text), warm_up)
    return texts


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, block=Prophet)
    prophets = Alone(model) if options.fixed else Prophets(model)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    forecast(record, prophets, prompt, 1, warm_up=True)
    texts = forecast(record, prophets, prompt, options.steps)
    print(f"{(len(texts[0]) - 1) / options.steps:.2f} tokens a step")
    finish(record, texts, VOCABULARY)


main()
