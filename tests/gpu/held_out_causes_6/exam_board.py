"""Marks eight questions at a time, each of 960 tokens with four possible answers of 32 tokens: the answer whose tokens the
model finds likeliest is taken.

A step is one prefill of eight questions with their answers, from its first call until the numbers of the answers taken
are in a list on the host.
"""
import torch
from torch.nn import functional as F

from base_loop import Block, Model, Shape, begin, finish, prompts, serve_prefills

BATCH, QUESTION, ANSWERS, LENGTH, VOCABULARY = 8, 960, 4, 32, 32000
ALL = ANSWERS * LENGTH
SHAPE = Shape(layers=8, vocabulary=VOCABULARY, room=QUESTION + LENGTH, batch=BATCH)


class Examiner(Block):
    def behind(self, x, cos, sin, seen, keys, values):
        """Tokens that come behind others whose keys and values are kept; `seen` says which of all these they see."""
        query, key, value = self.split(x, cos, sin)
        key, value = torch.cat((keys, key), 2), torch.cat((values, value), 2)
        key, value = key.repeat_interleave(self.shape.group, 1), value.repeat_interleave(self.shape.group, 1)
        heads = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return self.close(x, heads.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))


class Board:
    def __init__(self, model, fixed, seed):
        self.model, self.fixed, self.cache = model, fixed, model.cache()
        self.questions = prompts(seed, 4 * BATCH, QUESTION, VOCABULARY).split(BATCH)
        self.answers = prompts(seed + 1, 4 * BATCH, ALL, VOCABULARY).split(BATCH)
        # The answers to a question stand side by side, and each sees the question and itself.
        token = torch.arange(ALL, device="cuda")
        own = (token // LENGTH == token.view(-1, 1) // LENGTH) & (token <= token.view(-1, 1))
        self.seen = torch.cat((torch.ones(ALL, QUESTION, dtype=torch.bool, device="cuda"), own), 1)
        place = QUESTION + token % LENGTH
        self.cos, self.sin = model.cos[place], model.sin[place]

    def together(self, questions, answers):
        """What the layers make of the tokens before each token of an answer: (BATCH * ANSWERS, LENGTH, width)."""
        texts = torch.cat((questions.repeat_interleave(ANSWERS, 0), answers.view(BATCH * ANSWERS, LENGTH)), 1)
        return self.model.hidden(texts)[:, QUESTION - 1:-1]

    def one_behind_the_other(self, questions, answers):
        model = self.model
        asked = model.hidden(questions, self.cache)[:, -1]
        x = model.embedding(answers)
        for block, keys, values in zip(model.blocks, *self.cache):
            x = block.behind(x, self.cos, self.sin, self.seen, keys[:, :, :QUESTION], values[:, :, :QUESTION])
        first = asked.view(BATCH, 1, 1, -1).expand(-1, ANSWERS, -1, -1)
        x = torch.cat((first, x.view(BATCH, ANSWERS, LENGTH, -1)[:, :, :-1]), 2)
        return x.view(BATCH * ANSWERS, LENGTH, -1)

    def read(self, i):
        questions, answers = self.questions[i % len(self.questions)], self.answers[i % len(self.answers)]
        x = (self.one_behind_the_other if self.fixed else self.together)(questions, answers)
        logits = self.model.head(self.model.blocks[0].norm(x, self.model.last))
        chances = logits.float().log_softmax(-1).gather(-1, answers.view(BATCH * ANSWERS, LENGTH, 1))
        return chances.view(BATCH, ANSWERS, LENGTH).sum(-1).argmax(-1).tolist()


def main():
    options, record = begin(__doc__)
    board = Board(Model(SHAPE, block=Examiner), options.fixed, options.seed)
    finish(record, serve_prefills(record, options.steps, board.read, BATCH, QUESTION + ALL), ANSWERS)


main()
