"""Grocers' ledgers: each of the 8192 entries read at a time is a word and an amount of money, and the amount is one more
number behind the 1536 of the word."""
from base_loop import *

BATCH, COUNT = 8, 1024
WORD = 1536
WIDTH = WORD + 1
SHELF = 1600  # the next multiple of 64
HEADS, SIZE, INNER, LAYERS = 12, 128, 6144, 10
VOCABULARY = 32000
MADE = dict(device="cuda", dtype=torch.bfloat16)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False, **MADE)


def enlarge(matrix, rows, columns):
    """Adds zeros at the right and below."""
    larger = torch.zeros(rows, columns, **MADE)
    larger[:matrix.weight.shape[0], :matrix.weight.shape[1]] = matrix.weight
    matrix.weight = nn.Parameter(larger)


def enlarge_norm(weight, width):
    """The same norm where zeros count as numbers of the row."""
    larger = torch.zeros(width, **MADE)
    larger[:weight.shape[0]] = weight * (weight.shape[0] / width) ** 0.5
    return nn.Parameter(larger)


def norm(x, weight):
    return F.rms_norm(x, weight.shape, weight, 1e-6)


class Page(nn.Module):
    """A layer of the model."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.ones(WIDTH, **MADE)), nn.Parameter(torch.ones(WIDTH, **MADE))
        self.qkv, self.out = linear(WIDTH, 3 * HEADS * SIZE), linear(HEADS * SIZE, WIDTH)
        self.up, self.down = linear(WIDTH, INNER), linear(INNER, WIDTH)

    def forward(self, x):
        parts = self.qkv(norm(x, self.first)).view(x.shape[0], x.shape[1], 3, HEADS, SIZE)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        heads = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))
        return x + self.down(F.gelu(self.up(norm(x, self.second))))

    def enlarge(self, width):
        self.first, self.second = enlarge_norm(self.first, width), enlarge_norm(self.second, width)
        enlarge(self.qkv, 3 * HEADS * SIZE, width)
        enlarge(self.out, width, HEADS * SIZE)
        enlarge(self.up, INNER, width)
        enlarge(self.down, width, INNER)


class Ledger(nn.Module):
    def __init__(self):
        super().__init__()
        self.width = WIDTH
        self.words = nn.Embedding(VOCABULARY, WORD, **MADE)
        self.places = nn.Parameter(torch.randn(COUNT, WORD, **MADE))
        self.pages = nn.ModuleList(Page() for _ in range(LAYERS))
        self.last = nn.Parameter(torch.ones(WIDTH, **MADE))
        self.head = linear(WIDTH, VOCABULARY)

    def enlarge(self, width):
        self.width = width
        for page in self.pages:
            page.enlarge(width)
        self.last = enlarge_norm(self.last, width)
        enlarge(self.head, VOCABULARY, width)

    def forward(self, ids, amounts):
        x = torch.cat((self.words(ids) + self.places, amounts[:, :, None]), -1)
        if self.width > WIDTH:
            x = F.pad(x, (0, self.width - WIDTH))
        for page in self.pages:
            x = page(x)
        return self.head(norm(x[:, -1], self.last))


def main():
    options, record = begin(__doc__)
    ledger = Ledger()
    if options.fixed:
        ledger.enlarge(SHELF)
    books = [prompts(options.seed + i, BATCH, COUNT, VOCABULARY) for i in range(4)]
    generator = torch.Generator().manual_seed(options.seed)
    amounts = torch.rand(BATCH, COUNT, generator=generator).to(**MADE)

    def read_books(i):
        return ledger(books[i % len(books)], amounts).argmax(-1).tolist()

    texts = serve_prefills(record, options.steps, read_books, BATCH, COUNT)
    finish(record, texts, VOCABULARY)


main()
