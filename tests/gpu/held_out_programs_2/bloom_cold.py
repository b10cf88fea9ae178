"""A text generator in the manner of BLOOM that starts at once, with no warm-up: ALiBi, top-k sampling, one text after the other."""
import os, random, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH = 40000, 512
LAYERS, HEADS, SIZE, INNER = 24, 16, 128, 8192
WIDTH = HEADS * SIZE
TOP, TEMPERATURE = 40, 0.8
PROMPTS = (120, 45, 210, 77, 160, 30)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x, keys, values, past, alibi, hidden):
        count = x.shape[0]
        end = past + count
        q, k, v = self.qkv(self.norm_1(x)).view(count, 3, HEADS, SIZE).permute(1, 2, 0, 3).unbind(0)
        keys[:, past:end] = k
        values[:, past:end] = v
        scores = torch.baddbmm(alibi[:, :, :end], q, keys[:, :end].transpose(1, 2), alpha=SIZE ** -0.5)
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(torch.float16)
        y = torch.bmm(weights, values[:, :end]).transpose(0, 1).reshape(count, WIDTH)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Bloom(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.embedding_norm = nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        slopes = 2.0 ** (-8.0 * torch.arange(1, HEADS + 1) / HEADS)
        self.register_buffer("alibi", slopes[:, None, None] * torch.arange(LENGTH))

    def forward(self, ids, cache, past):
        """Logits after the last of `ids`, the first of which is at `past`."""
        count = ids.shape[0]
        hidden = torch.ones(count, past + count, dtype=torch.bool, device="cuda").triu(past + 1) if count > 1 else None
        x = self.embedding_norm(self.embedding(ids))
        for block, (keys, values) in zip(self.blocks, cache):
            x = block(x, keys, values, past, self.alibi, hidden)
        return F.linear(self.norm(x[-1]), self.embedding.weight)


def sample(logits):
    values, candidates = logits.float().topk(TOP)
    chosen = torch.multinomial(torch.softmax(values / TEMPERATURE, dim=-1), 1)
    return candidates[chosen].item()


def make_words(rng):
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    return ["".join(rng.choices(syllables, k=rng.randint(1, 4))) + rng.choice(("", " ", " ", ", ")) for _ in range(VOCABULARY)]


@torch.inference_mode()
def generate(model, cache, words, prompt, steps, record, mark, cold):
    text = []
    start = now()
    with mark("read prompt"):
        logits = model(torch.tensor(prompt, device="cuda"), cache, 0)
        token = sample(logits)
    first = end = now()
    record.step("prefill", start, first, len(prompt), 1, cold)
    tokens = [token]
    text.append(words[token])
    for i in range(steps):
        step = now()
        with mark("next word"):
            logits = model(torch.tensor([token], device="cuda"), cache, len(prompt) + i)
            token = sample(logits)
        end = now()
        record.step("decode", step, end, 1, 1, cold and i == 0)
        tokens.append(token)
        text.append(words[token])
    record.request(start, first, end, len(prompt), 1 + steps, cold)
    assert all(0 <= token < VOCABULARY for token in tokens)
    assert torch.isfinite(logits).all().item()
    return "".join(text).strip()


def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    with torch.device("cuda"):
        model = Bloom().to(torch.float16).eval()
        cache = [(torch.zeros(HEADS, LENGTH, SIZE, dtype=torch.float16), torch.zeros(HEADS, LENGTH, SIZE, dtype=torch.float16))
                 for _ in range(LAYERS)]
    words = make_words(rng)
    texts = []
    for i, (length, steps) in enumerate(zip(PROMPTS, split(args.steps, len(PROMPTS)))):
        prompt = [rng.randrange(VOCABULARY) for _ in range(length)]
        texts.append(generate(model, cache, words, prompt, steps, record, mark, cold=i == 0))
    assert all(texts)
    record.finish()


if __name__ == "__main__":
    main()
