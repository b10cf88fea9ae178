"""A small model in the manner of Llama (with LayerNorm, one kernel in every PyTorch), and a batch that it continues."""
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Sizes:
    width: int = 2048
    inner: int = 5632
    layers: int = 12
    heads: int = 16
    kv_heads: int = 4
    size: int = 128
    vocabulary: int = 32000
    length: int = 512
    batch: int = 0  # 0: no cache of keys and values
    dtype: torch.dtype = torch.bfloat16

    def made(self):
        return dict(device="cuda", dtype=self.dtype)


class Layer(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        made = sizes.made()
        self.sizes = sizes
        self.before = nn.LayerNorm(sizes.width, bias=False, **made)
        self.between = nn.LayerNorm(sizes.width, bias=False, **made)
        self.qkv = nn.Linear(sizes.width, (sizes.heads + 2 * sizes.kv_heads) * sizes.size, bias=False, **made)
        self.out = nn.Linear(sizes.heads * sizes.size, sizes.width, bias=False, **made)
        self.build_mlp(sizes)
        if sizes.batch:
            room = (sizes.batch, sizes.kv_heads, sizes.length, sizes.size)
            self.register_buffer("keys", torch.zeros(room, **made), persistent=False)
            self.register_buffer("values", torch.zeros(room, **made), persistent=False)

    def build_mlp(self, sizes):
        self.gate_up = nn.Linear(sizes.width, 2 * sizes.inner, bias=False, **sizes.made())
        self.down = nn.Linear(sizes.inner, sizes.width, bias=False, **sizes.made())

    def mlp(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)

    def split(self, x, cos, sin):
        """Queries, keys and values, each (batch, heads, count, size), the first two turned by their places."""
        heads, kv_heads, size = self.sizes.heads, self.sizes.kv_heads, self.sizes.size
        both = self.qkv(self.before(x)).view(x.shape[0], x.shape[1], heads + 2 * kv_heads, size).transpose(1, 2)
        turning, value = both.split((heads + kv_heads, kv_heads), 1)
        a, b = turning.chunk(2, -1)
        query, key = torch.addcmul(turning * cos, torch.cat((b, a), -1), sin).split((heads, kv_heads), 1)
        return query, key, value

    def attend(self, query, key, value):
        """Causal attention of a prompt to itself."""
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    def keep(self, key, value):
        """Files the keys and values of a prompt."""
        if self.sizes.batch:
            self.keys[:key.shape[0], :, :key.shape[2]] = key
            self.values[:key.shape[0], :, :key.shape[2]] = value

    def end(self, x, heads):
        """What follows the attention; `heads` is (batch, count, heads * size)."""
        x = x + self.out(heads)
        return x + self.mlp(self.between(x))

    def prefill(self, x, cos, sin):
        query, key, value = self.split(x, cos, sin)
        self.keep(key, value)
        group = self.sizes.heads // self.sizes.kv_heads
        if group > 1:
            key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
        heads = self.attend(query, key, value).transpose(1, 2).reshape(x.shape[0], x.shape[1], -1)
        return self.end(x, heads)

    def decode(self, x, position, cos, sin, mask):
        query, key, value = self.split(x, cos, sin)
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        # The queries that share a head of keys stand where those of one text would.
        query = query.reshape(x.shape[0], self.sizes.kv_heads, -1, self.sizes.size)
        heads = F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=mask)
        return self.end(x, heads.reshape(x.shape[0], 1, -1))


class Model(nn.Module):
    def __init__(self, sizes, layer=Layer):
        super().__init__()
        made = sizes.made()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width, **made)
        self.layers = nn.ModuleList(layer(sizes) for _ in range(sizes.layers))
        self.last = nn.LayerNorm(sizes.width, bias=False, **made)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False, **made)
        speed = 1e-4 ** (torch.arange(0, sizes.size, 2, device="cuda") / sizes.size)
        angle = torch.outer(torch.arange(sizes.length, device="cuda").float(), speed)
        cos, sin = angle.cos(), angle.sin()
        self.register_buffer("cos", torch.cat((cos, cos), -1).to(sizes.dtype), persistent=False)
        self.register_buffer("sin", torch.cat((-sin, sin), -1).to(sizes.dtype), persistent=False)
        self.columns = torch.arange(sizes.length, device="cuda")
        self.eval()

    def hidden(self, ids):
        """What the layers make of all tokens of the prompts."""
        cos, sin = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer.prefill(x, cos, sin)
        return x

    def logits(self, x):
        """Those behind the last token of each text."""
        return self.head(self.last(x[:, -1]))

    def prefill(self, ids):
        return self.logits(self.hidden(ids))

    def places(self, position):
        """What the layers need to know of the place `position`, a tensor of one number."""
        group = self.sizes.heads // self.sizes.kv_heads
        mask = torch.zeros(1, 1, group, self.sizes.length, device="cuda", dtype=self.cos.dtype)
        mask = mask.masked_fill(self.columns > position, float("-inf"))
        return self.cos[position], self.sin[position], mask

    def decode(self, tokens, position):
        cos, sin, mask = self.places(position)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer.decode(x, position, cos, sin, mask)
        return self.logits(x)


def greedy(logits):
    return logits.argmax(-1, keepdim=True)


def replayed(step):
    """`step` captured as a CUDA graph: the function that replays it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


class Decoder:
    """A batch of texts of one length. `choose` makes tokens of logits; without it they are left in `logits` for the
    caller, who puts the next tokens into `tokens`."""

    def __init__(self, model, choose=greedy, graphed=True):
        self.model, self.choose = model, choose
        self.tokens = torch.zeros(model.sizes.batch, 1, dtype=torch.long, device="cuda")
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")
        self.logits = None
        if choose is None:
            self.logits = torch.zeros(model.sizes.batch, model.sizes.vocabulary, device="cuda", dtype=model.cos.dtype)
        self.advance = replayed(self.step) if graphed else self.step

    def accept(self, logits):
        if self.choose is None:
            self.logits.copy_(logits)
        else:
            self.tokens.copy_(self.choose(logits))

    def step(self):
        self.accept(self.model.decode(self.tokens, self.position))
        self.position.add_(1)

    def read_prompt(self, prompt):
        self.accept(self.model.prefill(prompt))
        self.position.fill_(prompt.shape[1])

    def words(self):
        return self.tokens[:, 0].tolist()

    def start(self, prompt):
        self.read_prompt(prompt)
        return self.words()

    def following(self, i):
        self.advance()
        return self.words()
