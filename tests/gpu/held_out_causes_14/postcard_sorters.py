"""Sorters of old postcards: 64 pictures a step, decoded by others and lying in the host's memory, are looked at by a
vision transformer that names a drawer for each."""
from base_loop import *

BATCH, COLOURS, SIDE, PATCH = 64, 3, 384, 24
ROWS = SIDE // PATCH
PLACES = ROWS * ROWS
WIDTH, INNER, HEADS, LAYERS = 1024, 4096, 16, 10
DRAWERS = 8192
MADE = dict(device="cuda", dtype=torch.bfloat16)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, **MADE)


class Glance(nn.Module):
    """A layer of the vision transformer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH, **MADE), nn.LayerNorm(WIDTH, **MADE)
        self.qkv, self.out = linear(WIDTH, 3 * WIDTH), linear(WIDTH, WIDTH)
        self.up, self.down = linear(WIDTH, INNER), linear(INNER, WIDTH)

    def forward(self, x):
        both = self.qkv(self.first(x)).view(x.shape[0], PLACES, 3, HEADS, WIDTH // HEADS)
        query, key, value = both.permute(2, 0, 3, 1, 4).unbind(0)
        heads = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(heads.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Eye(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = linear(COLOURS * PATCH * PATCH, WIDTH)
        self.places = nn.Parameter(torch.randn(PLACES, WIDTH, **MADE))
        self.glances = nn.ModuleList(Glance() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, **MADE)
        self.head = linear(WIDTH, DRAWERS)

    def forward(self, pictures):
        cut = pictures.to(torch.bfloat16).view(-1, COLOURS, ROWS, PATCH, ROWS, PATCH)
        cut = cut.permute(0, 2, 4, 1, 3, 5).reshape(-1, PLACES, COLOURS * PATCH * PATCH)
        x = self.patches(cut) + self.places
        for glance in self.glances:
            x = glance(x)
        return self.head(self.norm(x).mean(1))


def crate(seed, locked):
    """Pictures as the decoders leave them: float32, channel by channel."""
    generator = torch.Generator("cuda").manual_seed(seed)
    pictures = torch.randn(BATCH, COLOURS, SIDE, SIDE, generator=generator, device="cuda").cpu()
    return pictures.pin_memory() if locked else pictures


class Table:
    """Where the pictures of a step are laid out: on the GPU."""

    def __init__(self, crates):
        self.crates = crates

    def lay_out(self, i):
        return self.crates[i % len(self.crates)].to("cuda")


class DoubleTable:
    """While those of a step are looked at, those of the next are laid out."""

    def __init__(self, crates):
        self.crates, self.stream = crates, torch.cuda.Stream()
        self.coming = self.bring(0)

    def bring(self, i):
        with torch.cuda.stream(self.stream):
            return self.crates[i % len(self.crates)].to("cuda", non_blocking=True)

    def lay_out(self, i):
        pictures = self.coming
        torch.cuda.current_stream().wait_stream(self.stream)
        pictures.record_stream(torch.cuda.current_stream())
        self.coming = self.bring(i + 1)
        return pictures


def sort_cards(record, eye, table, steps):
    """A warm-up step and `steps` more; a picture counts as many tokens as it has patches."""
    torch.cuda.synchronize()
    drawers = []
    for i in range(steps + 1):
        before = now()
        chosen = eye(table.lay_out(i)).argmax(-1).tolist()
        end = now()
        record.step("vision", before, end, BATCH * PLACES, BATCH, warm_up=i == 0)
        for _ in chosen:
            record.request(before, end, end, PLACES, 1, warm_up=i == 0)
        drawers.append(chosen)
    return drawers


def main():
    options, record = begin(__doc__)
    eye = Eye()
    crates = [crate(options.seed * 10 + i, locked=options.fixed) for i in range(3)]
    table = DoubleTable(crates) if options.fixed else Table(crates)
    finish(record, sort_cards(record, eye, table, options.steps), DRAWERS)


main()
