"""Text to speech from a cold start: a large decoder for each frame, a small one for its eight codes, a vocoder every four frames.

A prefill step takes in a text and yields the first frame, a decode step yields one more: the large decoder once, then the small one
eight times, without a wait until the eight codes are read. A step of another kind is the vocoder's, from the upload of the last
codes until their sound is on the host. A request is one text; its first token is its first frame, its end that of its last sound.
Tokens are those of the text in prefill, frames elsewhere. The small decoder and the vocoder wait in host memory until they are first
called. With --ranges there are "text", "frame" and "sound", and within the first two "small decoder".
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH = 32000, 192
CODEBOOKS, CODES = 8, 2048
WIDTH, SMALL = 2048, 1024
CHUNK, SEEN = 4, 8  # frames that are made to sound at once, and frames that the vocoder looks at to do so
STRIDES = (8, 6, 5, 4, 2)
SAMPLES = 8 * 6 * 5 * 4 * 2  # a frame has, at 24 kHz
MADE = dict(device="cuda", dtype=torch.bfloat16)


class Layer(nn.Module):
    def __init__(self, width, inner, heads, kv_heads, size, length):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, size
        self.before, self.between = nn.RMSNorm(width, 1e-5, **MADE), nn.RMSNorm(width, 1e-5, **MADE)
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * size, bias=False, **MADE)
        self.out = nn.Linear(heads * size, width, bias=False, **MADE)
        self.gate, self.up = nn.Linear(width, inner, bias=False, **MADE), nn.Linear(width, inner, bias=False, **MADE)
        self.down = nn.Linear(inner, width, bias=False, **MADE)
        self.register_buffer("keys", torch.zeros(kv_heads, length, size, **MADE))
        self.register_buffer("values", torch.zeros(kv_heads, length, size, **MADE))

    def forward(self, x, start, cos, sin, later):
        count, end, group = x.shape[0], start + x.shape[0], self.heads // self.kv_heads
        qkv = self.qkv(self.before(x)).view(count, -1, self.size).transpose(0, 1)
        turning, v = qkv.split((self.heads + self.kv_heads, self.kv_heads), 0)
        a, b = turning.chunk(2, -1)
        q, k = torch.cat((a * cos - b * sin, b * cos + a * sin), -1).split((self.heads, self.kv_heads), 0)
        self.keys[:, start:end] = k
        self.values[:, start:end] = v
        scores = q.reshape(self.kv_heads, group * count, self.size) @ self.keys[:, :end].transpose(1, 2)
        scores = scores.view(self.kv_heads, group, count, end).float() * self.size ** -0.5
        if later is not None:
            scores = scores.masked_fill(later, float("-inf"))
        shares = scores.softmax(-1).to(x.dtype).view(self.kv_heads, group * count, end)
        x = x + self.out((shares @ self.values[:, :end]).view(self.heads, count, self.size).transpose(0, 1).reshape(count, -1))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, width, inner, layers, heads, kv_heads, size, length):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, inner, heads, kv_heads, size, length) for _ in range(layers))
        self.last = nn.RMSNorm(width, 1e-5, **MADE)
        angle = torch.outer(torch.arange(length, device="cuda").float(), 2e-6 ** (torch.arange(0, size, 2, device="cuda") / size))
        self.register_buffer("cos", angle.cos().bfloat16())
        self.register_buffer("sin", angle.sin().bfloat16())

    def forward(self, x, start):
        count, end = x.shape[0], start + x.shape[0]
        later = torch.ones(count, end, dtype=torch.bool, device=x.device).triu(start + 1) if count > 1 else None
        for layer in self.layers:
            x = layer(x, start, self.cos[start:end], self.sin[start:end], later)
        return self.last(x[-1:])


class Small(nn.Module):
    """Draws the eight codes of a frame, one after the other, each from the frame and the codes before it."""

    def __init__(self):
        super().__init__()
        self.decoder = Decoder(SMALL, 4096, 3, 8, 2, 128, CODEBOOKS)
        self.project = nn.Linear(WIDTH, SMALL, bias=False, **MADE)
        self.codes = nn.Embedding((CODEBOOKS - 1) * CODES, SMALL, **MADE)
        self.heads = nn.ModuleList(nn.Linear(SMALL, CODES, bias=False, **MADE) for _ in range(CODEBOOKS))

    def forward(self, frame):
        drawn, base = [], self.project(frame)
        for i, head in enumerate(self.heads):
            x = base + self.codes(drawn[-1] + (i - 1) * CODES) if drawn else base
            likeliest, which = (head(self.decoder(x, i)).float() / 0.9).topk(50)
            chances = likeliest.softmax(-1)
            drawn.append(which.gather(1, (chances / torch.empty_like(chances).exponential_()).argmax(-1, keepdim=True))[:, 0])
        return torch.cat(drawn)


class Rise(nn.Module):
    """`stride` times as many places with half the channels, and a residual unit behind."""

    def __init__(self, channels, stride):
        super().__init__()
        half = channels // 2
        self.stride = stride
        self.wider = nn.ConvTranspose1d(channels, half, 2 * stride, stride, stride // 2, device="cuda")
        self.first, self.second = nn.Conv1d(half, half, 3, padding=1, device="cuda"), nn.Conv1d(half, half, 1, device="cuda")

    def forward(self, x):
        x = self.wider(F.elu(x))[..., :x.shape[-1] * self.stride]  # odd strides come out one too long
        return x + self.second(F.elu(self.first(F.elu(x))))


class Vocoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(CODEBOOKS * CODES, 512, device="cuda")
        self.enter = nn.Conv1d(512, 1024, 7, padding=3, device="cuda")
        self.rises = nn.ModuleList(Rise(1024 >> i, stride) for i, stride in enumerate(STRIDES))
        self.leave = nn.Conv1d(1024 >> len(STRIDES), 1, 7, padding=3, device="cuda")

    def forward(self, codes):
        x = self.enter(self.codes(codes).sum(1).t()[None])
        for rise in self.rises:
            x = rise(x)
        return torch.tanh(self.leave(F.elu(x)))[0, 0, -CHUNK * SAMPLES:]


class Late:
    """A module that stays in host memory until it is first called."""

    def __init__(self, module):
        self.module, self.there = module.cpu(), False

    def __call__(self, *given):
        if not self.there:
            self.module.cuda()
            self.there = True
        return self.module(*given)


class Speaker:
    def __init__(self, mark):
        self.mark = mark
        self.words = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.codes = nn.Embedding(CODEBOOKS * CODES, WIDTH, **MADE)
        self.books = torch.arange(CODEBOOKS, device="cuda") * CODES
        self.large = Decoder(WIDTH, 8192, 16, 32, 8, 64, LENGTH)
        self.small, self.vocoder = Late(Small()), Late(Vocoder())
        self.sound = torch.zeros(CHUNK * SAMPLES, pin_memory=True)

    def frame(self, x, start):
        """The codes of the next frame, on the GPU and as a list."""
        x = self.large(x, start)
        with self.mark("small decoder"):
            codes = self.small(x)
        return codes, codes.tolist()

    def speak(self, record, words, steps, cold):
        sounds, sounded, start = [], 0, now()
        with self.mark("text"):
            codes, read = self.frame(self.words(torch.tensor(words).to("cuda")), 0)
        frames, first = [read], now()
        record.step("prefill", start, first, len(words), 1, cold)
        for i in range(steps):
            begin = now()
            with self.mark("frame"):
                codes, read = self.frame(self.codes(codes + self.books).sum(0, keepdim=True), len(words) + i)
                frames.append(read)
            record.step("decode", begin, now(), 1, 1, cold and i == 0)
            if len(frames) % CHUNK == 0 or i == steps - 1:
                begin = now()
                with self.mark("sound"):
                    seen = ([[0] * CODEBOOKS] * SEEN + frames)[-SEEN:]  # before the first frame there is silence
                    self.sound.copy_(self.vocoder(torch.tensor(seen).to("cuda") + self.books), non_blocking=True)
                    torch.cuda.current_stream().synchronize()
                end = now()
                record.step("other", begin, end, len(frames) - sounded, 1, cold and not sounded)
                sounds.append(self.sound[-(len(frames) - sounded) * SAMPLES:].clone())
                sounded = len(frames)
        record.request(start, first, end, len(words), len(frames), cold)
        sound = torch.cat(sounds)
        assert sound.numel() == len(frames) * SAMPLES and bool(torch.isfinite(sound).all())
        assert all(0 <= code < CODES for frame in frames for code in frame)
        return (sound * 32767).to(torch.int16)  # as a file would have it


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance, record = random.Random(options.seed), Record()
    speaker = Speaker(ranges(options.ranges))
    for i, steps in enumerate(split(options.steps, max(8, min(25, options.steps // 6)))):
        speaker.speak(record, [chance.randrange(VOCABULARY) for _ in range(chance.randrange(72, 97))], steps, i == 0)
    record.finish()


main()
