"""Forty-eight tram drivers report; after each word the depot looks through its 4500 waiting passengers, in what order they
can board when the drivers have finished. Who drives now does not depend on it.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host and
the depot has a new order.
"""
import random
import zlib

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, WAITING = 48, 64, 32000, 4500
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)


class Passenger:
    def __init__(self, number, chance):
        self.number, self.since, self.bags = number, chance.randrange(1000), chance.randrange(1, 9)
        self.line = chance.randrange(BATCH)

    def urgency(self, time, reports):
        late = max(time - self.since, 0)
        return late * self.bags + reports[self.line] % 997


class Depot(Decoder):
    def __init__(self, model, fixed, seed):
        self.fixed, chance = fixed, random.Random(seed)
        self.passengers = [Passenger(number, chance) for number in range(WAITING)]
        self.time, self.sum, self.newest = 1000, 0, None
        super().__init__(model, greedy)

    def plan(self, reports):
        self.time += 1
        order = sorted(self.passengers, key=lambda one: (one.urgency(self.time, reports), one.number), reverse=True)
        places = {one.number: place for place, one in enumerate(order)}
        self.sum = zlib.crc32(repr((self.sum, order[0].number, places[0], places[WAITING - 1])).encode())

    def plan_newest(self):
        """Plans by the newest reports, unless that has been done."""
        if self.newest is not None:
            self.plan(self.newest)
            self.newest = None

    def start(self, prompt):
        tokens = super().start(prompt)
        self.newest = tokens
        if not self.fixed:
            self.plan_newest()
        return tokens

    def following(self, i):
        self.advance()
        # Those of the step before, while the GPU goes on with this one; the other twin has none left here.
        self.plan_newest()
        tokens = self.words()
        self.newest = tokens
        if not self.fixed:
            self.plan_newest()
        return tokens


def main():
    options, record = begin(__doc__)
    depot = Depot(Model(SHAPE), options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, depot.start, depot.following, warm_up=True)
    depot.plan_newest()
    texts = serve(record, prompt, options.steps, depot.start, depot.following)
    depot.plan_newest()
    print(f"plans {depot.time - 1000}, sum over them {depot.sum:08x}")
    finish(record, texts, VOCABULARY)


main()
