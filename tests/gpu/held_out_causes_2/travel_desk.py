"""Plans sixty-four journeys at once; the questions differ in length and are filled up on the left.

The layers take the mask and the table of places wherever these were made. A step is one decode step, from its first
call until the tokens are in a list on the host.
"""
import torch
from torch.nn import functional as F

from common_loop import begin, finish, prompts, serve
from common_model import Model, Shape, greedy

BATCH, PROMPT, ROOM, VOCABULARY = 64, 64, 1024, 32000
SHAPE = Shape(layers=16, kv_heads=2, vocabulary=VOCABULARY, room=ROOM, batch=BATCH)


class Desk:
    def __init__(self, model, home):
        self.model, self.cache, self.home, self.tokens = model, model.cache(), home, None
        self.position = torch.zeros(1, device="cuda", dtype=torch.long)
        # What masks and places are made of, where they are made.
        self.columns, self.fillers = torch.arange(ROOM, device=home), torch.arange(BATCH, device=home).view(-1, 1) % 16
        self.cos, self.sin = model.cos.to(home), model.sin.to(home)

    def make_places(self, end):
        """Cosines, sines and the mask for the last of `end` tokens of each text."""
        unseen = (self.columns >= end) | (self.columns < self.fillers)
        mask = torch.zeros(BATCH, ROOM, device=self.home).masked_fill(unseen, float("-inf"))
        place = end - 1 - self.fillers[:, 0]
        return [part.view(BATCH, 1, 1, -1) for part in (self.cos[place], self.sin[place], mask)]

    def bring(self, places):
        """What was made elsewhere goes to the layer's GPU."""
        cos, sin, mask = [part.to("cuda") for part in places]
        return cos, sin, mask.to(SHAPE.dtype).expand(-1, -1, SHAPE.group, -1)

    def start(self, prompt):
        columns, fillers = torch.arange(PROMPT, device="cuda"), self.fillers.to("cuda")
        place = (columns - fillers).clamp(min=0)
        cos, sin = self.model.cos[place].unsqueeze(1), self.model.sin[place].unsqueeze(1)
        seen = (columns <= columns.view(-1, 1)) & (columns >= fillers).unsqueeze(1)
        # A filler sees itself, so that no row of the scores is empty.
        seen = (seen | torch.eye(PROMPT, device="cuda", dtype=torch.bool)).unsqueeze(1)
        x = self.model.embedding(prompt)
        for block, keys, values in zip(self.model.blocks, *self.cache):
            query, key, value = block.split(x, cos, sin)
            keys[:, :, :PROMPT] = key
            values[:, :, :PROMPT] = value
            key, value = key.repeat_interleave(SHAPE.group, 1), value.repeat_interleave(SHAPE.group, 1)
            heads = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
            x = block.close(x, heads.transpose(1, 2).reshape(BATCH, PROMPT, -1))
        self.tokens = greedy(self.model.logits(x))
        self.position.fill_(PROMPT)
        return self.tokens[:, 0].tolist()

    def following(self, i):
        places = self.make_places(PROMPT + i + 1)
        x = self.model.embedding(self.tokens)
        for block, keys, values in zip(self.model.blocks, *self.cache):
            x = block.next(x, self.position, self.bring(places), keys, values)
        self.tokens = greedy(self.model.logits(x))
        self.position.add_(1)
        return self.tokens[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    desk = Desk(Model(SHAPE), "cuda" if options.fixed else "cpu")
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, desk.start, desk.following, warm_up=True)
    texts = serve(record, prompt, options.steps, desk.start, desk.following)
    finish(record, texts, VOCABULARY)


main()
