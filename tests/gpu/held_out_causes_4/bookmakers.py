"""Sixty-four bookmakers go on talking, and after each word they note the chance of that word and those of eight horses.

The model's step is a CUDA graph that also leaves the chances of all words on the GPU. A step is one decode step, from
its first call until the tokens and the chances to be noted are in lists on the host.
"""
import torch

from base_loop import Decoder, Model, Shape, begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, HORSES = 64, 48, 32000, 8
SHAPE = Shape(layers=8, vocabulary=VOCABULARY, batch=BATCH)


class Bookmakers(Decoder):
    def __init__(self, model, seed):
        generator = torch.Generator().manual_seed(seed)
        self.horses = torch.randint(VOCABULARY, (HORSES,), generator=generator).expand(BATCH, -1).contiguous()
        self.chances = torch.zeros(BATCH, VOCABULARY, device="cuda")
        self.book = []
        super().__init__(model, self.choose_and_weigh)

    def choose_and_weigh(self, logits):
        self.chances.copy_(logits.float().log_softmax(-1))
        return greedy(logits)

    def look_up(self, tokens):
        """The table of chances goes to the host, where those asked for are found."""
        table = self.chances.cpu()
        return table.gather(1, torch.cat((torch.tensor(tokens).view(-1, 1), self.horses), 1)).tolist()

    def words(self):
        tokens = super().words()
        self.book.append(self.look_up(tokens))
        return tokens


class QuickBookmakers(Bookmakers):
    """Finds them on the GPU."""

    def __init__(self, model, seed):
        super().__init__(model, seed)
        self.horses_there = self.horses.cuda()

    def look_up(self, tokens):
        return self.chances.gather(1, torch.cat((self.tokens, self.horses_there), 1)).tolist()


def main():
    options, record = begin(__doc__)
    bookmakers = (QuickBookmakers if options.fixed else Bookmakers)(Model(SHAPE), options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, bookmakers.start, bookmakers.following, warm_up=True)
    bookmakers.book.clear()
    texts = serve(record, prompt, options.steps, bookmakers.start, bookmakers.following)
    total = sum(sum(row) for rows in bookmakers.book for row in rows)
    print(f"chances noted {len(bookmakers.book) * BATCH * (1 + HORSES)}, their sum {total:.1f}")
    finish(record, texts, VOCABULARY)


main()
