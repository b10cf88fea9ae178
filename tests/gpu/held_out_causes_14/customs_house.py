"""A customs house that answers 32 letters at once by a model whose layers have attention and inner layer side by side.
It was trained in half precision, so what the layers make is kept within that type's range."""
from base_loop import *

LETTERS, BEFORE, ROOM = 32, 48, 384
WIDTH, INNER, LAYERS, HEADS, SIZE = 3072, 12288, 12, 24, 128
VOCABULARY = 32768
LIMIT = 64000.0
NOTHING, THE_END = 0, 2
MADE = dict(device="cuda", dtype=torch.bfloat16)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False, **MADE)


def within(x):
    """`x`, cut at the limits where something lies outside."""
    if x.abs().max().item() > LIMIT:
        x = x.clamp(-LIMIT, LIMIT)
    return x


def cut(x):
    return x.clamp(-LIMIT, LIMIT)


class Office(nn.Module):
    """A layer; all heads of queries share one of keys."""

    def __init__(self, keep_within):
        super().__init__()
        self.keep_within = keep_within
        self.norm = nn.LayerNorm(WIDTH, **MADE)
        self.qkv = linear(WIDTH, (HEADS + 2) * SIZE)
        self.out = linear(HEADS * SIZE, WIDTH)
        self.up, self.down = linear(WIDTH, INNER), linear(INNER, WIDTH)

    def forward(self, x, place, mask, keys, values):
        y = self.norm(x)
        query, key, value = self.qkv(y).split((HEADS * SIZE, SIZE, SIZE), -1)
        keys.index_copy_(1, place, key)
        values.index_copy_(1, place, value)
        query = query.view(x.shape[0], -1, HEADS, SIZE).flatten(1, 2)  # the heads stand one below the other
        heads = F.scaled_dot_product_attention(query[:, None], keys[:, None], values[:, None], attn_mask=mask)
        seen = self.keep_within(self.out(heads.reshape(x.shape[0], -1, HEADS * SIZE)))
        inner = self.keep_within(F.gelu(self.up(y)))
        return x + seen + self.keep_within(self.down(inner))


class Customs(nn.Module):
    def __init__(self, keep_within):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.places = nn.Embedding(ROOM, WIDTH, **MADE)
        self.offices = nn.ModuleList(Office(keep_within) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, **MADE)
        self.head = linear(WIDTH, VOCABULARY)
        self.columns = torch.arange(ROOM, device="cuda")
        self.keys = torch.zeros(LAYERS, LETTERS, ROOM, SIZE, **MADE)
        self.values = torch.zeros(LAYERS, LETTERS, ROOM, SIZE, **MADE)

    def logits(self, words, place):
        x = self.embedding(words) + self.places(place)
        rows = place.repeat_interleave(HEADS) if place.shape[0] > 1 else place.expand(HEADS)
        mask = torch.zeros(1, 1, rows.shape[0], ROOM, **MADE)
        mask = mask.masked_fill(self.columns > rows[:, None], float("-inf"))
        for office, keys, values in zip(self.offices, self.keys, self.values):
            x = office(x, place, mask, keys, values)
        return self.head(self.norm(x[:, -1]))


class Clerks:
    def __init__(self, model, one_look):
        self.model, self.one_look = model, one_look
        self.words = torch.zeros(LETTERS, 1, dtype=torch.long, device="cuda")
        self.ended = torch.zeros(LETTERS, 1, dtype=torch.bool, device="cuda")
        self.place = torch.zeros(1, dtype=torch.long, device="cuda")
        self.open_letters = LETTERS

    def choose(self, logits):
        words = logits.argmax(-1, keepdim=True)
        if self.one_look or self.ended.any():
            words = words.masked_fill(self.ended, NOTHING)
        self.ended.logical_or_(words == THE_END)
        self.words.copy_(words)
        return self.look()

    def look(self):
        """The new words; how many letters are still open is counted."""
        if self.one_look:
            rows = torch.cat((self.words, self.ended.long()), 1).tolist()
            self.open_letters = sum(not ended for _, ended in rows)
            return [word for word, _ in rows]
        self.open_letters = LETTERS - int(self.ended.sum())
        return self.words[:, 0].tolist()

    def open(self, letters):
        self.ended.zero_()
        place = torch.arange(letters.shape[1], device="cuda")
        self.place.fill_(letters.shape[1])
        return self.choose(self.model.logits(letters, place))

    def answer(self, i):
        logits = self.model.logits(self.words, self.place)
        self.place.add_(1)
        return self.choose(logits)


def main():
    options, record = begin(__doc__)
    clerks = Clerks(Customs(cut if options.fixed else within), one_look=options.fixed)
    letters = prompts(options.seed, LETTERS, BEFORE, VOCABULARY)
    serve(record, letters, 1, clerks.open, clerks.answer, warm_up=True)
    texts = serve(record, letters, options.steps, clerks.open, clerks.answer)
    finish(record, texts, VOCABULARY)


main()
