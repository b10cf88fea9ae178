"""One model, two dozen adapters: batches whose four texts belong to four customers, each with low-rank weights of its own.

A step is one pass through the model, from its first call until the four next tokens are in a list on the host: a prefill step
takes in the prompts, and before them sends up those adapters of the batch that are not on the GPU; a decode step takes in one
token of each text. A request is one text. With --ranges a batch has one range, inside it are "adapters", "prompts" and one
"tokens" for each decode step, and inside the last two "model" and "draw"; one more is around the warm-up.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random
from collections import OrderedDict

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 32768, 192, 4
WIDTH, INNER, LAYERS = 2048, 5632, 20
HEADS, KV_HEADS, SIZE = 16, 4, 128
GROUP, ALL_HEADS = HEADS // KV_HEADS, HEADS + 2 * KV_HEADS
RANK, ADAPTERS, SLOTS = 16, 24, 8
ADAPTED = (("qkv", WIDTH, ALL_HEADS * SIZE), ("out", HEADS * SIZE, WIDTH), ("down", INNER, WIDTH))
ADAPTER = LAYERS * sum(RANK * (inputs + outputs) for _, inputs, outputs in ADAPTED)  # numbers in one adapter
TYPE = torch.bfloat16


def weights(*shape):
    return torch.empty(*shape, device="cuda", dtype=TYPE).normal_(0, shape[-1] ** -0.5)


class Adapters:
    """All adapters lie in pinned memory, the last used of them in the slots of one slab on the GPU."""

    def __init__(self):
        self.home = torch.empty(ADAPTERS, ADAPTER, dtype=TYPE, pin_memory=True)
        for adapter in self.home:
            adapter.copy_(torch.empty(ADAPTER, device="cuda", dtype=TYPE).normal_(0, 0.01))
        self.slab = torch.zeros(SLOTS, ADAPTER, device="cuda", dtype=TYPE)
        self.slots = OrderedDict()  # adapter to slot, the longest unused first
        self.views, place = [], 0
        for _ in range(LAYERS):
            layer = {}
            for name, inputs, outputs in ADAPTED:
                middle, end = place + RANK * inputs, place + RANK * (inputs + outputs)
                layer[name] = (self.slab[:, place:middle], self.slab[:, middle:end])
                place = end
            self.views.append(layer)

    def fetch(self, wanted):
        """The slots of the adapters `wanted`, on the GPU; those that are not there yet are sent up first, without a wait."""
        for adapter in dict.fromkeys(wanted):
            if adapter not in self.slots:
                if len(self.slots) < SLOTS:
                    slot = len(self.slots)
                else:  # the batch before is done, so only this batch's own adapters must stay
                    slot = self.slots.pop(next(old for old in self.slots if old not in wanted))
                self.slab[slot].copy_(self.home[adapter], non_blocking=True)
                self.slots[adapter] = slot
            self.slots.move_to_end(adapter)
        return torch.tensor([self.slots[adapter] for adapter in wanted], device="cuda")


def adapted(x, weight, pair, slots, inputs, outputs):
    """The layer that all share and, for each text, the product of its adapter's two narrow matrices."""
    first = pair[0].index_select(0, slots).view(BATCH, RANK, inputs)
    second = pair[1].index_select(0, slots).view(BATCH, outputs, RANK)
    narrow = torch.bmm(x, first.transpose(1, 2))
    return torch.baddbmm(F.linear(x, weight), narrow, second.transpose(1, 2))


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Model:
    def __init__(self):
        self.embedding, self.head = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=TYPE), weights(VOCABULARY, WIDTH)
        one = torch.ones(WIDTH, device="cuda", dtype=TYPE)
        self.layers = [dict(before=one, qkv=weights(ALL_HEADS * SIZE, WIDTH), out=weights(WIDTH, HEADS * SIZE), between=one,
                            up=weights(2 * INNER, WIDTH), down=weights(WIDTH, INNER)) for _ in range(LAYERS)]
        self.last = one
        self.keys = torch.zeros(LAYERS, BATCH, KV_HEADS, LENGTH, SIZE, device="cuda", dtype=TYPE)
        self.values = torch.zeros_like(self.keys)
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(), 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE))
        self.cos, self.sin = angle.cos().to(TYPE), angle.sin().to(TYPE)

    def __call__(self, ids, start, slots, adapters):
        """The logits behind the last of `ids` (BATCH x count), whose places begin at `start`."""
        count, end = ids.shape[1], start + ids.shape[1]
        cos, sin = self.cos[start:end], self.sin[start:end]
        later = torch.ones(count, end, dtype=torch.bool, device="cuda").triu(start + 1) if count > 1 else None
        x = F.embedding(ids, self.embedding)
        for layer, views, keys, values in zip(self.layers, adapters.views, self.keys, self.values):
            y = F.rms_norm(x, (WIDTH,), layer["before"], 1e-6)
            qkv = adapted(y, layer["qkv"], views["qkv"], slots, WIDTH, ALL_HEADS * SIZE)
            q, k, v = qkv.view(BATCH, count, ALL_HEADS, SIZE).transpose(1, 2).split((HEADS, KV_HEADS, KV_HEADS), 1)
            keys[:, :, start:end] = turned(k, cos, sin)
            values[:, :, start:end] = v
            q = turned(q, cos, sin).reshape(BATCH, KV_HEADS, GROUP * count, SIZE)
            scores = (q @ keys[:, :, :end].transpose(2, 3)).view(BATCH, KV_HEADS, GROUP, count, end).float() * SIZE ** -0.5
            if later is not None:
                scores = scores.masked_fill(later, float("-inf"))
            shares = scores.softmax(-1).to(TYPE).view(BATCH, KV_HEADS, GROUP * count, end)
            heads = (shares @ values[:, :, :end]).view(BATCH, HEADS, count, SIZE).transpose(1, 2).reshape(BATCH, count, HEADS * SIZE)
            x = x + adapted(heads, layer["out"], views["out"], slots, HEADS * SIZE, WIDTH)
            y = F.rms_norm(x, (WIDTH,), layer["between"], 1e-6)
            gate, up = F.linear(y, layer["up"]).chunk(2, -1)
            x = x + adapted(F.silu(gate) * up, layer["down"], views["down"], slots, INNER, WIDTH)
        return F.linear(F.rms_norm(x[:, -1], (WIDTH,), self.last, 1e-6), self.head)


