"""Answers from a collection of passages: an encoder and a search find three, a decoder reads them and answers.

Between steps the host is busy with texts, bills and a log. A step of kind other is the encoder's pass over the
question and the search, until the numbers of the passages are on the host; the prefill step is the decoder's pass
over the prompt, a decode step its pass for one token more, each until the token is on the host. A request is one
question, from its text on. With --ranges a question has a range, inside it are "search", "prompt" (on the CPU
alone), "read", and by turns "send" (on the CPU alone) and "word".
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import hashlib
import itertools
import json
import math
import random
import re
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, LONGEST, PASSAGES, FOUND = 32000, 512, 448, 200_000, 3
WIDTH, INNER, LAYERS, HEADS, KV_HEADS, SIZE = 1536, 8960, 20, 12, 2, 128
FIND_WIDTH, FIND_LAYERS, FIND_HEADS, FIND_LENGTH = 768, 12, 12, 64
GROUP = HEADS // KV_HEADS
MADE = dict(device="cuda", dtype=torch.bfloat16)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class FindLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(FIND_WIDTH, 3 * FIND_WIDTH, **MADE), nn.Linear(FIND_WIDTH, FIND_WIDTH, **MADE)
        self.up = nn.Linear(FIND_WIDTH, 4 * FIND_WIDTH, **MADE)
        self.down = nn.Linear(4 * FIND_WIDTH, FIND_WIDTH, **MADE)
        self.behind, self.last = nn.LayerNorm(FIND_WIDTH, **MADE), nn.LayerNorm(FIND_WIDTH, **MADE)

    def forward(self, x):
        batch, count, _ = x.shape
        q, k, v = self.qkv(x).view(batch, count, 3, FIND_HEADS, FIND_WIDTH // FIND_HEADS).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v)
        x = self.behind(x + self.out(heads.transpose(1, 2).reshape(batch, count, FIND_WIDTH)))
        return self.last(x + self.down(F.gelu(self.up(x))))


class Finder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, FIND_WIDTH, **MADE)
        self.places = nn.Embedding(FIND_LENGTH, FIND_WIDTH, **MADE)
        self.layers = nn.ModuleList(FindLayer() for _ in range(FIND_LAYERS))
        self.index = F.normalize(torch.randn(PASSAGES, FIND_WIDTH, **MADE), dim=-1)

    def forward(self, ids):
        """The numbers of the passages nearest to the question."""
        x = self.embedding(ids) + self.places.weight[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        question = F.normalize(x.mean(1), dim=-1)
        return F.linear(question, self.index)[0].float().topk(FOUND).indices


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH, 1e-6, **MADE), nn.RMSNorm(WIDTH, 1e-6, **MADE)
        self.query, self.key = nn.Linear(WIDTH, HEADS * SIZE, **MADE), nn.Linear(WIDTH, KV_HEADS * SIZE, **MADE)
        self.value = nn.Linear(WIDTH, KV_HEADS * SIZE, **MADE)
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False, **MADE)
        self.gate, self.up = nn.Linear(WIDTH, INNER, bias=False, **MADE), nn.Linear(WIDTH, INNER, bias=False, **MADE)
        self.down = nn.Linear(INNER, WIDTH, bias=False, **MADE)
        self.keys = torch.zeros(1, KV_HEADS, LENGTH, SIZE, **MADE)
        self.values = torch.zeros_like(self.keys)

    def forward(self, x, start, cos, sin, mask):
        _, count, _ = x.shape
        end = start + count
        y = self.before(x)
        q = turned(self.query(y).view(1, count, HEADS, SIZE).transpose(1, 2), cos, sin)
        self.keys[:, :, start:end] = turned(self.key(y).view(1, count, KV_HEADS, SIZE).transpose(1, 2), cos, sin)
        self.values[:, :, start:end] = self.value(y).view(1, count, KV_HEADS, SIZE).transpose(1, 2)
        keys, values = self.keys[:, :, None, :end], self.values[:, :, None, :end]
        scores = (q.reshape(1, KV_HEADS, GROUP, count, SIZE) @ keys.transpose(3, 4)).float() * SIZE ** -0.5
        if mask is not None:
            scores = scores + mask
        heads = (scores.softmax(-1).to(torch.bfloat16) @ values).reshape(1, HEADS, count, SIZE)
        x = x + self.out(heads.transpose(1, 2).reshape(1, count, HEADS * SIZE))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.last, self.head = nn.RMSNorm(WIDTH, 1e-6, **MADE), nn.Linear(WIDTH, VOCABULARY, bias=False, **MADE)
        speeds = 1e-6 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE)
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(), speeds)
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)

    def forward(self, ids, start):
        count = ids.shape[1]
        end = start + count
        mask = torch.full((count, end), -math.inf, device="cuda").triu(start + 1) if count > 1 else None
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, start, self.cos[start:end], self.sin[start:end], mask)
        return self.head(self.last(x[:, -1]))


class Tokenizer:
    """Byte-pair encoding in plain Python: each word's letters are joined, the pair with the lowest number first."""
    def __init__(self):
        syllables = [a + b for a in "bdfghklmnprstv" for b in "aeiou"]
        pairs, triples = (map("".join, itertools.product(syllables, repeat=many)) for many in (2, 3))
        pieces = itertools.chain("abcdefghijklmnopqrstuvwxyz", syllables, pairs, triples)
        self.pieces = list(itertools.islice(pieces, VOCABULARY))
        self.numbers = {piece: number for number, piece in enumerate(self.pieces)}

    def encode(self, text):
        numbers = []
        for word in re.findall("[a-z]+", text.lower()):
            parts = list(word)
            while len(parts) > 1:
                ranks = [self.numbers.get(a + b, VOCABULARY) for a, b in zip(parts, parts[1:])]
                best = min(ranks)
                if best == VOCABULARY:
                    break
                place = ranks.index(best)
                parts[place:place + 2] = [self.pieces[best]]
            numbers += [self.numbers[part] for part in parts]
        return numbers

    def text(self, chance, fewest, most):
        return " ".join(chance.choices(self.pieces, k=chance.randint(fewest, most)))


