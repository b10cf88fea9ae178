"""Eight night watches hear their towers, which report every 20 ms, and say one token to each report. Between two reports a
watch has nothing to do but to file what was said.

The steps are CUDA graphs. A step is one decode step, from the arrival of the reports until the tokens are in a list on the
host; the wait for the reports is no part of it. --fixed is accepted and changes nothing.
"""
import json
import time
import zlib

import torch

from base_loop import Decoder, Model, Shape, begin, finish, now, prompts

BATCH, PROMPT, VOCABULARY, EVERY = 8, 64, 32000, 0.020
SHAPE = Shape(width=4096, inner=14336, layers=6, heads=32, kv_heads=8, vocabulary=VOCABULARY, batch=BATCH)


class Watch:
    def __init__(self, decoder):
        self.decoder, self.filed = decoder, []

    def wait(self, until):
        left = until - time.perf_counter()
        if left > 0:
            time.sleep(left)

    def file(self, texts):
        """In the time until the next reports, which is long."""
        said = json.dumps([{"watch": number, "tokens": text[-64:]} for number, text in enumerate(texts)])
        self.filed.append(len(zlib.compress(said.encode())))

    def serve(self, record, prompt, steps, warm_up=False):
        torch.cuda.synchronize()
        begun = now()
        texts = [[token] for token in self.decoder.start(prompt)]
        first = end = now()
        record.step("prefill", begun, first, prompt.numel(), BATCH, warm_up)
        arrival = time.perf_counter()
        for i in range(steps):
            arrival += EVERY
            self.wait(arrival)
            before = now()
            for text, token in zip(texts, self.decoder.following(i)):
                text.append(token)
            end = now()
            record.step("decode", before, end, BATCH, BATCH, warm_up)
            self.file(texts)
        for text in texts:
            record.request(begun, first, end, prompt.shape[1], len(text), warm_up)
        return texts


def main():
    options, record = begin(__doc__)
    watch = Watch(Decoder(Model(SHAPE)))
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    watch.serve(record, prompt, 1, warm_up=True)
    texts = watch.serve(record, prompt, options.steps)
    print(f"filed {sum(watch.filed)} bytes")
    finish(record, texts, VOCABULARY)


main()
