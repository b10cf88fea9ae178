"""Reads what eight visitors of a fair have written, 1024 tokens each, and names a booth for each of them.

Eight small things could be done better, and --fixed does them; none of them matters much by itself. A step is one
prefill, from its first call until the booths are in a list on the host and a line about them is noted.
"""
import json

import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, greedy, prompts, serve_prefills

BATCH, PROMPT, VOCABULARY, MARKED, FIRST_ROWS = 8, 1024, 32000, 448, 512
SHAPE = Shape(layers=8, vocabulary=VOCABULARY, room=PROMPT)


class Worn(Block):
    """A block with five small flaws."""

    def __init__(self, shape):
        super().__init__(shape)
        self.known = None

    def split(self, x, cos, sin):
        # 1: by way of single precision, in which the norm computes anyway.
        wide = F.layer_norm(x.float(), self.first.shape, self.first.float())
        both = self.qkv(wide.to(x.dtype)).view(x.shape[0], x.shape[1], -1, self.shape.size).transpose(1, 2)
        heads, kv_heads = self.shape.heads, self.shape.kv_heads
        turning, value = both.split((heads + kv_heads, kv_heads), 1)
        a, b = turning.chunk(2, -1)
        query, key = torch.addcmul(turning * cos, torch.cat((b, a), -1), sin).split((heads, kv_heads), 1)
        return query, key, value

    def mlp(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        # 2: the activation written as its formula.
        return self.down(gate * torch.sigmoid(gate) * up)

    def close(self, x, heads):
        # 3: this sum in single precision, and rounded again.
        x = (x.float() + self.out(heads)).to(x.dtype)
        # 4: how large the numbers become, which nobody reads.
        self.known = x.float().std(-1).mean()
        # 5: a question to the GPU, for the search of errors.
        if not torch.isfinite(x).all():
            raise ArithmeticError("numbers out of range")
        return x + self.mlp(self.norm(x, self.second))


class Booths:
    def __init__(self, model, fixed, seed):
        self.model, self.fixed, self.kept, self.log = model, fixed, [], []
        self.batches = prompts(seed, 4 * BATCH, PROMPT, VOCABULARY).split(BATCH)
        self.lists = [batch.tolist() for batch in self.batches]
        generator = torch.Generator().manual_seed(seed)
        # What the fair's own words are moved by.
        self.moves_on_host = torch.randn(FIRST_ROWS, SHAPE.width, generator=generator) / 10
        self.moves = self.moves_on_host.cuda()

    def enter(self, ids):
        if not self.fixed:
            # 6: the same four megabytes each time, from pageable memory.
            self.moves.copy_(self.moves_on_host)
        own = (ids < FIRST_ROWS).unsqueeze(-1)
        moved = self.moves.to(SHAPE.dtype)[ids.clamp(max=FIRST_ROWS - 1)]
        return torch.where(own, moved, self.model.embedding(ids))

    def choose(self, x):
        if not self.fixed:
            # 7: logits of many places, of which only the last counts.
            return greedy(self.model.head(self.model.blocks[0].norm(x[:, -MARKED:], self.model.last))[:, -1])
        return greedy(self.model.logits(x))

    def write(self, i, booths):
        for ids, booth in zip(self.lists[i % len(self.lists)], booths):
            self.log.append(json.dumps({"step": i, "booth": booth, "read": ids}))

    def write_kept(self):
        for i, booths in self.kept:
            self.write(i, booths)
        self.kept.clear()

    def read(self, i):
        x = self.enter(self.batches[i % len(self.batches)])
        for block in self.model.blocks:
            x = block.whole(x, self.model.cos, self.model.sin)
        booths = self.choose(x)[:, 0].tolist()
        if self.fixed:
            self.kept.append((i, booths))
        else:
            # 8: lines are written in the step rather than at the end.
            self.write(i, booths)
        return booths


def main():
    options, record = begin(__doc__)
    booths = Booths(Model(SHAPE, block=Block if options.fixed else Worn), options.fixed, options.seed)
    texts = serve_prefills(record, options.steps, booths.read, BATCH, PROMPT)
    booths.write_kept()
    assert len(booths.log) == BATCH * (options.steps + 1)
    finish(record, texts, VOCABULARY)


main()
