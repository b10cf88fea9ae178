"""A pocket translator: one sentence, continued word by word by a deep and narrow model."""
from base_loop import *

SHAPE = Shape(width=1280, inner=3456, layers=28, heads=8, kv_heads=2, batch=1)


class Translator:
    def __init__(self, model, captured):
        self.model, self.cache = model, model.cache()
        self.word = torch.zeros(1, 1, dtype=torch.long, device="cuda")
        self.place = torch.zeros(1, dtype=torch.long, device="cuda")
        self.say = replayed(self.write_word) if captured else self.write_word

    def write_word(self):
        logits = self.model.next(self.word, self.place, self.cache)
        self.word.copy_(logits.argmax(-1, keepdim=True))
        self.place.add_(1)

    def read_sentence(self, prompt):
        logits = self.model.logits(self.model.hidden(prompt, self.cache))
        self.word.copy_(logits.argmax(-1, keepdim=True))
        self.place.fill_(prompt.shape[1])
        return self.word[:, 0].tolist()

    def next_word(self, i):
        self.say()
        return self.word[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    translator = Translator(Model(SHAPE), captured=options.fixed)
    sentence = prompts(options.seed, 1, 48, SHAPE.vocabulary)
    serve(record, sentence, 1, translator.read_sentence, translator.next_word, warm_up=True)
    texts = serve(record, sentence, options.steps, translator.read_sentence, translator.next_word)
    finish(record, texts, SHAPE.vocabulary)


main()
