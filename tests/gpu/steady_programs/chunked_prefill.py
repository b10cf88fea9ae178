"""Chunked prefill: each step has a budget of 128 tokens, one for every running sequence and the rest for a piece of a prompt. No warm-up."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

from contract import Record, arguments, now, ranges

LAYERS, HIDDEN, HEADS, INNER, VOCABULARY = 14, 1280, 10, 3456, 32000
HEAD = HIDDEN // HEADS
SLOTS, ROOM, BUDGET = 8, 640, 128


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.gate, self.up, self.down = nn.Linear(HIDDEN, INNER), nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)

    def forward(self, x, attend):
        q, k, v = self.qkv(self.norm1(x)).view(-1, 3, HEADS, HEAD).unbind(1)
        x = x + self.out(attend(q, k, v).reshape(-1, HIDDEN))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(ROOM, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.register_buffer("keys", torch.zeros(LAYERS, SLOTS, ROOM, HEADS, HEAD))
        self.register_buffer("values", torch.zeros(LAYERS, SLOTS, ROOM, HEADS, HEAD))

    def forward(self, ids, places, slots, decoding, reach, slot, end, sample):
        """A flat batch: the first `decoding` tokens are one each of a sequence, the others the piece of one prompt up to `end` in `slot`."""
        everywhere = torch.arange(ROOM, device=ids.device)
        if decoding:
            seen = (everywhere[:reach] <= places[:decoding, None])[:, None, None]
        if slot is not None:
            causal = everywhere[:end] <= places[decoding:, None]
        x = self.tokens(ids) + self.places(places)
        for i, block in enumerate(self.blocks):
            def attend(q, k, v):
                keys, values, parts = self.keys[i], self.values[i], []
                keys[slots, places], values[slots, places] = k, v
                if decoding:
                    mine = slots[:decoding]
                    y = F.scaled_dot_product_attention(q[:decoding, :, None], keys[mine, :reach].transpose(1, 2), values[mine, :reach].transpose(1, 2),
                                                       attn_mask=seen)
                    parts.append(y[:, :, 0])
                if slot is not None:
                    y = F.scaled_dot_product_attention(q[None, decoding:].transpose(1, 2), keys[None, slot, :end].transpose(1, 2),
                                                       values[None, slot, :end].transpose(1, 2), attn_mask=causal)
                    parts.append(y[0].transpose(0, 1))
                return torch.cat(parts)
            x = block(x, attend)
        return self.head(self.norm(x[sample])).argmax(-1)


@torch.inference_mode()
def main():
    options = arguments(__doc__)
    mark = ranges(options.ranges)
    record = Record()
    torch.manual_seed(options.seed)
    chance = random.Random(options.seed)
    with torch.device("cuda"):
        model = Model().half().eval()
    running, waiting, free, seen_kinds = [], [], list(range(SLOTS)), set()

    def arrive():
        length = chance.randint(150, 500)
        waiting.append(dict(start=now(), prompt=[chance.randrange(VOCABULARY) for _ in range(length)], done=0, tokens=[],
                            wanted=chance.randint(6, 24), slot=None, warm_up=False))

    def close(request, end):
        record.request(request["start"], request["first"], end, len(request["prompt"]), len(request["tokens"]), request["warm_up"])
        assert all(0 <= token < VOCABULARY for token in request["tokens"])

    end = 0
    for number in range(options.steps):
        if number % 5 == 0 and len(waiting) < 4 or not running and not waiting:
            arrive()
        start = now()
        decoding = list(running)
        ids = [r["tokens"][-1] for r in decoding]
        places = [len(r["prompt"]) + len(r["tokens"]) - 1 for r in decoding]
        slots = [r["slot"] for r in decoding]
        prompting = waiting[0] if waiting and (waiting[0]["slot"] is not None or free) else None
        reach, slot, last, sample = max(places, default=0) + 1, None, 0, list(range(len(decoding)))
        if prompting:
            if prompting["slot"] is None:
                prompting["slot"] = free.pop(0)
            slot, first = prompting["slot"], prompting["done"]
            last = min(len(prompting["prompt"]), first + BUDGET - len(decoding))
            ids += prompting["prompt"][first:last]
            places += range(first, last)
            slots += [slot] * (last - first)
            if last == len(prompting["prompt"]):
                sample.append(len(ids) - 1)
        kind = "mixed" if prompting and decoding else "prefill" if prompting else "decode"
        with mark(f"{kind} step"):
            batch = torch.tensor([ids, places, slots]).cuda()
            sampled = torch.tensor(sample or [len(ids) - 1]).cuda()
            out = model(*batch, len(decoding), reach, slot, last, sampled).tolist()
        end = now()
        # nothing was run before: the first step of each kind is the first use of its kernels, and what it serves is cold too
        cold = kind not in seen_kinds
        seen_kinds.add(kind)
        record.step(kind, start, end, len(ids), len(decoding) + bool(prompting), cold)
        for request in decoding + [prompting] * bool(prompting):
            request["warm_up"] |= cold
        for request, token in zip(decoding, out):
            request["tokens"].append(token)
        if prompting:
            prompting["done"] = last
            if last == len(prompting["prompt"]):
                prompting["tokens"].append(out[-1])
                prompting["first"] = end
                running.append(waiting.pop(0))
        for request in [r for r in running if len(r["tokens"]) >= r["wanted"]]:
            close(request, end)
            free.append(request["slot"])
            running.remove(request)
    for request in running:  # cut off by the end of the program
        close(request, end)
    assert torch.isfinite(model.keys).all() and torch.isfinite(model.values).all()
    record.finish()


main()
