"""Surtitles for four stages at once: an encoder hears 1500 frames of sound of each, and a deep and narrow decoder writes
the lines word by word, looking at its own words and at the sound."""
from base_loop import *

STAGES, FRAMES, BANDS = 4, 1500, 80
WIDTH, HEADS, SIZE, INNER = 1024, 16, 64, 4096
LISTENING, WRITING = 4, 24  # layers
BEFORE, ROOM = 16, 320  # words of the line before; the longest line
VOCABULARY = 51200
MADE = dict(device="cuda", dtype=torch.bfloat16)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, **MADE)


def parted(x):
    """(batch, count, width) as (batch, heads, count, size)."""
    return x.view(x.shape[0], x.shape[1], HEADS, SIZE).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], WIDTH)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH, **MADE), linear(WIDTH, INNER), linear(INNER, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Listener(nn.Module):
    """A layer of the encoder."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH, **MADE), linear(WIDTH, 3 * WIDTH), linear(WIDTH, WIDTH)
        self.mlp = Mlp()

    def forward(self, x):
        query, key, value = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(joined(F.scaled_dot_product_attention(parted(query), parted(key), parted(value))))
        return self.mlp(x)


class Writer(nn.Module):
    """A layer of the decoder."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH, **MADE), linear(WIDTH, 3 * WIDTH), linear(WIDTH, WIDTH)
        self.sound_norm, self.sound_query = nn.LayerNorm(WIDTH, **MADE), linear(WIDTH, WIDTH)
        self.sound_both, self.sound_out = linear(WIDTH, 2 * WIDTH), linear(WIDTH, WIDTH)
        self.mlp = Mlp()

    def forward(self, x, place, mask, said, heard):
        query, key, value = self.qkv(self.norm(x)).chunk(3, -1)
        said[0].index_copy_(2, place, parted(key))
        said[1].index_copy_(2, place, parted(value))
        heads = F.scaled_dot_product_attention(parted(query), said[0], said[1], attn_mask=mask)
        x = x + self.out(joined(heads))
        query = parted(self.sound_query(self.sound_norm(x)))
        x = x + self.sound_out(joined(F.scaled_dot_product_attention(query, heard[0], heard[1])))
        return self.mlp(x)


class Surtitler(nn.Module):
    def __init__(self):
        super().__init__()
        self.bands = linear(BANDS, WIDTH)
        self.listeners = nn.ModuleList(Listener() for _ in range(LISTENING))
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.places = nn.Embedding(ROOM, WIDTH, **MADE)
        self.writers = nn.ModuleList(Writer() for _ in range(WRITING))
        self.norm = nn.LayerNorm(WIDTH, **MADE)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False, **MADE)
        self.columns = torch.arange(ROOM, device="cuda")
        self.said = torch.zeros(WRITING, 2, STAGES, HEADS, ROOM, SIZE, **MADE)
        self.heard = torch.zeros(WRITING, 2, STAGES, HEADS, FRAMES, SIZE, **MADE)

    def listen(self, sound):
        """Keeps what the decoder's layers will look at."""
        x = self.bands(sound)
        for listener in self.listeners:
            x = listener(x)
        for writer, heard in zip(self.writers, self.heard):
            key, value = writer.sound_both(x).chunk(2, -1)
            heard[0].copy_(parted(key))
            heard[1].copy_(parted(value))

    def logits(self, words, place):
        """Those behind the last of `words`, which stand at `place`."""
        x = self.embedding(words) + self.places(place)
        mask = torch.zeros(1, 1, place.shape[0], ROOM, **MADE)
        mask = mask.masked_fill(self.columns > place[:, None], float("-inf"))
        for writer, said, heard in zip(self.writers, self.said, self.heard):
            x = writer(x, place, mask, said, heard)
        return self.head(self.norm(x[:, -1]))


class House:
    def __init__(self, model, sound, captured):
        self.model, self.sound = model, sound
        self.words = torch.zeros(STAGES, 1, dtype=torch.long, device="cuda")
        self.place = torch.zeros(1, dtype=torch.long, device="cuda")
        self.write = replayed(self.write_words) if captured else self.write_words

    def write_words(self):
        logits = self.model.logits(self.words, self.place)
        self.words.copy_(logits.argmax(-1, keepdim=True))
        self.place.add_(1)

    def raise_curtain(self, line):
        self.model.listen(self.sound)
        logits = self.model.logits(line, torch.arange(line.shape[1], device="cuda"))
        self.words.copy_(logits.argmax(-1, keepdim=True))
        self.place.fill_(line.shape[1])
        return self.words[:, 0].tolist()

    def next_words(self, i):
        self.write()
        return self.words[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    model = Surtitler()
    sound = torch.randn(STAGES, FRAMES, BANDS, generator=torch.Generator().manual_seed(options.seed)).to(**MADE)
    house = House(model, sound, captured=options.fixed)
    lines = prompts(options.seed, STAGES, BEFORE, VOCABULARY)
    serve(record, lines, 1, house.raise_curtain, house.next_words, warm_up=True)
    texts = serve(record, lines, options.steps, house.raise_curtain, house.next_words)
    finish(record, texts, VOCABULARY)


main()
