"""A small server: prompts of all lengths arrive between decode steps, join the batch (1 to 16 sequences) and leave it when done."""
import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

from contract import Record, arguments, now, ranges

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, INNER, VOCABULARY = 16, 1024, 16, 4, 64, 2816, 32000
SLOTS, ROOM = 16, 512
WIDTHS = (HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN, eps=1e-5), nn.RMSNorm(HIDDEN, eps=1e-5)
        self.qkv = nn.Linear(HIDDEN, sum(WIDTHS), bias=False)
        self.out = nn.Linear(HEADS * HEAD, HIDDEN, bias=False)
        self.gate_up = nn.Linear(HIDDEN, 2 * INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x, cos, sin, attend):
        batch, length, _ = x.shape
        q, k, v = (y.view(batch, length, -1, HEAD).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(WIDTHS, dim=-1))
        y = attend(rotate(q, cos, sin), rotate(k, cos, sin), v)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, HEADS * HEAD))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Server:
    """The first n slots of the cache belong to the n running sequences."""

    def __init__(self):
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("cuda"):
            self.embedding, self.blocks = nn.Embedding(VOCABULARY, HIDDEN), nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm, self.head = nn.RMSNorm(HIDDEN, eps=1e-5), nn.Linear(HIDDEN, VOCABULARY, bias=False)
            self.cache = torch.zeros(2, LAYERS, SLOTS, KV_HEADS, ROOM, HEAD)
        torch.set_default_dtype(torch.float32)
        angle = torch.outer(torch.arange(ROOM).float(), 10000.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD))
        self.cos, self.sin = angle.cos().bfloat16().cuda(), angle.sin().bfloat16().cuda()
        self.places = torch.arange(ROOM, device="cuda")
        self.running = []

    def prefill(self, prompt):
        slot, length = len(self.running), len(prompt)
        x = self.embedding(torch.tensor([prompt], device="cuda"))
        for i, block in enumerate(self.blocks):
            def attend(q, k, v):
                self.cache[0, i, slot, :, :length], self.cache[1, i, slot, :, :length] = k[0], v[0]
                k, v = k.repeat_interleave(HEADS // KV_HEADS, 1), v.repeat_interleave(HEADS // KV_HEADS, 1)
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = block(x, self.cos[:length], self.sin[:length], attend)
        return self.head(self.norm(x[:, -1])).argmax(-1).item()

    def decode(self):
        batch, lengths = len(self.running), [sequence["length"] for sequence in self.running]
        reach = max(lengths) + 1
        ids, place = torch.tensor([[sequence["tokens"][-1] for sequence in self.running], lengths], pin_memory=True).to("cuda", non_blocking=True)
        mask = (self.places[:reach] <= place[:, None])[:, None, None].expand(batch, KV_HEADS, HEADS // KV_HEADS, reach)
        cos, sin = self.cos[place][:, None, None], self.sin[place][:, None, None]
        rows = self.places[:batch]
        x = self.embedding(ids[:, None])
        for i, block in enumerate(self.blocks):
            def attend(q, k, v):
                keys, values = self.cache[0, i, :batch], self.cache[1, i, :batch]
                keys[rows, :, place], values[rows, :, place] = k[:, :, 0], v[:, :, 0]
                y = F.scaled_dot_product_attention(q.reshape(batch, KV_HEADS, -1, HEAD), keys[:, :, :reach], values[:, :, :reach], attn_mask=mask)
                return y.reshape(batch, HEADS, 1, HEAD)
            x = block(x, cos, sin, attend)
        self.logits = self.head(self.norm(x[:, -1]))
        return self.logits.argmax(-1).tolist()

    def leave(self, slot):
        last = self.running.pop()
        if slot < len(self.running):
            self.cache[:, :, slot] = self.cache[:, :, len(self.running)]
            self.running[slot] = last


@torch.inference_mode()
def main():
    options = arguments(__doc__)
    mark = ranges(options.ranges)
    record = Record()
    torch.manual_seed(options.seed)
    chance = random.Random(options.seed)
    server = Server()
    waiting = deque()

    def arrive(prompt_tokens, wanted):
        waiting.append(dict(arrival=now(), prompt=[chance.randrange(VOCABULARY) for _ in range(prompt_tokens)], wanted=wanted))

    def finished(slot, end, warm_up):
        sequence = server.running[slot]
        record.request(sequence["arrival"], sequence["first"], end, len(sequence["prompt"]), len(sequence["tokens"]), warm_up)
        assert all(0 <= token < VOCABULARY for token in sequence["tokens"])
        server.leave(slot)

    def admit(warm_up):
        while waiting and len(server.running) < SLOTS:
            sequence = waiting.popleft()
            start = now()
            with mark(f"admit {len(sequence['prompt'])} tokens"):
                token = server.prefill(sequence["prompt"])
            sequence.update(first=now(), tokens=[token], length=len(sequence["prompt"]))
            record.step("prefill", start, sequence["first"], sequence["length"], 1, warm_up)
            server.running.append(sequence)

    def step(warm_up):
        batch, start = len(server.running), now()
        with mark(f"decode batch of {batch}"):
            tokens = server.decode()
        end = now()
        record.step("decode", start, end, batch, batch, warm_up)
        for sequence, token in zip(server.running, tokens):
            sequence["tokens"].append(token)
            sequence["length"] += 1
        for slot in reversed(range(batch)):
            if len(server.running[slot]["tokens"]) >= server.running[slot]["wanted"]:
                finished(slot, end, warm_up)
        return end

    arrive(64, 8)  # the warm-up: one whole request
    admit(warm_up=True)
    while server.running:
        step(warm_up=True)
    end = 0
    for i in range(options.steps):
        busy = i % 40 < 16
        arrivals = chance.choice((0, 1, 1, 2, 2)) if busy else chance.random() < 0.05
        for _ in range(arrivals):
            arrive(chance.randint(16, 400), chance.randint(4, 30))
        if not server.running and not waiting:
            arrive(chance.randint(16, 400), chance.randint(4, 30))
        admit(warm_up=False)
        end = step(warm_up=False)
    while server.running:  # shut down: what runs is cut off here
        finished(len(server.running) - 1, end, False)
    assert torch.isfinite(server.logits).all()
    record.finish()


main()
