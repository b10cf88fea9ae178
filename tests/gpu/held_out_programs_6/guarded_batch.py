"""Three texts at a time, each with a sampler of its own in a Python loop, and a guard that may object to a word before it is written.

A step is one pass through the model and the choice of three words, until their log-probabilities are on the host: a prefill step
takes in three prompts of one length, a decode step one token of each text. In each step the host asks whether the logits are
numbers, then for each text whether the guard objects (and if so it draws again and asks again, up to three objections) and which
word it is, and at last fetches the log-probabilities. A request is one text. With --ranges a step has "think" and three times
"choose", side by side, and none around them.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 40960, 160, 3
WIDTH, INNER, LAYERS, HEADS, SIZE = 2048, 8192, 16, 16, 128
OBJECTIONS, LIMIT = 3, 0.5
TYPE = torch.float16


def weights(*shape):
    return torch.empty(*shape, device="cuda", dtype=TYPE).normal_(0, shape[-1] ** -0.5)


class Model:
    """Learned positions, layer norms with biases, GELU: what GPT-2 and OPT have in common."""

    def __init__(self):
        self.embedding, self.head = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=TYPE), weights(VOCABULARY, WIDTH)
        self.places = torch.randn(LENGTH, WIDTH, device="cuda", dtype=TYPE) * 0.2
        self.one, self.zero = torch.ones(WIDTH, device="cuda", dtype=TYPE), torch.zeros(WIDTH, device="cuda", dtype=TYPE)
        self.layers = [dict(qkv=weights(3 * WIDTH, WIDTH), qkv_bias=torch.zeros(3 * WIDTH, device="cuda", dtype=TYPE),
                            up=weights(INNER, WIDTH), up_bias=torch.zeros(INNER, device="cuda", dtype=TYPE),
                            out=weights(WIDTH, WIDTH), down=weights(WIDTH, INNER)) for _ in range(LAYERS)]
        self.keys = torch.zeros(LAYERS, BATCH, HEADS, LENGTH, SIZE, device="cuda", dtype=TYPE)
        self.values = torch.zeros_like(self.keys)
        self.guard_in, self.guard_out = weights(512, 2 * WIDTH), weights(1, 512)

    def normed(self, x):
        return F.layer_norm(x, (WIDTH,), self.one, self.zero, 1e-5)

    def think(self, ids, start):
        """The last state and the logits behind the last of `ids` (BATCH x count), whose places begin at `start`."""
        count, end = ids.shape[1], start + ids.shape[1]
        x = F.embedding(ids, self.embedding) + self.places[start:end]
        for layer, keys, values in zip(self.layers, self.keys, self.values):
            qkv = F.linear(self.normed(x), layer["qkv"], layer["qkv_bias"])
            q, k, v = (part.view(BATCH, count, HEADS, SIZE).transpose(1, 2) for part in qkv.chunk(3, -1))
            keys[:, :, start:end], values[:, :, start:end] = k, v
            scores = (q @ keys[:, :, :end].transpose(2, 3)).float() * SIZE ** -0.5
            if count > 1:
                later = torch.ones(count, end, dtype=torch.bool, device="cuda").triu(start + 1)
                scores = scores.masked_fill(later, float("-inf"))
            heads = (scores.softmax(-1).to(TYPE) @ values[:, :, :end]).transpose(1, 2).reshape(BATCH, count, WIDTH)
            x = x + F.linear(heads, layer["out"], self.zero)
            x = x + F.linear(F.gelu(F.linear(self.normed(x), layer["up"], layer["up_bias"])), layer["down"], self.zero)
        state = self.normed(x[:, -1])
        return state, F.linear(state, self.head)

    def objection(self, state, token):
        """How much the guard minds `token` (one number on the GPU) after a text with this state."""
        both = torch.cat((state, F.embedding(token, self.embedding)[0]))  # indexing by a single number would wait for it
        return F.linear(torch.tanh(F.linear(both, self.guard_in)), self.guard_out)


def choose(model, state, logits, seen):
    """A word for one text and its log-probability, still on the GPU. Two to four waits, one for each question."""
    scores = torch.where(seen, logits.float() - 1.5, logits.float()) / 0.9
    for objections in range(OBJECTIONS + 1):
        likeliest, which = scores.topk(100)
        chances = likeliest.softmax(-1)
        chances = torch.where(chances.cumsum(-1) - chances < 0.9, chances, 0.0)
        token = which[torch.multinomial(chances, 1)]
        if objections == OBJECTIONS or not bool(model.objection(state, token) > LIMIT):
            break
        scores[token] = float("-inf")
    word = token.item()
    seen[word] = True
    return word, scores.log_softmax(-1)[word]


def step(mark, model, ids, start, texts, surprises, seen):
    with mark("think"):
        states, logits = model.think(ids, start)
        if not bool(torch.isfinite(logits).all()):
            raise RuntimeError("the model has lost its mind")
    chances = []
    for i, text in enumerate(texts):
        with mark("choose"):
            word, chance = choose(model, states[i], logits[i], seen[i])
            text.append(word)
            chances.append(chance)
    for total, chance in zip(surprises, torch.stack(chances).cpu().tolist()):
        total.append(-chance)


def write(record, mark, model, prompts, steps, warm_up=False):
    length, texts, surprises = len(prompts[0]), [[] for _ in prompts], [[] for _ in prompts]
    seen = torch.zeros(BATCH, VOCABULARY, dtype=torch.bool, device="cuda")
    start = now()
    step(mark, model, torch.tensor(prompts).to("cuda"), 0, texts, surprises, seen)
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    for i in range(steps):
        begin = now()
        ids = torch.tensor([[text[-1]] for text in texts]).to("cuda")
        step(mark, model, ids, length + i, texts, surprises, seen)
        end = now()
        record.step("decode", begin, end, BATCH, BATCH, warm_up)
    for text, surprise in zip(texts, surprises):
        record.request(start, first, end, length, len(text), warm_up)
        assert all(0 <= token < VOCABULARY for token in text) and all(0 <= number < 1e4 for number in surprise)


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    chance, mark, record = random.Random(options.seed), ranges(options.ranges), Record()
    model = Model()
    torch.cuda.synchronize()

    def prompts(length):
        return [[chance.randrange(VOCABULARY) for _ in range(length)] for _ in range(BATCH)]

    write(record, mark, model, prompts(90), 3, warm_up=True)
    for steps in split(options.steps, max(8, min(25, options.steps // 6))):
        write(record, mark, model, prompts(chance.randrange(80, 113)), steps)
    record.finish()


main()