def draw(logits):
    """One of the forty likeliest for each text, by a race of exponential clocks, which needs no wait."""
    likeliest, which = (logits.float() / 0.8).topk(40)
    chances = likeliest.softmax(-1)
    return which.gather(1, (chances / torch.empty_like(chances).exponential_()).argmax(-1, keepdim=True))


def serve(record, mark, model, adapters, wanted, prompts, steps, warm_up=False):
    length = len(prompts[0])
    start = now()
    with mark("batch of " + " ".join(map(str, wanted))):
        with mark("adapters"):
            slots = adapters.fetch(wanted)
        with mark("prompts"):
            with mark("model"):
                logits = model(torch.tensor(prompts).to("cuda"), 0, slots, adapters)
            with mark("draw"):
                tokens = draw(logits)
                texts = [[token] for token in tokens[:, 0].tolist()]
        first = now()
        record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
        end = first
        for i in range(steps):
            begin = now()
            with mark("tokens"):
                with mark("model"):
                    logits = model(tokens, length + i, slots, adapters)
                with mark("draw"):
                    tokens = draw(logits)
                    for text, token in zip(texts, tokens[:, 0].tolist()):
                        text.append(token)
            end = now()
            record.step("decode", begin, end, BATCH, BATCH, warm_up)
    for text in texts:
        record.request(start, first, end, length, len(text), warm_up)
    assert bool(torch.isfinite(logits).all()) and all(0 <= token < VOCABULARY for text in texts for token in text)


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance, mark, record = random.Random(options.seed), ranges(options.ranges), Record()
    model, adapters = Model(), Adapters()
    torch.cuda.synchronize()

    def prompts(length):
        return [[chance.randrange(VOCABULARY) for _ in range(length)] for _ in range(BATCH)]

    # Adapters 0 to 3 are on the GPU after it; new ones are sent up in most batches, since there are three times as many as slots.
    with mark("warm-up"):
        serve(record, mark, model, adapters, [0, 1, 2, 3], prompts(100), 3, warm_up=True)
    popular = [1 / (1 + i / 4) for i in range(ADAPTERS)]
    for steps in split(options.steps, max(8, min(25, options.steps // 6))):
        wanted = chance.choices(range(ADAPTERS), popular, k=BATCH)
        serve(record, mark, model, adapters, wanted, prompts(chance.randrange(88, 113)), steps)
    record.finish()


main()
