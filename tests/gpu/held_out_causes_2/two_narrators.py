"""Two narrators tell two stories: small deep models of their own, each on a stream of its own, two texts each.

Two layers make one CUDA graph. A step is one decode step of both, from its first call until all tokens are in a list on
the host.
"""
import torch

from common_loop import begin, finish, prompts, serve
from common_model import Model, Shape, greedy, replayed

BATCH, PROMPT, PAIRS, VOCABULARY = 2, 64, 24, 16000
SHAPE = Shape(width=1024, inner=2816, layers=2 * PAIRS, heads=8, kv_heads=2, vocabulary=VOCABULARY, batch=BATCH)


class Narrator:
    def __init__(self):
        self.model, self.stream, self.done = Model(SHAPE), torch.cuda.Stream(), torch.cuda.Event()
        self.cache = self.model.cache()
        self.tokens = torch.zeros(BATCH, 1, device="cuda", dtype=torch.long)
        self.position = torch.zeros(1, device="cuda", dtype=torch.long)
        self.x = torch.zeros(BATCH, 1, SHAPE.width, **SHAPE.made())
        self.places = [part.clone() for part in self.model.places(self.position)]
        pairs = [lambda pair=pair: self.pass_through(pair) for pair in range(PAIRS)]
        self.parts = [replayed(part, self.stream) for part in (self.look_up, *pairs, self.choose)]

    def look_up(self):
        for kept, part in zip(self.places, self.model.places(self.position)):
            kept.copy_(part)
        self.x.copy_(self.model.embedding(self.tokens))

    def pass_through(self, pair):
        x = self.x
        for i in (2 * pair, 2 * pair + 1):
            x = self.model.blocks[i].next(x, self.position, self.places, self.cache[0][i], self.cache[1][i])
        self.x.copy_(x)

    def choose(self):
        self.tokens.copy_(greedy(self.model.logits(self.x)))
        self.position.add_(1)

    def start(self, prompt):
        self.tokens.copy_(greedy(self.model.logits(self.model.hidden(prompt, self.cache))))
        self.position.fill_(PROMPT)


class Evening:
    def __init__(self, fixed):
        self.fixed, self.narrators = fixed, (Narrator(), Narrator())

    def words(self):
        return torch.cat([narrator.tokens for narrator in self.narrators])[:, 0].tolist()

    def start(self, prompt):
        for narrator, part in zip(self.narrators, prompt.split(BATCH)):
            narrator.start(part)
        return self.words()

    def take_turns(self, part):
        """Queues one part of either narrator, which here waits for what the other one did last."""
        first, second = self.narrators
        for narrator, other in ((first, second), (second, first)):
            with torch.cuda.stream(narrator.stream):
                if not self.fixed:
                    narrator.stream.wait_event(other.done)
                narrator.parts[part]()
                if not self.fixed:
                    narrator.done.record(narrator.stream)

    def following(self, i):
        for narrator in self.narrators:
            narrator.stream.wait_stream(torch.cuda.current_stream())
        for part in range(PAIRS + 2):
            self.take_turns(part)
        for narrator in self.narrators:
            torch.cuda.current_stream().wait_stream(narrator.stream)
        return self.words()


def main():
    options, record = begin(__doc__)
    evening = Evening(options.fixed)
    prompt = prompts(options.seed, 2 * BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, evening.start, evening.following, warm_up=True)
    texts = serve(record, prompt, options.steps, evening.start, evening.following)
    finish(record, texts, VOCABULARY)


main()
