"""Comments on four games of chess by beam search, eight beams for each, behind the moves of a game, 960 tokens.

The steps, with the choice of the beams, are CUDA graphs. A step is one decode step, from its first call until the newest
tokens of all beams are in a list on the host. Lists of tokens are by place, so that a beam can change its list.
"""
import torch

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

GAMES, BEAMS, PROMPT, VOCABULARY = 4, 8, 960, 32000
BATCH, ROOM = GAMES * BEAMS, PROMPT + 320
SHAPE = Shape(vocabulary=VOCABULARY, room=ROOM, batch=BATCH)


class Club(Decoder):
    def __init__(self, model, fixed):
        # All beams of a game have the same keys and values of the prompt, wherever they come from.
        self.first = PROMPT if fixed else 0
        self.points = torch.zeros(BATCH, 1, device="cuda")
        self.base = torch.arange(GAMES, device="cuda").view(-1, 1) * BEAMS
        super().__init__(model, greedy)

    def reorder(self, origin):
        """Each beam takes over keys and values of the beam that it goes on from."""
        for part in self.cache:
            moved = part[:, :, :, self.first:]
            moved.copy_(moved[:, origin])

    def step(self):
        logits = self.model.next(self.tokens, self.position, self.cache)
        points, words = (logits.float().log_softmax(-1) + self.points).topk(BEAMS)
        points, index = points.view(GAMES, BEAMS * BEAMS).topk(BEAMS)
        self.points.copy_(points.view(BATCH, 1))
        self.tokens.copy_(words.view(GAMES, BEAMS * BEAMS).gather(1, index).view(BATCH, 1))
        self.reorder((index // BEAMS + self.base).view(BATCH))
        self.position.add_(1)

    def start(self, prompt):
        model = self.model
        x = model.embedding(prompt)
        for block, keys, values in zip(model.blocks, *self.cache):
            def keep(key, value, keys=keys, values=values):
                keys[:, :, :PROMPT] = key.repeat_interleave(BEAMS, 0)
                values[:, :, :PROMPT] = value.repeat_interleave(BEAMS, 0)
            x = block.whole(x, model.cos[:PROMPT], model.sin[:PROMPT], keep)
        points, words = model.logits(x).float().log_softmax(-1).topk(BEAMS)
        self.points.copy_(points.view(BATCH, 1))
        self.tokens.copy_(words.view(BATCH, 1))
        self.position.fill_(PROMPT)
        return self.words()


def main():
    options, record = begin(__doc__)
    club = Club(Model(SHAPE), options.fixed)
    prompt = prompts(options.seed, GAMES, PROMPT, VOCABULARY)
    serve(record, prompt, 1, club.start, club.following, warm_up=True)
    texts = serve(record, prompt, options.steps, club.start, club.following)
    finish(record, texts, VOCABULARY)


main()
