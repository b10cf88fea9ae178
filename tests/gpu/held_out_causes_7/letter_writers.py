"""Eight letter writers go on with letters of 512 tokens.

The steps are launched operation by operation. A step is one decode step, from its first call until the tokens are in a
list on the host.
"""
import torch

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY = 8, 512, 32000
SHAPE = Shape(vocabulary=VOCABULARY, room=PROMPT + 320, batch=BATCH)


class Writers:
    """Gives the model the letter as it stands, and asks for one more token."""

    def __init__(self, model):
        self.model, self.count = model, 0
        self.letters = torch.zeros(BATCH, SHAPE.room, dtype=torch.long, device="cuda")
        model.hidden(self.letters)  # the longest first, so that the allocator has room for all others

    def start(self, prompt):
        self.letters[:, :PROMPT] = prompt
        self.count = PROMPT
        return self.following(0)

    def following(self, i):
        tokens = greedy(self.model.logits(self.model.hidden(self.letters[:, :self.count])))
        self.letters[:, self.count:self.count + 1] = tokens
        self.count += 1
        return tokens[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    model = Model(SHAPE)
    # The fixed writers keep keys and values and give the model the newest token.
    writers = Decoder(model, graphed=False) if options.fixed else Writers(model)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, writers.start, writers.following, warm_up=True)
    texts = serve(record, prompt, options.steps, writers.start, writers.following)
    finish(record, texts, VOCABULARY)


main()
