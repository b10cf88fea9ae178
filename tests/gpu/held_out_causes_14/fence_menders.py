"""Fence menders: 32 programs with a gap, of which 16320 words each are read already, are completed by a model whose heads
share one key and one value."""
from base_loop import *

BATCH, KEPT, BEFORE, ROOM = 32, 16320, 4, 16320 + 312
WIDTH, INNER, HEADS, SIZE, LAYERS = 2048, 8192, 16, 128, 8
VOCABULARY = 32000
MADE = dict(device="cuda", dtype=torch.bfloat16)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, **MADE)


def read_before(seed):
    """Keys and values of the words that are kept, layer by layer."""
    generator = torch.Generator("cuda").manual_seed(seed)
    for _ in range(LAYERS):
        yield torch.randn(BATCH, KEPT, 2 * SIZE, generator=generator, **MADE)


class Past:
    def __init__(self, seed):
        self.layers = list(read_before(seed))

    def with_entry(self, layer, entry):
        self.layers[layer] = torch.cat((self.layers[layer], entry), dim=1)
        return self.layers[layer]


class RoomyPast:
    def __init__(self, seed):
        self.layers = torch.zeros(LAYERS, BATCH, ROOM, 2 * SIZE, **MADE)
        self.ends = [KEPT] * LAYERS
        for layer, before in enumerate(read_before(seed)):
            self.layers[layer][:, :KEPT] = before

    def with_entry(self, layer, entry):
        end = self.ends[layer]
        self.layers[layer][:, end:end + 1] = entry
        self.ends[layer] = end + 1
        return self.layers[layer][:, :end + 1]


class Rail(nn.Module):
    """A layer of the model."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH, **MADE), nn.LayerNorm(WIDTH, **MADE)
        self.qkv, self.out = linear(WIDTH, (HEADS + 2) * SIZE), linear(HEADS * SIZE, WIDTH)
        self.up, self.down = linear(WIDTH, INNER), linear(INNER, WIDTH)

    def forward(self, x, past, layer):
        query, entry = self.qkv(self.first(x)).split((HEADS * SIZE, 2 * SIZE), -1)
        keys, values = past.with_entry(layer, entry)[:, None].split(SIZE, -1)
        # The heads stand where the words of one head would.
        heads = F.scaled_dot_product_attention(query.view(BATCH, 1, HEADS, SIZE), keys, values)
        x = x + self.out(heads.reshape(BATCH, 1, HEADS * SIZE))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


class Fence(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.places = nn.Parameter(torch.randn(ROOM, WIDTH, **MADE))
        self.rails = nn.ModuleList(Rail() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, **MADE)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False, **MADE)

    def forward(self, words, place, past):
        x = self.words(words) + self.places[place]
        for layer, rail in enumerate(self.rails):
            x = rail(x, past, layer)
        return self.head(self.norm(x[:, -1]))


class Mender:
    def __init__(self, fence, kind, seed):
        self.fence, self.kind, self.seed = fence, kind, seed
        self.past, self.place, self.words = None, KEPT, None

    def mend(self, words):
        self.words = greedy(self.fence(words, self.place, self.past))
        self.place += 1

    def begin_gaps(self, beginnings):
        """The beginnings are short, so that their words are read one by one."""
        self.past, self.place = None, KEPT
        self.past = self.kind(self.seed)
        for words in beginnings.split(1, 1):
            self.mend(words)
        return self.words[:, 0].tolist()

    def next_words(self, i):
        self.mend(self.words)
        return self.words[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    mender = Mender(Fence(), RoomyPast if options.fixed else Past, options.seed)
    beginnings = prompts(options.seed, BATCH, BEFORE, VOCABULARY)
    serve(record, beginnings, 1, mender.begin_gaps, mender.next_words, warm_up=True)
    texts = serve(record, beginnings, options.steps, mender.begin_gaps, mender.next_words)
    finish(record, texts, VOCABULARY)


main()
