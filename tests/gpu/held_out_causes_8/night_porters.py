"""Sixteen night porters write down what happens in their hotels.

The steps are launched operation by operation. A step is one decode step, from its first call until the tokens are in a
list on the host.
"""
import os
import sys

if "--fixed" not in sys.argv:
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # so that an error is reported at the line that made it

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve  # noqa: E402

BATCH, PROMPT, VOCABULARY = 16, 64, 32000
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)


def main():
    options, record = begin(__doc__)
    porters = Decoder(Model(SHAPE), graphed=False)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, porters.start, porters.following, warm_up=True)
    texts = serve(record, prompt, options.steps, porters.start, porters.following)
    finish(record, texts, VOCABULARY)


main()
