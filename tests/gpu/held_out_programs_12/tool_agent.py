"""An agent: it thinks, asks a database, reads what it says, and goes on, in one request and on one cache.

A step is one pass through the model and the draw of a token, until `.item()` has it: a prefill step takes in the question, or,
in the middle of an answer, what the database has said, on top of all that is in the cache; a decode step takes in one token.
Between steps the host writes the answer down, and at a call runs SQL, makes JSON of the rows and tokenises it. A request is one
question with all of its calls. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import json
import math
import sqlite3
import zlib

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, split
from parts import MADE, SIZE, begun, on_gpu, prompt, tables, turned, word

VOCABULARY, LENGTH, REACH = 48000, 1024, 256  # of which many tokens all layers but each sixth see
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 1536, 6144, 28, 12, 4
QUESTIONS, CALLS = ((150, 220), (60, 110), (280, 360)), (1, 2, 0, 3)  # lengths of questions and how many calls, by turns


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (y * (1.0 + self.weight.float())).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, reach):
        super().__init__()
        self.reach = reach
        self.q_proj, self.o_proj = nn.Linear(WIDTH, HEADS * SIZE, bias=False), nn.Linear(HEADS * SIZE, WIDTH, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(WIDTH, KV_HEADS * SIZE, bias=False) for _ in range(2))
        self.q_norm, self.k_norm = Norm(SIZE), Norm(SIZE)
        self.keys, self.values = (torch.zeros(1, KV_HEADS, LENGTH, SIZE, **MADE) for _ in range(2))

    def forward(self, x, start, cos, sin, ago):
        count = x.shape[1]
        end = start + count
        q = turned(self.q_norm(self.q_proj(x).view(1, count, HEADS, SIZE)).transpose(1, 2), cos, sin)
        k = turned(self.k_norm(self.k_proj(x).view(1, count, KV_HEADS, SIZE)).transpose(1, 2), cos, sin)
        self.keys[:, :, start:end] = k
        self.values[:, :, start:end] = self.v_proj(x).view(1, count, KV_HEADS, SIZE).transpose(1, 2)
        begin = max(0, start - self.reach + 1)
        keys = self.keys[:, :, begin:end].repeat_interleave(HEADS // KV_HEADS, 1)
        values = self.values[:, :, begin:end].repeat_interleave(HEADS // KV_HEADS, 1)
        scores = torch.matmul(q, keys.transpose(2, 3)) * SIZE ** -0.5
        if count > 1:
            ago = ago[:, begin:]
            scores = scores.masked_fill((ago < 0) | (ago >= self.reach), -math.inf)
        shares = scores.softmax(-1, dtype=torch.float32).to(x.dtype)
        return self.o_proj(torch.matmul(shares, values).transpose(1, 2).reshape(1, count, HEADS * SIZE))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.attention, self.mlp = Attention(LENGTH if index % 6 == 5 else REACH), Mlp()
        self.before_attention, self.behind_attention, self.before_mlp, self.behind_mlp = (Norm(WIDTH) for _ in range(4))

    def forward(self, x, start, cos, sin, ago):
        x = x + self.behind_attention(self.attention(self.before_attention(x), start, cos, sin, ago))
        return x + self.behind_mlp(self.mlp(self.before_mlp(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        nn.init.normal_(self.embedding.weight, std=WIDTH ** -0.5)
        self.layers, self.norm = nn.ModuleList(Layer(i) for i in range(LAYERS)), Norm(WIDTH)

    def forward(self, ids, start, cos, sin, columns):
        """The logits behind the last of `ids`, the first of which stands at `start`."""
        end = start + ids.shape[1]
        x = self.embedding(ids) * WIDTH ** 0.5
        ago = columns[start:end, None] - columns[:end] if ids.shape[1] > 1 else None
        for layer in self.layers:
            x = layer(x, start, cos[start:end], sin[start:end], ago)
        return F.linear(self.norm(x[:, -1]), self.embedding.weight).float()


class Agent:
    def __init__(self, seed):
        self.model = on_gpu(Model)
        self.cos, self.sin = tables(LENGTH, SIZE)
        self.columns = torch.arange(LENGTH, device="cuda")
        self.base = sqlite3.connect(":memory:")
        self.base.execute("create table orders (id integer primary key, customer text, item text, price integer)")
        self.base.executemany("insert into orders (customer, item, price) values (?, ?, ?)",
                              ((word(i * 7 + seed).strip(), word(i * 31).strip(), i * 37 % 1000) for i in range(20000)))

    def next(self, tokens, place):
        """The token behind these, the first of which stands at `place`."""
        logits = self.model(torch.tensor([tokens], device="cuda"), place, self.cos, self.sin, self.columns)
        self.last = 30.0 * torch.tanh(logits / 30.0)
        top = self.last.topk(64, -1)
        chosen = torch.multinomial((top.values / 0.8).softmax(-1), 1)
        return top.indices.gather(-1, chosen).item()

    def ask(self, written):
        """The tokens of what the database says."""
        name = word(zlib.crc32(written.encode()) % 256).strip()
        rows = self.base.execute("select item, count(*), sum(price) from orders where customer like ? group by item "
                                 "order by 3 desc limit 9", ("%" + name[-2:] + "%",)).fetchall()
        said = json.dumps(dict(tool="orders", customer=name, rows=[dict(item=a, count=b, sum=c) for a, b, c in rows]))
        return [zlib.crc32(said[i:i + 4].encode()) % VOCABULARY for i in range(0, len(said), 4)]


def answer(agent, record, question, stretches, warm_up=False):
    """`stretches`: how many decode steps there are before the first call, between calls, and behind the last one."""
    place, given, end, texts, written = 0, question, now(), [], ""
    start = first = end
    for number, steps in enumerate(stretches):
        if number:
            given = [token] + agent.ask(written)  # the token that calls is not in the cache yet
        begin = start if number == 0 else now()
        token = agent.next(given, place)
        end = now()
        record.step("prefill", begin, end, len(given), 1, warm_up)
        first = first if number else end
        place += len(given)
        texts.append(token)
        written += word(token)
        for _ in range(steps):
            begin = now()
            token = agent.next([token], place)
            end = now()
            record.step("decode", begin, end, 1, 1, warm_up)
            place += 1
            texts.append(token)
            written += word(token)
    record.request(start, first, end, len(question), len(texts), warm_up)
    assert all(0 <= token < VOCABULARY for token in texts) and place <= LENGTH and bool(torch.isfinite(agent.last).all())


def main():
    options = arguments(__doc__)
    record = Record()
    chance, agent = begun(options.seed), Agent(options.seed)
    torch.cuda.synchronize()
    answer(agent, record, prompt(chance, VOCABULARY, 128), [3, 2], warm_up=True)
    for number, steps in enumerate(split(options.steps, max(3, min(25, options.steps // 8)))):
        question = prompt(chance, VOCABULARY, chance.randrange(*QUESTIONS[number % len(QUESTIONS)]))
        answer(agent, record, question, split(steps, 1 + CALLS[number % len(CALLS)]))
    record.finish()


main()
