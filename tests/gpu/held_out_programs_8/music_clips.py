"""Text to music: an encoder, a decoder with four codebooks and guidance, and a network that turns the codes to sound.

Nothing but the sound has to leave the GPU, so there is no wait from frame to frame. A prefill step encodes two texts
and makes their first frame; it ends when the host has the filter's word that the texts are allowed. The frames that
follow are queued one after the other and only the end of the last is known, when all their codes are fetched: that
time is divided evenly among them, each a decode step. Then a step of kind other makes the sound and brings it to the
host. A request is one text; its first token is its first frame and its end that of its sound. With --ranges two clips
have "clips" around them, inside "texts", "frames" for all of them together, and "sound".
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
import random

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

WORDS, CODES, BOOKS, FRAMES, TEXT, CLIPS = 32000, 2048, 4, 160, 48, 2
WIDTH, INNER, LAYERS, HEADS = 1536, 6144, 22, 24
TEXT_WIDTH, TEXT_LAYERS, TEXT_HEADS = 1024, 12, 16
CHANNELS, HOP, GUIDANCE = 768, (8, 5, 4), 3.0
MADE = dict(device="cuda", dtype=torch.float16)
ROWS = 2 * CLIPS  # each clip with its text and without it


def split_heads(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def attention(q, k, v, hidden=None):
    scores = (q @ k.transpose(2, 3)).float() * q.shape[-1] ** -0.5
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    return (scores.softmax(-1).to(q.dtype) @ v).transpose(1, 2).flatten(2)


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(TEXT_WIDTH, **MADE), nn.LayerNorm(TEXT_WIDTH, **MADE)
        self.qkv, self.out = nn.Linear(TEXT_WIDTH, 3 * TEXT_WIDTH, **MADE), nn.Linear(TEXT_WIDTH, TEXT_WIDTH, **MADE)
        self.up = nn.Linear(TEXT_WIDTH, 4 * TEXT_WIDTH, **MADE)
        self.down = nn.Linear(4 * TEXT_WIDTH, TEXT_WIDTH, **MADE)

    def forward(self, x, hidden):
        q, k, v = (split_heads(part, TEXT_HEADS) for part in self.qkv(self.before(x)).chunk(3, -1))
        x = x + self.out(attention(q, k, v, hidden))
        return x + self.down(F.relu(self.up(self.between(x))))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, **MADE) for _ in range(3))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False, **MADE)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False, **MADE)
        self.query, self.back = nn.Linear(WIDTH, WIDTH, bias=False, **MADE), nn.Linear(WIDTH, WIDTH, bias=False, **MADE)
        self.source = nn.Linear(WIDTH, 2 * WIDTH, bias=False, **MADE)
        self.up, self.down = nn.Linear(WIDTH, INNER, bias=False, **MADE), nn.Linear(INNER, WIDTH, bias=False, **MADE)
        self.keys = torch.zeros(ROWS, HEADS, FRAMES, WIDTH // HEADS, **MADE)
        self.values = torch.zeros_like(self.keys)

    def listen(self, texts):
        self.text_keys, self.text_values = (split_heads(part, HEADS) for part in self.source(texts).chunk(2, -1))

    def forward(self, x, place, hidden):
        q, k, v = (split_heads(part, HEADS) for part in self.qkv(self.norms[0](x)).chunk(3, -1))
        self.keys[:, :, place:place + 1], self.values[:, :, place:place + 1] = k, v
        x = x + self.out(attention(q, self.keys[:, :, :place + 1], self.values[:, :, :place + 1]))
        q = split_heads(self.query(self.norms[1](x)), HEADS)
        x = x + self.back(attention(q, self.text_keys, self.text_values, hidden))
        return x + self.down(F.gelu(self.up(self.norms[2](x))))


class Sound(nn.Module):
    """Codes to sound, 160 samples a frame, always over the same number of frames."""

    def __init__(self):
        super().__init__()
        made = dict(device="cuda")
        self.books = nn.Parameter(torch.randn(BOOKS, CODES, CHANNELS, **made) * 0.5)
        self.first = nn.Conv1d(CHANNELS, CHANNELS, 7, padding=3, **made)
        widths = [CHANNELS >> i for i in range(len(HOP) + 1)]
        self.ups = nn.ModuleList(nn.ConvTranspose1d(a, b, 2 * hop, stride=hop, padding=(hop + 1) // 2,
                                                    output_padding=hop % 2, **made)
                                 for a, b, hop in zip(widths, widths[1:], HOP))
        self.units = nn.ModuleList(nn.Conv1d(b, b, 3, padding=1, **made) for b in widths[1:])
        self.last = nn.Conv1d(widths[-1], 1, 7, padding=3, **made)

    def forward(self, codes):
        x = sum(self.books[i][codes[:, :, i]] for i in range(BOOKS)).transpose(1, 2)
        x = self.first(x)
        for up, unit in zip(self.ups, self.units):
            x = up(F.elu(x))
            x = x + unit(F.elu(x))
        return torch.tanh(self.last(F.elu(x)))[:, 0]


class Composer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.text_places = nn.Embedding(WORDS, TEXT_WIDTH, **MADE), nn.Embedding(TEXT, TEXT_WIDTH, **MADE)
        self.encoder = nn.ModuleList(EncoderLayer() for _ in range(TEXT_LAYERS))
        self.text_norm, self.widen = nn.LayerNorm(TEXT_WIDTH, **MADE), nn.Linear(TEXT_WIDTH, WIDTH, **MADE)
        self.filter = nn.Linear(TEXT_WIDTH, 1, **MADE)
        # One number more than there are codes: nothing yet.
        self.codes = nn.ModuleList(nn.Embedding(CODES + 1, WIDTH, **MADE) for _ in range(BOOKS))
        self.places = nn.Embedding(FRAMES, WIDTH, **MADE)
        self.decoder = nn.ModuleList(DecoderLayer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, **MADE)
        self.heads = nn.Linear(WIDTH, BOOKS * CODES, bias=False, **MADE)
        self.sound = Sound()
        # What was drawn, frame by frame, with room before the first one.
        self.drawn = torch.full((CLIPS, FRAMES + 1, BOOKS), CODES, device="cuda")
        self.books = torch.arange(BOOKS, device="cuda")
        self.pinned = torch.zeros(CLIPS, FRAMES * math.prod(HOP)).pin_memory()

    def read(self, ids, lengths):
        """Encodes the texts and says, still on the GPU, how bad they are."""
        count = ids.shape[1]
        hidden = (torch.arange(count, device="cuda") >= lengths[:, None])[:, None, None]
        x = self.words(ids) + self.text_places.weight[:count]
        for layer in self.encoder:
            x = layer(x, hidden)
        x = self.text_norm(x)
        wide = self.widen(x)
        for layer in self.decoder:
            layer.listen(torch.cat((wide, torch.zeros_like(wide))))
        self.hidden = torch.cat((hidden, hidden))
        self.drawn.fill_(CODES)
        kept = (~hidden[:, 0, 0])[:, :, None]
        return torch.tanh(self.filter((x * kept).sum(1) / lengths[:, None]).float()).max()

    def frame(self, place):
        """Draws frame `place` from the one before. Book b lags b frames behind, so its first b codes are nothing."""
        before = self.drawn[:, place].repeat(2, 1)
        x = sum(self.codes[i](before[:, i]) for i in range(BOOKS)) + self.places.weight[place]
        x = x[:, None]
        for layer in self.decoder:
            x = layer(x, place, self.hidden)
        with_text, without = self.heads(self.norm(x[:, 0])).float().view(2, CLIPS, BOOKS, CODES)
        self.logits = without + GUIDANCE * (with_text - without)
        values, numbers = self.logits.topk(250, -1)
        chosen = (values.softmax(-1) / torch.empty_like(values).exponential_()).argmax(-1, keepdim=True)
        drawn = numbers.gather(-1, chosen)[..., 0]
        self.drawn[:, place + 1] = torch.where(self.books > place, CODES, drawn)

    def play(self):
        """The sound of all frames, with silence's codes where there are none, into pinned memory."""
        lined_up = torch.stack([self.drawn[:, 1:, i].roll(-i, 1) for i in range(BOOKS)], -1)
        sound = self.sound(lined_up.clamp(max=CODES - 1))
        self.pinned.copy_(sound, non_blocking=True)
        torch.cuda.current_stream().synchronize()


