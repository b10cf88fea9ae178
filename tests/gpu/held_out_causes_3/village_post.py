"""Writes letters for forty-eight villagers in eight styles: a graph for the model, twelve numbers and a line of JSON
for each letter after each word.

Eight small things could be done better, and --fixed does them; none of them matters much by itself. A step is one
decode step, from its first call until tokens and numbers are on the host and noted.
"""
import json

import torch
from torch.nn import functional as F

from base_loop import Block, Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY, STYLES, NUMBERS, SCRATCH = 48, 32, 32000, 8, 12, 440_000_000
SHAPE = Shape(layers=24, vocabulary=VOCABULARY, batch=BATCH)


class Worn(Block):
    """A block with three small flaws."""

    def __init__(self, shape):
        super().__init__(shape)
        self.notes = torch.zeros(3, shape.batch, 1, shape.width, **shape.made())

    def split(self, x, cos, sin):
        heads, kv_heads, size = self.shape.heads, self.shape.kv_heads, self.shape.size
        # 1: by way of single precision, and the weight by itself.
        normed = F.layer_norm(x.float(), self.first.shape).to(x.dtype) * self.first
        # 2: the values have a matrix multiplication of their own.
        turned = (heads + kv_heads) * size
        turning = F.linear(normed, self.qkv.weight[:turned]).view(x.shape[0], x.shape[1], -1, size).transpose(1, 2)
        value = F.linear(normed, self.qkv.weight[turned:]).view(x.shape[0], x.shape[1], -1, size).transpose(1, 2)
        a, b = turning.chunk(2, -1)
        query, key = torch.addcmul(turning * cos, torch.cat((b, a), -1), sin).split((heads, kv_heads), 1)
        return query, key, value

    def next(self, x, position, places, keys, values):
        cos, sin, mask = places
        query, key, value = self.split(x, cos, sin)
        keys.index_copy_(2, position, key)
        values.index_copy_(2, position, value)
        heads = self.look(query, keys, values, mask)
        after = self.close(x, heads)
        # 3: copies for the search of errors, which nobody reads.
        for note, part in zip(self.notes, (x, heads, after)):
            note.copy_(part)
        return after


class WornModel(Model):
    def __init__(self, shape):
        super().__init__(shape, block=Worn)
        self.wide_head = self.head.weight.float()

    def logits(self, x):
        # 4: the last matrix is kept in single precision and converted each time.
        return F.linear(self.blocks[0].norm(x[:, -1], self.last), self.wide_head.to(x.dtype))


class Post(Decoder):
    def __init__(self, model, fixed, seed):
        generator = torch.Generator().manual_seed(seed)
        self.fixed, self.kept, self.log = fixed, [], []
        self.leanings_on_host = torch.rand(STYLES, VOCABULARY, generator=generator) / 100
        self.leanings = self.leanings_on_host.cuda()
        self.style = torch.arange(BATCH, device="cuda") % STYLES
        self.scratch = torch.zeros(SCRATCH, device="cuda", dtype=torch.uint8)
        self.numbers = torch.zeros(NUMBERS, device="cuda")
        self.report = torch.zeros(BATCH + NUMBERS, device="cuda", dtype=torch.double)
        super().__init__(model, self.choose_leaning)

    def choose_leaning(self, logits):
        logits = logits.float() + self.leanings[self.style]
        if not self.fixed:
            # 5: a scratch place that nobody needs cleared.
            self.scratch.zero_()
        best, tokens = logits.max(-1, keepdim=True)
        self.numbers.copy_(best.view(NUMBERS, -1).mean(-1))
        self.report[:BATCH].copy_(tokens[:, 0])
        self.report[BATCH:].copy_(self.numbers)
        return tokens

    def write(self, tokens, numbers):
        for row, token in enumerate(tokens):
            number = numbers[row * NUMBERS // BATCH]
            self.log.append(json.dumps({"row": row, "style": row % STYLES, "token": token, "number": number}))

    def write_kept(self):
        for tokens, numbers in self.kept:
            self.write(tokens, numbers)
        self.kept.clear()

    def words(self):
        if self.fixed:
            read = self.report.tolist()
            tokens, numbers = [int(token) for token in read[:BATCH]], read[BATCH:]
            self.kept.append((tokens, numbers))
            return tokens
        tokens = super().words()
        # 6: twelve numbers are read by twelve waits; 7: lines are written in the step rather than at the end.
        numbers = [number.item() for number in self.numbers]
        self.write(tokens, numbers)
        return tokens

    def following(self, i):
        if not self.fixed:
            # 8: the same megabyte each time, from pageable memory.
            self.leanings.copy_(self.leanings_on_host)
        return super().following(i)


def main():
    options, record = begin(__doc__)
    post = Post(Model(SHAPE) if options.fixed else WornModel(SHAPE), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, post.start, post.following, warm_up=True)
    texts = serve(record, prompt, options.steps, post.start, post.following)
    post.write_kept()
    assert len(post.log) == BATCH * (options.steps + 3)
    finish(record, texts, VOCABULARY)


main()