class Desk:
    def __init__(self, mark, record):
        self.mark, self.record, self.tokenizer = mark, record, Tokenizer()
        self.finder, self.writer = Finder().eval(), Writer().eval()
        self.log = tempfile.TemporaryFile("w+")
        self.served = 0

    def prompt(self, question, found):
        texts = [self.tokenizer.text(random.Random(number), 60, 100) for number in found]
        shown = "\n".join(f"[{i}] {text}" for i, text in enumerate(texts))
        prompt = f"Answer by the passages.\n{shown}\nQuestion: {question}\nAnswer:"
        return prompt, self.tokenizer.encode(prompt)[:LONGEST]

    def send(self, prompt, words):
        """Makes what a customer is sent for a word, with the bill, for which all is counted anew, and logs it."""
        text = " ".join(self.tokenizer.pieces[word] for word in words)
        used = [len(self.tokenizer.encode(part)) for part in (prompt, text)]
        used = dict(prompt_tokens=used[0], completion_tokens=used[1], total_tokens=sum(used))
        event = dict(id=f"answer-{self.served}", object="chat.completion.chunk", created=time.time(), usage=used,
                     choices=[dict(index=0, delta=dict(content=self.tokenizer.pieces[words[-1]]))])
        line = json.dumps(event)
        seal = hashlib.sha256((prompt + text).encode()).hexdigest()
        stopped = re.search(r"(question|passages?):|\[\d+\]", text) is not None
        self.log.write(json.dumps(dict(line=line, seal=seal, stopped=stopped, length=len(text))) + "\n")
        self.log.flush()

    def answer(self, question, steps, warm_up=False):
        mark, record, words = self.mark, self.record, []
        with mark(f"question of {len(question)} letters"):
            arrival = now()
            asked = self.tokenizer.encode(question)[:FIND_LENGTH]
            begin = now()
            with mark("search"):
                found = self.finder(torch.tensor([asked], device="cuda")).tolist()
            end = now()
            record.step("other", begin, end, len(asked), 1, warm_up)
            with mark("prompt"):
                prompt, numbers = self.prompt(question, found)
            begin = now()
            with mark("read"):
                logits = self.writer(torch.tensor([numbers], device="cuda"), 0)
                token = logits.argmax(-1, keepdim=True)
                words.append(token.item())
            first = end = now()
            record.step("prefill", begin, first, len(numbers), 1, warm_up)
            with mark("send"):
                self.send(prompt, words)
            for i in range(steps):
                begin = now()
                with mark("word"):
                    logits = self.writer(token, len(numbers) + i)
                    token = logits.argmax(-1, keepdim=True)
                    words.append(token.item())
                end = now()
                record.step("decode", begin, end, 1, 1, warm_up)
                with mark("send"):
                    self.send(prompt, words)
        self.served += 1
        record.request(arrival, first, end, len(numbers), len(words), warm_up)
        assert all(0 <= number < PASSAGES for number in found) and all(0 <= word < VOCABULARY for word in words)
        assert bool(torch.isfinite(logits).all())


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would build a plan for each new length
    chance, mark, record = random.Random(options.seed), ranges(options.ranges), Record()
    desk = Desk(mark, record)
    torch.cuda.synchronize()
    with mark("warm-up"):
        desk.answer(desk.tokenizer.text(chance, 20, 20), 3, warm_up=True)
    for steps in split(options.steps, max(8, min(25, options.steps // 6))):
        desk.answer(desk.tokenizer.text(chance, 10, 32), steps)
    record.finish()


main()
