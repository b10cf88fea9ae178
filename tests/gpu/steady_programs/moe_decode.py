"""A mixture of experts as first written: the router's choice is read on the host in each layer, each chosen expert runs by itself. No warm-up."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from contract import Record, arguments, now, ranges, split

LAYERS, HIDDEN, HEADS, EXPERTS, CHOSEN, INNER, VOCABULARY = 8, 1024, 8, 8, 2, 2048, 32000
HEAD = HIDDEN // HEADS
BATCH, PROMPT = 6, 80


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3 = nn.Linear(HIDDEN, INNER, bias=False), nn.Linear(HIDDEN, INNER, bias=False)
        self.w2 = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, x):
        flat = x.reshape(-1, HIDDEN)
        weights, chosen = self.router(flat).float().softmax(-1).topk(CHOSEN, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        hits = F.one_hot(chosen, EXPERTS).permute(2, 0, 1)
        out = torch.zeros_like(flat)
        for expert in hits.sum((1, 2)).nonzero().flatten().tolist():
            rows, rank = hits[expert].nonzero(as_tuple=True)
            out.index_add_(0, rows, self.experts[expert](flat[rows]) * weights[rows, rank, None])
        return out.view_as(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN, eps=1e-5), nn.RMSNorm(HIDDEN, eps=1e-5)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.mixture = Mixture()

    def forward(self, x, keys, values, start):
        batch, length, _ = x.shape
        q, k, v = (y.view(batch, length, HEADS, HEAD).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        keys[:, :, start:start + length], values[:, :, start:start + length] = k, v
        y = F.scaled_dot_product_attention(q, keys[:, :, :start + length], values[:, :, :start + length], is_causal=length > 1)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, HIDDEN))
        return x + self.mixture(self.norm2(x))


class Model(nn.Module):
    def __init__(self, room):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(room, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(HIDDEN, eps=1e-5), nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.register_buffer("cache", torch.zeros(LAYERS, 2, BATCH, HEADS, room, HEAD))

    def forward(self, ids, start):
        x = self.tokens(ids) + self.places.weight[start:start + ids.shape[1]]
        for block, (keys, values) in zip(self.blocks, self.cache):
            x = block(x, keys, values, start)
        return self.head(self.norm(x[:, -1])).argmax(-1, keepdim=True)


def build(room):
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Model(room).eval()
    torch.set_default_dtype(torch.float32)
    return model


@torch.inference_mode()
def main():
    options = arguments(__doc__)
    mark = ranges(options.ranges)
    record = Record()
    torch.manual_seed(options.seed)
    model = build(PROMPT + options.steps + 1)
    prompts = torch.randint(0, VOCABULARY, (BATCH, PROMPT))
    outputs = []
    for number, count in enumerate(split(options.steps, 2)):
        cold = number == 0  # the first prefill and the first decode step of the process
        begin = now()
        with mark("prefill"):
            ids = model(prompts.cuda(), 0)
            rows = [ids.tolist()]
        first = end = now()
        record.step("prefill", begin, first, BATCH * PROMPT, BATCH, cold)
        for i in range(count):
            start = now()
            with mark("moe decode"):
                ids = model(ids, PROMPT + i)
                rows.append(ids.tolist())
            end = now()
            record.step("decode", start, end, BATCH, BATCH, cold and i == 0)
        for _ in range(BATCH):
            record.request(begin, first, end, PROMPT, 1 + count, cold)
        assert all(0 <= token < VOCABULARY for row in rows for (token,) in row) and torch.isfinite(model.cache).all()
        outputs.append(rows)
    assert outputs[1][:len(outputs[0])] == outputs[0], "the same prompts gave other tokens"
    record.finish()


main()
