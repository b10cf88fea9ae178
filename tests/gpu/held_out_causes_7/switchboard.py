"""Sixty-four callers at a switchboard, each of whom hears his text token by token; a thread with an event loop has their
lines.

The steps are CUDA graphs. A step is one decode step, from its first call until the tokens are in a list on the host and
handed over.
"""
import asyncio
import threading

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY = 64, 64, 32000
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)


class Lines:
    """What belongs to the thread of the event loop."""

    def __init__(self):
        self.heard = [[] for _ in range(BATCH)]
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    async def say(self, number, token):
        self.heard[number].append(token)

    def say_all(self, tokens):
        for line, token in zip(self.heard, tokens):
            line.append(token)

    async def hung_up(self):
        """What was heard; the lines are empty then."""
        heard, self.heard = self.heard, [[] for _ in range(BATCH)]
        return heard

    def ask(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


class Switchboard(Decoder):
    def __init__(self, model, fixed):
        self.fixed, self.lines = fixed, Lines()
        super().__init__(model, greedy)

    def connect(self, tokens):
        if self.fixed:
            self.lines.loop.call_soon_threadsafe(self.lines.say_all, tokens)
            return
        for number, token in enumerate(tokens):
            self.lines.ask(self.lines.say(number, token))

    def words(self):
        tokens = super().words()
        self.connect(tokens)
        return tokens


def main():
    options, record = begin(__doc__)
    board = Switchboard(Model(SHAPE), options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, board.start, board.following, warm_up=True)
    board.lines.ask(board.lines.hung_up())
    texts = serve(record, prompt, options.steps, board.start, board.following)
    assert board.lines.ask(board.lines.hung_up()) == texts
    board.lines.close()
    finish(record, texts, VOCABULARY)


main()
