"""The first thing everybody writes: a llama-like model in eager mode, a KV cache, greedy decoding, one .item() a token."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from contract import Record, arguments, now, ranges, split

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, INNER, VOCABULARY = 16, 1536, 12, 4, 128, 4096, 32000
PROMPT = 192


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        y = x.float()
        return self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(HIDDEN, HEADS * HEAD, bias=False)
        self.k = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.v = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.o = nn.Linear(HEADS * HEAD, HIDDEN, bias=False)

    def forward(self, x, cos, sin, cache, start):
        batch, length, _ = x.shape
        q = rotate(self.q(x).view(batch, length, HEADS, HEAD).transpose(1, 2), cos, sin)
        k = rotate(self.k(x).view(batch, length, KV_HEADS, HEAD).transpose(1, 2), cos, sin)
        v = self.v(x).view(batch, length, KV_HEADS, HEAD).transpose(1, 2)
        cache[0][:, :, start:start + length] = k
        cache[1][:, :, start:start + length] = v
        k = cache[0][:, :, :start + length].repeat_interleave(HEADS // KV_HEADS, dim=1)
        v = cache[1][:, :, :start + length].repeat_interleave(HEADS // KV_HEADS, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        return self.o(y.transpose(1, 2).reshape(batch, length, HEADS * HEAD))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.attention, self.before_mlp = Norm(), Attention(), Norm()
        self.gate = nn.Linear(HIDDEN, INNER, bias=False)
        self.up = nn.Linear(HIDDEN, INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x, *rest):
        x = x + self.attention(self.before_attention(x), *rest)
        y = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, room):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = Norm()
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        angle = torch.outer(torch.arange(room).float(), 10000.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD))
        angle = torch.cat((angle, angle), dim=-1)
        self.register_buffer("cos", angle.cos().to(torch.bfloat16))
        self.register_buffer("sin", angle.sin().to(torch.bfloat16))

    def forward(self, ids, caches, start):
        end = start + ids.shape[1]
        x = self.embedding(ids)
        for block, cache in zip(self.blocks, caches):
            x = block(x, self.cos[start:end], self.sin[start:end], cache, start)
        return self.head(self.norm(x[:, -1:]))


def build(room):
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Llama(room)
        caches = [(torch.zeros(1, KV_HEADS, room, HEAD), torch.zeros(1, KV_HEADS, room, HEAD)) for _ in range(LAYERS)]
    torch.set_default_dtype(torch.float32)
    return model.eval(), caches


@torch.inference_mode()
def main():
    options = arguments(__doc__)
    mark = ranges(options.ranges)
    record = Record()
    torch.manual_seed(options.seed)
    model, caches = build(PROMPT + options.steps + 8)
    prompt = torch.randint(0, VOCABULARY, (1, PROMPT)).tolist()

    def generate(prompt, count, warm_up):
        tokens = []
        begin = now()
        with mark("prefill"):
            logits = model(torch.tensor(prompt, device="cuda"), caches, 0)
            tokens.append(logits[0, -1].argmax().item())
        first = end = now()
        record.step("prefill", begin, first, len(prompt[0]), 1, warm_up)
        position = len(prompt[0])
        for _ in range(count):
            start = now()
            with mark("decode one token"):
                logits = model(torch.tensor([[tokens[-1]]], device="cuda"), caches, position)
                tokens.append(logits[0, -1].argmax().item())
            end = now()
            record.step("decode", start, end, 1, 1, warm_up)
            position += 1
        record.request(begin, first, end, len(prompt[0]), len(tokens), warm_up)
        assert torch.isfinite(logits).all()
        return tokens

    with mark("warm-up"):
        generate([prompt[0][:8]], 1, warm_up=True)
    first, second = (generate(prompt, count, warm_up=False) for count in split(options.steps, 2))
    assert second[:len(first)] == first, "the same prompt gave other tokens"
    record.finish()


main()
