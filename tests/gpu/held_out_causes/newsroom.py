"""Twenty-four reports are written at once while the newsroom counts which pairs of words its reports repeat.

A step is one decode step, from its first call until the tokens are in the reports on the host.
"""
import threading
import time

from shared_loop import begin, finish, prompts, serve
from shared_model import Decoder, Model, Sizes

BATCH, PROMPT, WINDOW = 24, 160, 320


def count_pairs(reports):
    """How many pairs of neighbouring words stand more than once in the last words of all reports."""
    counts = {}
    for report in reports:
        recent = report[-WINDOW:]
        for pair in zip(recent, recent[1:]):
            counts[pair] = counts.get(pair, 0) + 1
    return sum(count > 1 for count in counts.values())


def keep_counting(reports, closed, found):
    while not closed.is_set():
        found.append(count_pairs(reports))
        time.sleep(0.001)


class Newsroom(Decoder):
    def __init__(self, model, archive):
        self.reports = [list(words) for words in archive]
        super().__init__(model)

    def words(self):
        tokens = super().words()
        for report, token in zip(self.reports, tokens):
            report.append(token)
        return tokens


def main():
    options, record = begin(__doc__)
    model = Model(Sizes(layers=16, batch=BATCH))
    # What the newsroom has already written counts too.
    archive = prompts(options.seed + 1, BATCH, WINDOW, model.sizes.vocabulary).tolist()
    decoder = Newsroom(model, archive)
    prompt = prompts(options.seed, BATCH, PROMPT, model.sizes.vocabulary)
    closed, found = threading.Event(), []
    counter = threading.Thread(target=keep_counting, args=(decoder.reports, closed, found), daemon=True)
    if not options.fixed:
        counter.start()
    serve(record, prompt, 1, decoder.start, decoder.following, warm_up=True)
    texts = serve(record, prompt, options.steps, decoder.start, decoder.following)
    closed.set()
    if not options.fixed:
        counter.join()
    found.append(count_pairs(decoder.reports))
    assert all(count >= 0 for count in found)
    finish(record, texts, model.sizes.vocabulary)


main()
