"""A print shop that proofreads four pages of 512 words at a time, on a card that was once too small for it."""
from base_loop import *

BATCH, COUNT = 4, 512
SHAPE = Shape(room=COUNT, batch=BATCH)


class Press:
    def __init__(self, model, keeps_memory):
        self.model, self.keeps_memory = model, keeps_memory

    def clear_table(self):
        """Gives back what the layer does not need any more, so that the next one has room."""
        if not self.keeps_memory:
            torch.cuda.empty_cache()

    def proofread(self, ids):
        model = self.model
        x = model.embedding(ids)
        for block in model.blocks:
            x = block.whole(x, model.cos[:ids.shape[1]], model.sin[:ids.shape[1]])
            self.clear_table()
        return model.logits(x).argmax(-1).tolist()


def main():
    options, record = begin(__doc__)
    press = Press(Model(SHAPE), keeps_memory=options.fixed)
    pages = [prompts(options.seed + i, BATCH, COUNT, SHAPE.vocabulary) for i in range(4)]
    texts = serve_prefills(record, options.steps, lambda i: press.proofread(pages[i % len(pages)]), BATCH, COUNT)
    finish(record, texts, SHAPE.vocabulary)


main()
