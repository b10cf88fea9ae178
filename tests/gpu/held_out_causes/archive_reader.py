"""Eight answers to one long document, which is read once and whose keys and values stand in front of all eight.

A step is one decode step, from its first call until the eight tokens are in a list on the host. The steps are shared by
requests of up to 31 tokens about the same document.
"""
import torch
from torch.nn import functional as F

from shared_loop import begin, finish, prompts, serve
from shared_model import Layer, Model, Sizes

BATCH, PROMPT, LONGEST, VOCABULARY = 8, 3936, 31, 16000
LENGTH = PROMPT + LONGEST + 1


class Growing(Layer):
    def keep(self, key, value):
        self.keys, self.values = key.repeat(BATCH, 1, 1, 1), value.repeat(BATCH, 1, 1, 1)

    def remember(self, key, value, end):
        self.keys = torch.cat((self.keys, key), 2)
        self.values = torch.cat((self.values, value), 2)
        return self.keys, self.values

    def next(self, x, cos, sin, end):
        query, key, value = self.split(x, cos, sin)
        keys, values = self.remember(key, value, end)
        heads = F.scaled_dot_product_attention(query, keys, values)
        return self.end(x, heads.reshape(x.shape[0], 1, -1))


class Roomy(Growing):
    def __init__(self, sizes):
        super().__init__(sizes)
        room = (BATCH, sizes.kv_heads, LENGTH, sizes.size)
        self.keys, self.values = torch.zeros(room, **sizes.made()), torch.zeros(room, **sizes.made())

    def keep(self, key, value):
        self.keys[:, :, :key.shape[2]] = key
        self.values[:, :, :key.shape[2]] = value

    def remember(self, key, value, end):
        self.keys[:, :, end - 1:end] = key
        self.values[:, :, end - 1:end] = value
        return self.keys[:, :, :end], self.values[:, :, :end]


class Answers:
    def __init__(self, model):
        self.model, self.tokens = model, None

    def start(self, prompt):
        self.tokens = self.model.prefill(prompt).topk(BATCH, -1).indices.view(BATCH, 1)
        return self.tokens[:, 0].tolist()

    def following(self, i):
        end = PROMPT + i + 1
        cos, sin = self.model.cos[end - 1:end], self.model.sin[end - 1:end]
        x = self.model.embedding(self.tokens)
        for layer in self.model.layers:
            x = layer.next(x, cos, sin, end)
        self.tokens = self.model.logits(x).argmax(-1, keepdim=True)
        return self.tokens[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    sizes = Sizes(width=4096, inner=11008, layers=3, heads=32, kv_heads=32, vocabulary=VOCABULARY, length=LENGTH)
    answers = Answers(Model(sizes, layer=Roomy if options.fixed else Growing))
    prompt = prompts(options.seed, 1, PROMPT, VOCABULARY)
    serve(record, prompt, 1, answers.start, answers.following, warm_up=True)
    texts, left = [], options.steps
    while left:
        parts = -(-left // LONGEST)
        texts += serve(record, prompt, left // parts, answers.start, answers.following)
        left -= left // parts
    finish(record, texts, VOCABULARY)


main()
