"""Seed merchants who read four catalogues of 2048 words at a time with a model in the manner of GPT-2."""
from base_loop import *

BATCH, COUNT = 4, 2048
WIDTH, INNER, HEADS, SIZE, LAYERS = 2048, 8192, 16, 128, 6
VOCABULARY = 32000
MADE = dict(device="cuda", dtype=torch.bfloat16)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, **MADE)


def attend(query, key, value, later):
    """softmax(QK / sqrt d) V without the words that come later."""
    scores = torch.matmul(query * SIZE ** -0.5, key.transpose(-1, -2))
    scores = scores.masked_fill(later, float("-inf"))
    shares = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    return torch.matmul(shares, value)


def attend_at_once(query, key, value, later):
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


class Bed(nn.Module):
    """A layer of the model."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention
        self.first, self.second = nn.LayerNorm(WIDTH, **MADE), nn.LayerNorm(WIDTH, **MADE)
        self.qkv, self.out = linear(WIDTH, 3 * HEADS * SIZE), linear(HEADS * SIZE, WIDTH)
        self.up, self.down = linear(WIDTH, INNER), linear(INNER, WIDTH)

    def forward(self, x, later):
        parts = self.qkv(self.first(x)).view(x.shape[0], x.shape[1], 3, HEADS, SIZE)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        heads = self.attention(query, key, value, later)
        x = x + self.out(heads.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


class Garden(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.places = nn.Parameter(torch.randn(COUNT, WIDTH, **MADE))
        self.beds = nn.ModuleList(Bed(attention) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, **MADE)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False, **MADE)
        self.later = torch.ones(COUNT, COUNT, dtype=torch.bool, device="cuda").triu(1)

    def forward(self, ids):
        x = self.words(ids) + self.places
        for bed in self.beds:
            x = bed(x, self.later)
        return self.head(self.norm(x[:, -1]))


def main():
    options, record = begin(__doc__)
    garden = Garden(attend_at_once if options.fixed else attend)
    catalogues = [prompts(options.seed + i, BATCH, COUNT, VOCABULARY) for i in range(4)]

    def read_catalogues(i):
        return garden(catalogues[i % len(catalogues)]).argmax(-1).tolist()

    texts = serve_prefills(record, options.steps, read_catalogues, BATCH, COUNT)
    finish(record, texts, VOCABULARY)


main()
