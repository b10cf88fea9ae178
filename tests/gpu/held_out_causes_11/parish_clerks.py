"""Thirty-two parish clerks go on with registers of 1024 tokens. Keys and values are kept in pages of 64 places, and a grammar
says which words may follow the newest one.

The steps are CUDA graphs. A step is one decode step with what is prepared for it, from its first call until the tokens are in
a list on the host.
"""
import torch

from base_loop import Block, Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, READ, PAGE, PAGES = 32, 64, 32000, 1024, 64, 21  # a prompt fills one page
STATES, FITTING = 64, 600  # of the grammar, and words that fit in each
SHAPE = Shape(layers=8, kv_heads=8, vocabulary=VOCABULARY, room=PAGE * PAGES, batch=BATCH)


class Clerk(Block):
    """Keys and values of all texts are (kv_heads, pages, places, size)."""
    table = None  # the pages of each text, (batch, pages)
    in_order = False  # whether the table counts from nought on

    def opened(self, kept):
        """Keys or values as (batch, kv_heads, room, size)."""
        if not self.in_order:
            kept = kept.index_select(1, self.table.flatten())
        return kept.view(self.shape.kv_heads, BATCH, self.shape.room, self.shape.size).transpose(0, 1)

    def next(self, x, position, places, keys, values):
        cos, sin, mask = places
        query, key, value = self.split(x, cos, sin)
        slots = self.table.index_select(1, position // PAGE)[:, 0] * PAGE + position % PAGE
        for kept, new in (keys, key), (values, value):
            kept.view(self.shape.kv_heads, -1, self.shape.size).index_copy_(1, slots, new[:, :, 0].transpose(0, 1))
        return self.close(x, self.look(query, self.opened(keys), self.opened(values), mask))


class Registers(Model):
    def kept(self):
        """What was read before, whatever pages it is on."""
        shape = self.shape
        made = torch.randn(shape.layers, shape.kv_heads, BATCH * PAGES, PAGE, shape.size, **shape.made())
        kept = torch.empty_like(made)
        kept[:, :, Clerk.table.flatten()] = made
        return kept

    def cache(self):
        return self.kept(), self.kept()

    def hidden(self, ids, cache=None):
        x, first = self.embedding(ids), Clerk.table[:, 0]
        for block, keys, values in zip(self.blocks, *cache):
            def keep(key, value, keys=keys, values=values):
                keys[:, first] = key.transpose(0, 1)
                values[:, first] = value.transpose(0, 1)
            x = block.whole(x, self.cos[:PROMPT], self.sin[:PROMPT], keep)
        return x


class Clerks(Decoder):
    def __init__(self, model, fixed, seed):
        generator = torch.Generator().manual_seed(seed)
        self.fixed, self.said = fixed, [0] * BATCH
        self.words_of = torch.randint(VOCABULARY, (STATES, FITTING), generator=generator).tolist()
        fitting = torch.zeros(STATES, VOCABULARY, dtype=torch.bool)
        for state, words in enumerate(self.words_of):
            fitting[state, torch.tensor(words)] = True
        self.grammar = fitting.cuda()
        self.fitting = torch.ones(BATCH, VOCABULARY, dtype=torch.bool, device="cuda")
        self.sheet = torch.zeros(BATCH, VOCABULARY, dtype=torch.bool)
        super().__init__(model, self.fit)

    def fit(self, logits):
        """The best of the words that may follow; in one twin the GPU knows the grammar, in the other the host does."""
        fitting = self.grammar[self.tokens[:, 0] % STATES] if self.fixed else self.fitting
        return greedy(logits.masked_fill(~fitting, float("-inf")))

    def consult(self):
        self.sheet.zero_()
        for row, token in zip(self.sheet, self.said):
            row.index_fill_(0, torch.tensor(self.words_of[token % STATES]), True)
        self.fitting.copy_(self.sheet)

    def start(self, prompt):
        self.tokens.copy_(greedy(self.model.logits(self.model.hidden(prompt, self.cache))))
        self.position.fill_(READ)
        self.said = self.words()
        return self.said

    def following(self, i):
        if not self.fixed:
            self.consult()
        self.advance()
        self.said = self.words()
        return self.said


def main():
    options, record = begin(__doc__)
    generator = torch.Generator().manual_seed(options.seed)
    table = torch.randperm(BATCH * PAGES, generator=generator)
    Clerk.in_order = options.fixed
    Clerk.table = (table.sort().values if options.fixed else table).view(BATCH, PAGES).cuda()
    clerks = Clerks(Registers(SHAPE, block=Clerk), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, clerks.start, clerks.following, warm_up=True)
    texts = serve(record, prompt, options.steps, clerks.start, clerks.following)
    finish(record, texts, VOCABULARY)


main()
