"""A desk that answers 24 complaints at once and keeps an eye on each: which have ended, and how sure the model is."""
from base_loop import *

SHAPE = Shape(batch=24)
FULL_STOP = 2


class Desk:
    def __init__(self, model, in_one_list):
        self.model, self.cache, self.in_one_list = model, model.cache(), in_one_list
        batch = model.shape.batch
        self.tokens = torch.zeros(batch, 1, dtype=torch.long, device="cuda")
        self.ended = torch.zeros(batch, 1, dtype=torch.bool, device="cuda")
        self.sure = torch.zeros(batch, 1, dtype=torch.float32, device="cuda")
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")
        self.scores = [0.0] * batch
        self.advance = replayed(self.write)

    def settle(self, logits):
        sure, tokens = logits.float().log_softmax(-1).max(-1, keepdim=True)
        self.tokens.copy_(tokens)
        self.sure.copy_(sure)
        self.ended.logical_or_(tokens == FULL_STOP)

    def write(self):
        self.settle(self.model.next(self.tokens, self.position, self.cache))
        self.position.add_(1)

    def check_answers(self):
        """The new word of each answer; the scores of those that go on are added up."""
        words = []
        for row in range(len(self.scores)):
            words.append(self.tokens[row, 0].item())
            if not self.ended[row, 0]:
                self.scores[row] += self.sure[row, 0].item()
        return words

    def check_list(self):
        """The same, from one list."""
        columns = torch.cat((self.tokens.double(), self.ended.double(), self.sure.double()), 1).tolist()
        words = []
        for row, (word, ended, sure) in enumerate(columns):
            words.append(int(word))
            if not ended:
                self.scores[row] += sure
        return words

    def check(self):
        return self.check_list() if self.in_one_list else self.check_answers()

    def open(self, prompt):
        self.ended.zero_()
        self.scores = [0.0] * len(self.scores)
        self.settle(self.model.logits(self.model.hidden(prompt, self.cache)))
        self.position.fill_(prompt.shape[1])
        return self.check()

    def answer(self, i):
        self.advance()
        return self.check()


def main():
    options, record = begin(__doc__)
    desk = Desk(Model(SHAPE), in_one_list=options.fixed)
    complaints = prompts(options.seed, SHAPE.batch, 48, SHAPE.vocabulary)
    serve(record, complaints, 1, desk.open, desk.answer, warm_up=True)
    texts = serve(record, complaints, options.steps, desk.open, desk.answer)
    finish(record, texts, SHAPE.vocabulary)


main()
