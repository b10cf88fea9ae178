"""A small model in the manner of Llama (LayerNorm in place of RMSNorm, since it is one kernel in every PyTorch), its
cache of keys and values, and a batch of texts that it continues."""
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Shape:
    width: int = 2048
    inner: int = 5632
    layers: int = 12
    heads: int = 16
    kv_heads: int = 4
    size: int = 128
    vocabulary: int = 32000
    room: int = 512  # the longest text
    batch: int = 1
    dtype: torch.dtype = torch.bfloat16
    device: str = "cuda"

    def made(self):
        return dict(device=self.device, dtype=self.dtype)

    def linear(self, inputs, outputs):
        return nn.Linear(inputs, outputs, bias=False, **self.made())

    @property
    def group(self):
        """Queries that share a head of keys."""
        return self.heads // self.kv_heads


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.first = nn.Parameter(torch.ones(shape.width, **shape.made()))
        self.second = nn.Parameter(torch.ones(shape.width, **shape.made()))
        self.qkv = shape.linear(shape.width, (shape.heads + 2 * shape.kv_heads) * shape.size)
        self.out = shape.linear(shape.heads * shape.size, shape.width)
        self.gate_up = shape.linear(shape.width, 2 * shape.inner)
        self.down = shape.linear(shape.inner, shape.width)

    def norm(self, x, weight):
        return F.layer_norm(x, weight.shape, weight)

    def split(self, x, cos, sin):
        """Queries, keys and values, each (batch, heads, count, size), the first two turned by their places."""
        heads, kv_heads, size = self.shape.heads, self.shape.kv_heads, self.shape.size
        both = self.qkv(self.norm(x, self.first)).view(x.shape[0], x.shape[1], heads + 2 * kv_heads, size)
        turning, value = both.transpose(1, 2).split((heads + kv_heads, kv_heads), 1)
        a, b = turning.chunk(2, -1)
        query, key = torch.addcmul(turning * cos, torch.cat((b, a), -1), sin).split((heads, kv_heads), 1)
        return query, key, value

    def mlp(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)

    def close(self, x, heads):
        """What follows the attention; `heads` is (batch, count, heads * size)."""
        x = x + self.out(heads)
        return x + self.mlp(self.norm(x, self.second))

    def whole(self, x, cos, sin, keep=None):
        """A prompt from its first token on; `keep` is given its keys and values."""
        query, key, value = self.split(x, cos, sin)
        if keep is not None:
            keep(key, value)
        if self.shape.group > 1:
            key, value = key.repeat_interleave(self.shape.group, 1), value.repeat_interleave(self.shape.group, 1)
        heads = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.close(x, heads.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))

    def look(self, query, keys, values, mask=None):
        """Attention of one new token of each text to what stands in the cache: (batch, 1, heads * size)."""
        # The queries that share a head of keys stand where those of one text would.
        query = query.reshape(query.shape[0], self.shape.kv_heads, self.shape.group, self.shape.size)
        heads = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        return heads.reshape(query.shape[0], 1, -1)

    def next(self, x, position, places, keys, values):
        """One new token of each text at `position`, a tensor of one number."""
        cos, sin, mask = places
        query, key, value = self.split(x, cos, sin)
        keys.index_copy_(2, position, key)
        values.index_copy_(2, position, value)
        return self.close(x, self.look(query, keys, values, mask))


class Model(nn.Module):
    def __init__(self, shape, block=Block):
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width, **shape.made())
        self.blocks = nn.ModuleList(block(shape) for _ in range(shape.layers))
        self.last = nn.Parameter(torch.ones(shape.width, **shape.made()))
        self.head = shape.linear(shape.width, shape.vocabulary)
        speed = 1e-4 ** (torch.arange(0, shape.size, 2, device=shape.device) / shape.size)
        angle = torch.outer(torch.arange(shape.room, device=shape.device).float(), speed)
        self.cos = torch.cat((angle.cos(), angle.cos()), -1).to(shape.dtype)
        self.sin = torch.cat((-angle.sin(), angle.sin()), -1).to(shape.dtype)
        self.columns = torch.arange(shape.room, device=shape.device)
        self.eval()

    def cache(self):
        """Empty keys and values, (layers, batch, kv_heads, room, size)."""
        shape = self.shape
        sizes = (shape.layers, shape.batch, shape.kv_heads, shape.room, shape.size)
        return torch.zeros(sizes, **shape.made()), torch.zeros(sizes, **shape.made())

    def hidden(self, ids, cache=None):
        """What the layers make of all tokens of the prompts, whose keys and values go to the front of the cache."""
        count = ids.shape[1]
        x = self.embedding(ids)
        for i, block in enumerate(self.blocks):
            def keep(key, value, i=i):
                cache[0][i][:, :, :count] = key
                cache[1][i][:, :, :count] = value
            x = block.whole(x, self.cos[:count], self.sin[:count], keep if cache else None)
        return x

    def logits(self, x):
        """Those behind the last token of each text."""
        return self.head(self.blocks[0].norm(x[:, -1], self.last))

    def places(self, position):
        """What the layers need to know of the place `position`, a tensor of one number."""
        mask = torch.zeros(1, 1, self.shape.group, self.shape.room, **self.shape.made())
        return self.cos[position], self.sin[position], mask.masked_fill(self.columns > position, float("-inf"))

    def next(self, tokens, position, cache):
        places = self.places(position)
        x = self.embedding(tokens)
        for block, keys, values in zip(self.blocks, *cache):
            x = block.next(x, position, places, keys, values)
        return self.logits(x)


def greedy(logits):
    return logits.argmax(-1, keepdim=True)


def replayed(step, stream=None):
    """`step` captured as a CUDA graph on `stream` (a new one by default): the function that replays it.

    Graphs that run at the same time need streams of their own here, since the libraries' workspace belongs to the
    stream of the capture.
    """
    stream = stream or torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    return graph.replay


class Decoder:
    """A batch of texts of one length; `choose` makes tokens of logits."""

    def __init__(self, model, choose=greedy, graphed=True):
        self.model, self.choose, self.cache = model, choose, model.cache()
        self.tokens = torch.zeros(model.shape.batch, 1, dtype=torch.long, device="cuda")
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")
        self.advance = replayed(self.step) if graphed else self.step

    def step(self):
        self.tokens.copy_(self.choose(self.model.next(self.tokens, self.position, self.cache)))
        self.position.add_(1)

    def words(self):
        return self.tokens[:, 0].tolist()

    def start(self, prompt):
        self.tokens.copy_(self.choose(self.model.logits(self.model.hidden(prompt, self.cache))))
        self.position.fill_(prompt.shape[1])
        return self.words()

    def following(self, i):
        self.advance()
        return self.words()
