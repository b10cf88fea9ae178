"""Four proof readers comment on what they read. As in a test, it is counted how often each line of Python runs.

The steps are launched one kernel after the other. A step is one decode step, from its first call until the tokens are in a
list on the host.
"""
import sys

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 4, 64, 32000
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)
LEFT_OUT = "contract.py", "common_loop.py"  # the clock is not to be tested


class Coverage:
    def __init__(self):
        self.lines = {}

    def trace(self, frame, event, argument):
        if event == "call" and frame.f_code.co_filename.endswith(LEFT_OUT):
            return None
        if event == "line":
            line = frame.f_code.co_filename, frame.f_lineno
            self.lines[line] = self.lines.get(line, 0) + 1
        return self.trace

    def begin(self):
        sys.settrace(self.trace)

    def end(self):
        sys.settrace(None)


def main():
    options, record = begin(__doc__)
    readers = Decoder(Model(SHAPE), graphed=False)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    coverage = Coverage()
    coverage.begin()
    serve(record, prompt, 1, readers.start, readers.following, warm_up=True)
    if options.fixed:
        coverage.end()
    texts = serve(record, prompt, options.steps, readers.start, readers.following)
    coverage.end()
    print(f"{len(coverage.lines)} lines have run")
    finish(record, texts, VOCABULARY)


main()
