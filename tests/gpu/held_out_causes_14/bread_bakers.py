"""Bread bakers whose sixteen recipes of 1024 words are read at once by a narrow model in the manner of Gemma: each half of a
layer has a norm before it and one behind it."""
from base_loop import *

BATCH, COUNT = 16, 1024
WIDTH, INNER, HEADS, SIZE, LAYERS = 1024, 2816, 16, 64, 12
VOCABULARY = 32000
SMALL = 1e-6
MADE = dict(device="cuda", dtype=torch.bfloat16)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False, **MADE)


class RootNorm(nn.Module):
    """Rows divided by the root of the mean of their squares, times one more than the weights."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WIDTH, **MADE))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + SMALL)
        y = y * (1.0 + self.weight.float())
        return y.to(x.dtype)


class QuickRootNorm(RootNorm):
    def forward(self, x):
        return F.rms_norm(x, (WIDTH,), 1.0 + self.weight, SMALL)


def halves_turned(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def turned(x, cos, sin):
    """Queries or keys turned by their places."""
    y = x.float()
    return (y * cos.float() + halves_turned(y) * sin.float()).to(x.dtype)


def quickly_turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.addcmul(x * cos, torch.cat((-b, a), -1), sin)


class Loaf(nn.Module):
    """A layer of the model."""

    def __init__(self, norm, turn):
        super().__init__()
        self.turn = turn
        self.before, self.behind, self.before_mlp, self.behind_mlp = norm(), norm(), norm(), norm()
        self.qkv, self.out = linear(WIDTH, 3 * HEADS * SIZE), linear(HEADS * SIZE, WIDTH)
        self.gate, self.up, self.down = linear(WIDTH, INNER), linear(WIDTH, INNER), linear(INNER, WIDTH)

    def forward(self, x, cos, sin):
        parts = self.qkv(self.before(x)).view(x.shape[0], x.shape[1], 3, HEADS, SIZE)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        query, key = self.turn(query, cos, sin), self.turn(key, cos, sin)
        heads = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.behind(self.out(heads.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1)))
        y = self.before_mlp(x)
        return x + self.behind_mlp(self.down(F.gelu(self.gate(y), approximate="tanh") * self.up(y)))


class Bakery(nn.Module):
    def __init__(self, norm, turn):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.loaves = nn.ModuleList(Loaf(norm, turn) for _ in range(LAYERS))
        self.last = norm()
        self.head = linear(WIDTH, VOCABULARY)
        speed = 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE)
        angle = torch.outer(torch.arange(COUNT, device="cuda").float(), speed).repeat(1, 2)
        self.cos, self.sin = angle.cos().bfloat16(), angle.sin().bfloat16()

    def forward(self, ids):
        x = self.words(ids)
        for loaf in self.loaves:
            x = loaf(x, self.cos, self.sin)
        return self.head(self.last(x[:, -1]))


def main():
    options, record = begin(__doc__)
    bakery = Bakery(QuickRootNorm, quickly_turned) if options.fixed else Bakery(RootNorm, turned)
    recipes = [prompts(options.seed + i, BATCH, COUNT, VOCABULARY) for i in range(4)]

    def read_recipes(i):
        return bakery(recipes[i % len(recipes)]).argmax(-1).tolist()

    texts = serve_prefills(record, options.steps, read_recipes, BATCH, COUNT)
    finish(record, texts, VOCABULARY)


main()
