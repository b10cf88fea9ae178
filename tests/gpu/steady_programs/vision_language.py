"""A vision-language model: each request has an image of its own size, goes through the tower, the projector, prefill and decode."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from contract import Record, arguments, now, ranges, split

PATCH, GRID = 14, 32  # pixels of a patch's side, patches of the learned position table's side
V_LAYERS, V_HIDDEN, V_HEADS = 16, 1024, 16
LAYERS, HIDDEN, HEADS, INNER, VOCABULARY = 12, 1536, 12, 4096, 32000
IMAGES = ((336, 336), (560, 420), (224, 448), (672, 504), (336, 336))  # height, width; the last shows the first again
QUESTION = 24


class VisionBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(V_HIDDEN), nn.LayerNorm(V_HIDDEN)
        self.qkv, self.out = nn.Linear(V_HIDDEN, 3 * V_HIDDEN), nn.Linear(V_HIDDEN, V_HIDDEN)
        self.mlp = nn.Sequential(nn.Linear(V_HIDDEN, 4 * V_HIDDEN), nn.GELU(), nn.Linear(4 * V_HIDDEN, V_HIDDEN))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).reshape(1, -1, 3, V_HEADS, V_HIDDEN // V_HEADS).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, V_HIDDEN, PATCH, stride=PATCH)
        self.table = nn.Parameter(torch.randn(1, V_HIDDEN, GRID, GRID) * 0.02)
        self.blocks = nn.Sequential(*(VisionBlock() for _ in range(V_LAYERS)))
        self.norm = nn.LayerNorm(V_HIDDEN)
        self.projector = nn.Sequential(nn.Linear(4 * V_HIDDEN, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN))

    def forward(self, pixels):
        x = self.patches(pixels)
        height, width = x.shape[2:]
        table = F.interpolate(self.table.float(), size=(height, width), mode="bilinear", align_corners=False)
        x = self.norm(self.blocks((x + table.to(x.dtype)).flatten(2).transpose(1, 2)))
        x = x.reshape(1, height // 2, 2, width // 2, 2, V_HIDDEN).permute(0, 1, 3, 2, 4, 5)  # four patches become one token
        return self.projector(x.reshape(1, height * width // 4, 4 * V_HIDDEN))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN, eps=1e-6), nn.RMSNorm(HIDDEN, eps=1e-6)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate, self.up, self.down = nn.Linear(HIDDEN, INNER, bias=False), nn.Linear(HIDDEN, INNER, bias=False), nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x, past):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, HIDDEN // HEADS).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), (k, v)


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(2048, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(HIDDEN, eps=1e-6), nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, x, past):
        start = past[0][0].shape[2] if past else 0
        x = x + self.places.weight[start:start + x.shape[1]]
        present = []
        for block, kv in zip(self.blocks, past or [None] * LAYERS):
            x, kv = block(x, kv)
            present.append(kv)
        return self.head(self.norm(x[:, -1:])).argmax(-1), present


def build():
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        tower, language = Tower().eval(), Language().eval()
    torch.set_default_dtype(torch.float32)
    return tower, language


@torch.inference_mode()
def main():
    options = arguments(__doc__)
    mark = ranges(options.ranges)
    record = Record()
    torch.manual_seed(options.seed)
    tower, language = build()
    mean, deviation = (torch.tensor(x, device="cuda").view(1, 3, 1, 1) for x in ((0.48, 0.46, 0.41), (0.27, 0.26, 0.28)))
    images = {size: torch.randint(0, 256, (1, 3, *size), dtype=torch.uint8) for size in dict.fromkeys(IMAGES)}
    question = torch.randint(0, VOCABULARY, (1, QUESTION))

    def answer(size, count, warm_up):
        begin = now()
        with mark("look at the image"):
            pixels = (images[size].cuda().float() / 255 - mean) / deviation
            seen = tower(pixels.bfloat16())
            if not torch.isfinite(seen).all().item():  # a broken image must not reach the language model
                raise ValueError("the tower gave no numbers")
        looked = now()
        patches = size[0] // PATCH * (size[1] // PATCH)
        record.step("vision", begin, looked, patches, 1, warm_up)
        with mark("read the question"):
            prompt = torch.cat((seen, language.tokens(question.cuda())), dim=1)
            token, past = language(prompt, None)
            tokens = [token.item()]
        first = end = now()
        record.step("prefill", looked, first, prompt.shape[1], 1, warm_up)
        for _ in range(count):
            start = now()
            with mark("answer"):
                token, past = language(language.tokens(token), past)
                tokens.append(token.item())
            end = now()
            record.step("decode", start, end, 1, 1, warm_up)
        record.request(begin, first, end, prompt.shape[1], len(tokens), warm_up)
        assert all(0 <= token < VOCABULARY for token in tokens)
        return tokens

    with mark("warm-up request"):
        answer(IMAGES[0], 4, warm_up=True)
    answers = [answer(size, count, warm_up=False) for size, count in zip(IMAGES, split(options.steps, len(IMAGES)))]
    assert answers[-1][:len(answers[0])] == answers[0], "the same image and question gave another answer"
    record.finish()


main()
