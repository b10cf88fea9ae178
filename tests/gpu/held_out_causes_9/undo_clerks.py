"""Thirty-two clerks write forms that can be taken back by one step, should the GPU's memory not suffice.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are with the forms.
"""
import copy

import torch

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 32, 128, 32000
SHAPE = Shape(vocabulary=VOCABULARY, batch=BATCH)


class Clerks(Decoder):
    def __init__(self, model, fixed):
        super().__init__(model)
        self.fixed, self.forms, self.before = fixed, [], None

    def start(self, prompt):
        words = super().start(prompt)
        self.forms = [{"clerk": number, "tokens": asked + [word], "state": "open"}
                      for number, (asked, word) in enumerate(zip(prompt.tolist(), words))]
        return words

    def save(self):
        if self.fixed:
            self.before = [len(form["tokens"]) for form in self.forms]
        else:
            self.before = copy.deepcopy(self.forms)

    def undo(self):
        if self.fixed:
            for form, length in zip(self.forms, self.before):
                del form["tokens"][length:]
        else:
            self.forms = self.before

    def following(self, i):
        self.save()
        try:
            words = super().following(i)
        except torch.cuda.OutOfMemoryError:
            self.undo()
            raise
        for form, word in zip(self.forms, words):
            form["tokens"].append(word)
        return words


def main():
    options, record = begin(__doc__)
    clerks = Clerks(Model(SHAPE), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, clerks.start, clerks.following, warm_up=True)
    texts = serve(record, prompt, options.steps, clerks.start, clerks.following)
    print(f"forms of {sum(len(form['tokens']) for form in clerks.forms)} tokens")
    finish(record, texts, VOCABULARY)


main()
