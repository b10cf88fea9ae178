"""Eight sculptors free their texts from the block: 96 hidden tokens behind 32 known ones, which all see each other. In each
step the model draws a token for each hidden place, and the one it is surest of stays in each text. When no place is
hidden any more, the next texts begin.

A step lays one token of each text open, from its first call until the tokens are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, HIDDEN, VOCABULARY, HEAT = 8, 32, 96, 96000, 0.8
SHAPE = Shape(layers=6, vocabulary=VOCABULARY, room=PROMPT + HIDDEN, batch=BATCH)
COVER = VOCABULARY - 1  # the token that stands for a hidden one


class Stone(Block):
    def whole(self, x, cos, sin, keep=None):
        query, key, value = self.split(x, cos, sin)
        key, value = key.repeat_interleave(self.shape.group, 1), value.repeat_interleave(self.shape.group, 1)
        heads = F.scaled_dot_product_attention(query, key, value)
        return self.close(x, heads.transpose(1, 2).reshape(x.shape))


class Sculptors:
    def __init__(self, model, fixed, seed):
        self.model, self.exact = model, torch.float32 if fixed else torch.float64
        self.generator = torch.Generator(device="cuda").manual_seed(seed)
        self.ids = torch.full((BATCH, PROMPT + HIDDEN), COVER, device="cuda")

    def draw(self, logits):
        """A token for each place by Gumbel's noise, and how sure the model is of it."""
        noise = torch.rand(logits.shape, device="cuda", generator=self.generator).clamp(min=1e-7).to(self.exact)
        logits = logits.to(self.exact)
        drawn = (logits.exp() / (-torch.log(noise)) ** HEAT).argmax(-1)
        sure = logits.softmax(-1).gather(-1, drawn.unsqueeze(-1)).squeeze(-1)
        return drawn, sure

    def lay_open(self):
        model, hidden = self.model, self.ids[:, PROMPT:]
        x = model.blocks[0].norm(model.hidden(self.ids)[:, PROMPT:], model.last)
        logits = model.head(x)
        logits[..., COVER] = float("-inf")
        drawn, sure = self.draw(logits)
        place = sure.masked_fill(hidden != COVER, -1.0).argmax(-1, keepdim=True)
        tokens = drawn.gather(1, place)
        hidden.scatter_(1, place, tokens)
        return tokens[:, 0].tolist()

    def start(self, prompt):
        self.ids[:, :PROMPT] = prompt
        self.ids[:, PROMPT:] = COVER
        return self.lay_open()

    def following(self, i):
        if (i + 1) % HIDDEN == 0:
            self.ids[:, :PROMPT] = self.ids[:, -PROMPT:].clone()
            self.ids[:, PROMPT:] = COVER
        return self.lay_open()


def main():
    options, record = begin(__doc__)
    sculptors = Sculptors(Model(SHAPE, block=Stone), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY - 1)
    serve(record, prompt, 1, sculptors.start, sculptors.following, warm_up=True)
    texts = serve(record, prompt, options.steps, sculptors.start, sculptors.following)
    finish(record, texts, VOCABULARY)


main()
