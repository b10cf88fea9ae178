"""Translates forty-eight sentences at once from a checkpoint that was stored in single precision.

A step is one decode step, from its first call until the tokens are in a list on the host.
"""
import torch

from shared_loop import begin, finish, prompts, serve
from shared_model import Decoder, Model, Sizes

BATCH, PROMPT = 48, 64


def load_model(fixed):
    model = Model(Sizes(layers=10, batch=BATCH, dtype=torch.float32))
    if fixed:
        model = model.to(torch.bfloat16)
        torch.cuda.empty_cache()  # the weights in single precision
    return model


def main():
    options, record = begin(__doc__)
    model = load_model(options.fixed)
    decoder = Decoder(model)
    prompt = prompts(options.seed, BATCH, PROMPT, model.sizes.vocabulary)
    serve(record, prompt, 1, decoder.start, decoder.following, warm_up=True)
    texts = serve(record, prompt, options.steps, decoder.start, decoder.following)
    finish(record, texts, model.sizes.vocabulary)


main()
