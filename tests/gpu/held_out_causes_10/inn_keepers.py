"""Thirty-two guests of an inn are talked to, and the house is full. A thread at the reception brings word of new guests, who
wait until somebody leaves.

The steps are CUDA graphs. A step is one decode step with what is asked before it, from its first call until the tokens are in
a list on the host.
"""
import queue
import threading

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 32, 64, 32000
BETWEEN, PATIENCE = 0.2, 0.002  # seconds between two guests, and those that the door is watched
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)


class Reception(threading.Thread):
    def __init__(self, door):
        super().__init__(daemon=True)
        self.door, self.closed = door, threading.Event()

    def run(self):
        number = 0
        while not self.closed.wait(BETWEEN):
            number += 1
            self.door.put(number)

    def close(self):
        self.closed.set()
        self.join()


class Inn(Decoder):
    def __init__(self, model, fixed):
        super().__init__(model)
        self.fixed, self.door, self.waiting = fixed, queue.Queue(), []

    def guest(self):
        return self.door.get_nowait() if self.fixed else self.door.get(timeout=PATIENCE)

    def welcome(self):
        try:
            while True:
                self.waiting.append(self.guest())
        except queue.Empty:
            pass

    def following(self, i):
        self.welcome()
        return super().following(i)


def main():
    options, record = begin(__doc__)
    inn = Inn(Model(SHAPE), options.fixed)
    reception = Reception(inn.door)
    reception.start()
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, inn.start, inn.following, warm_up=True)
    texts = serve(record, prompt, options.steps, inn.start, inn.following)
    reception.close()
    print(f"{len(inn.waiting)} guests wait")
    finish(record, texts, VOCABULARY)


main()
