"""An old workshop of sixty-four writers: a graph for the model and a report of four numbers after each word.

Twelve small things could be done better, and --fixed does them; none of them matters much by itself. A step is one
decode step, from its first call until tokens and numbers are on the host and noted.
"""
import json

import torch
from torch.nn import functional as F

from common_loop import begin, finish, prompts, serve
from common_model import Block, Decoder, Model, Shape

BATCH, PROMPT, VOCABULARY, SCRATCH = 64, 32, 48000, 160 << 20
SHAPE = Shape(width=4096, inner=14336, layers=10, heads=32, kv_heads=8, vocabulary=VOCABULARY, room=1024, batch=BATCH)


class Worn(Block):
    """A block with six small flaws."""

    def __init__(self, shape):
        super().__init__(shape)
        self.columns = torch.arange(shape.room, device="cuda")

    def turn(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.addcmul(x * cos, torch.cat((b, a), -1), sin)

    def split(self, x, cos, sin):
        shape = self.shape
        # 1: by way of single precision, in which the norm computes anyway.
        normed = F.layer_norm(x.float(), self.first.shape, self.first.float()).to(x.dtype)
        both = self.qkv(normed).view(x.shape[0], x.shape[1], -1, shape.size).transpose(1, 2)
        query, key, value = both.split((shape.heads, shape.kv_heads, shape.kv_heads), 1)
        # 2: queries and keys turned one after the other.
        return self.turn(query, cos, sin), self.turn(key, cos, sin), value

    def mlp(self, x):
        # 3: copies of both halves.
        gate, up = [half.contiguous() for half in self.gate_up(x).chunk(2, -1)]
        return self.down(F.silu(gate) * up)

    def close(self, x, heads):
        # 4: a factor of one.
        x = x + 1.0 * self.out(heads)
        return x + 1.0 * self.mlp(self.norm(x, self.second))

    def next(self, x, position, places, keys, values):
        cos, sin, mask = places
        # 5: each layer makes the mask anew.
        mask = torch.zeros_like(mask).masked_fill(self.columns > position, float("-inf"))
        query, key, value = self.split(x, cos, sin)
        # 6: copies of what goes into the cache.
        keys.index_copy_(2, position, key.clone())
        values.index_copy_(2, position, value.clone())
        return self.close(x, self.look(query, keys, values, mask))


class Workshop(Decoder):
    def __init__(self, model, fixed):
        self.fixed, self.log = fixed, []
        self.leaning_on_host = torch.rand(VOCABULARY) / 100
        self.leaning = self.leaning_on_host.cuda()
        self.scratch = torch.zeros(SCRATCH, device="cuda", dtype=torch.uint8)
        self.best = torch.zeros(BATCH, device="cuda")
        self.report = torch.zeros(BATCH + 4, device="cuda", dtype=torch.double)
        super().__init__(model, self.choose_leaning)

    def choose_leaning(self, logits):
        logits = logits.float() + self.leaning
        if not self.fixed:
            # 7: the order of the logarithms is that of the logits; 8: a scratch place that nobody needs cleared.
            logits = logits.log_softmax(-1) + torch.logsumexp(logits, -1, keepdim=True)
            self.scratch.zero_()
        best, tokens = logits.max(-1, keepdim=True)
        self.best.copy_(best[:, 0])
        if self.fixed:
            numbers = torch.stack((best.mean(), best.amin(), best.amax(), best.std()))
            torch.cat((tokens[:, 0].double(), numbers.double()), out=self.report)
        return tokens

    def words(self):
        if self.fixed:
            read = self.report.tolist()
            tokens, numbers = [int(token) for token in read[:BATCH]], read[BATCH:]
            self.log.append((tokens, numbers))
            return tokens
        tokens = super().words()
        # 9: four numbers are read by four waits.
        numbers = [number.item() for number in (self.best.mean(), self.best.amin(), self.best.amax(), self.best.std())]
        # 10: the tokens are fetched once more; 11: lines are written in the step rather than at the end.
        again = self.tokens.cpu()
        text = " ".join(str(token) for token in tokens)
        self.log.append(json.dumps({"tokens": again[:, 0].tolist(), "numbers": numbers, "text": text}))
        return tokens

    def following(self, i):
        if not self.fixed:
            # 12: the same 192 kB each time, from pageable memory.
            self.leaning.copy_(self.leaning_on_host)
        return super().following(i)


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE, block=Block if options.fixed else Worn)
    workshop = Workshop(model, options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, workshop.start, workshop.following, warm_up=True)
    texts = serve(record, prompt, options.steps, workshop.start, workshop.following)
    assert len(workshop.log) == options.steps + 3
    finish(record, texts, VOCABULARY)


main()