def compose(model, record, mark, texts, frames, warm_up=False):
    """Two clips of one frame and `frames` more."""
    with mark("clips"):
        start = now()
        with mark("texts"):
            longest = max(map(len, texts))
            ids = torch.tensor([text + [0] * (longest - len(text)) for text in texts]).pin_memory()
            lengths = torch.tensor([len(text) for text in texts]).pin_memory()
            worst = model.read(ids.to("cuda", non_blocking=True), lengths.to("cuda", non_blocking=True))
            model.frame(0)  # queued before the host asks, so that the GPU has work meanwhile
            allowed = worst.item() < 1.5
        first = now()
        record.step("prefill", start, first, sum(map(len, texts)), CLIPS, warm_up)
        assert allowed
        begin = now()
        with mark("frames"):
            for place in range(1, frames + 1):
                model.frame(place)
            codes = model.drawn[:, 1:frames + 2].tolist()
        end = now()
        record.divided("decode", begin, end, frames, CLIPS, CLIPS, warm_up)
        begin = now()
        with mark("sound"):
            model.play()
        end = now()
        record.step("other", begin, end, CLIPS * (frames + 1), CLIPS, warm_up)
    for text, clip in zip(texts, codes):
        record.request(start, first, end, len(text), frames + 1, warm_up)
        assert len(clip) == frames + 1
        assert all(0 <= code <= CODES and (code < CODES) == (place >= book)
                   for place, frame in enumerate(clip) for book, code in enumerate(frame))
    assert bool(torch.isfinite(model.logits).all()) and bool(torch.isfinite(model.pinned).all())


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance = random.Random(options.seed)
    model = Composer().eval()
    torch.cuda.synchronize()

    def texts():
        return [[chance.randrange(WORDS) for _ in range(chance.randrange(8, TEXT + 1))] for _ in range(CLIPS)]

    compose(model, record, mark, texts(), 6, warm_up=True)
    for frames in split(options.steps, 2 + options.steps // 60):
        compose(model, record, mark, texts(), frames)
    record.finish()


main()
