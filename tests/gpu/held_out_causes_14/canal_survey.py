"""A survey of canals: four reports of 1024 words at a time, read by four layers of a wide model. The settings were made
when a fault in a kernel was sought."""
import os
import sys


def memory_settings(arguments):
    """What PyTorch's allocator is told before it starts."""
    if "--fixed" not in arguments:
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"


memory_settings(sys.argv)

from base_loop import *  # noqa: E402

BATCH, COUNT = 4, 1024
SHAPE = Shape(width=3584, inner=18944, layers=4, heads=28, kv_heads=4, room=COUNT, batch=BATCH)


class Surveyor:
    def __init__(self, model):
        self.model = model

    def survey(self, ids):
        return self.model.logits(self.model.hidden(ids)).argmax(-1).tolist()


def main():
    options, record = begin(__doc__)
    surveyor = Surveyor(Model(SHAPE))
    reports = [prompts(options.seed + i, BATCH, COUNT, SHAPE.vocabulary) for i in range(4)]
    texts = serve_prefills(record, options.steps, lambda i: surveyor.survey(reports[i % len(reports)]), BATCH, COUNT)
    finish(record, texts, SHAPE.vocabulary)


main()
