"""A jury that reads eight poems of 512 words at a time: each gets a mark, the mean of the logarithms of the chances the
model gives to its words, and the word that would come next."""
from base_loop import *

BATCH, COUNT = 8, 512
SHAPE = Shape(kv_heads=16, vocabulary=32768, room=COUNT, batch=BATCH)


class Jury:
    def __init__(self, model, kind):
        self.model = model
        shape = model.shape
        self.ballot = nn.Linear(shape.width, shape.vocabulary, bias=False, device="cuda", dtype=torch.float32).to(kind)
        model.head = self.ballot
        self.marks = []

    def chances(self, ids):
        """The logarithms, for all words of the vocabulary at all places."""
        model = self.model
        x = model.blocks[0].norm(model.hidden(ids), model.last)
        return self.ballot(x.to(self.ballot.weight.dtype)).float().log_softmax(-1)

    def judge(self, ids):
        chances = self.chances(ids)
        marks = chances[:, :-1].gather(-1, ids[:, 1:, None]).mean((1, 2))
        verdict = torch.stack((chances[:, -1].argmax(-1).double(), marks.double()), 1).tolist()
        self.marks.append([mark for _, mark in verdict])
        return [int(word) for word, _ in verdict]


def main():
    options, record = begin(__doc__)
    jury = Jury(Model(SHAPE), torch.bfloat16 if options.fixed else torch.float32)
    poems = [prompts(options.seed + i, BATCH, COUNT, SHAPE.vocabulary) for i in range(4)]
    texts = serve_prefills(record, options.steps, lambda i: jury.judge(poems[i % len(poems)]), BATCH, COUNT)
    finish(record, texts, SHAPE.vocabulary)


main()
