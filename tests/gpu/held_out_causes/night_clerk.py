"""Four guests ask a night clerk, who answers word by word: greedy decoding with a cache of fixed size.

A step is one decode step, from its first call until the tokens are in a list on the host.
"""
from shared_loop import begin, finish, prompts, serve
from shared_model import Decoder, Model, Sizes

BATCH, PROMPT = 4, 128


def main():
    options, record = begin(__doc__)
    model = Model(Sizes(layers=14, batch=BATCH))
    decoder = Decoder(model, graphed=options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, model.sizes.vocabulary)
    serve(record, prompt, 1, decoder.start, decoder.following, warm_up=True)
    texts = serve(record, prompt, options.steps, decoder.start, decoder.following)
    finish(record, texts, model.sizes.vocabulary)


main()
