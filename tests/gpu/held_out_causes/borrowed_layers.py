"""A model a little too large: two of its layers lie in the host's memory and take turns in one place on the GPU.

In each decode step a second stream fetches the weights of either layer before its turn. The other layers stay on the
GPU; they are two CUDA graphs, the two borrowed layers two more. A step is one decode step, from its first call until
the tokens are in a list on the host.
"""
import torch

from shared_loop import begin, finish, prompts, serve
from shared_model import Layer, Model, Sizes, greedy, replayed

BATCH, PROMPT, HALF = 64, 64, 8


class Borrowing:
    def __init__(self, model, fixed):
        self.model, self.fixed = model, fixed
        self.copying, self.fetched = torch.cuda.Stream(), torch.cuda.Event()
        self.borrowed = [Layer(model.sizes) for _ in range(2)]
        self.place, self.stored = self.move_out()
        self.tokens = torch.zeros(BATCH, 1, device="cuda", dtype=torch.long)
        self.position = torch.zeros(1, device="cuda", dtype=torch.long)
        self.x = torch.zeros(BATCH, 1, model.sizes.width, device="cuda", dtype=model.sizes.dtype)
        # Either half: the layers that stay, then the borrowed one.
        self.stay = [replayed(self.first_stay), replayed(self.second_stay)]
        self.guest = [replayed(self.first_guest), replayed(self.second_guest)]

    def move_out(self):
        """Packs the borrowed layers' weights in pinned memory and lets both layers look at one place on the GPU."""
        flats = [torch.cat([weight.flatten() for weight in layer.parameters()]) for layer in self.borrowed]
        place = flats[0].clone()
        for layer in self.borrowed:
            start = 0
            for weight in layer.parameters():
                weight.data = place[start:start + weight.numel()].view(weight.shape)
                start += weight.numel()
        return place, [flat.cpu().pin_memory() for flat in flats]

    def pass_through(self, layers):
        cos, sin, mask = self.model.places(self.position)
        x = self.x
        for layer in layers:
            x = layer.decode(x, self.position, cos, sin, mask)
        self.x.copy_(x)

    def first_stay(self):
        self.x.copy_(self.model.embedding(self.tokens))
        self.pass_through(self.model.layers[:HALF])

    def first_guest(self):
        self.pass_through(self.borrowed[:1])

    def second_stay(self):
        self.pass_through(self.model.layers[HALF:])

    def second_guest(self):
        self.pass_through(self.borrowed[1:])
        self.tokens.copy_(greedy(self.model.logits(self.x)))
        self.position.add_(1)

    def fetch(self, which):
        """Queues the copy of a borrowed layer behind all that the GPU has been given so far."""
        self.copying.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.copying):
            self.place.copy_(self.stored[which], non_blocking=True)
            self.fetched.record()

    def half(self, which):
        if self.fixed:
            self.fetch(which)
            self.stay[which]()
        else:
            self.stay[which]()
            self.fetch(which)
        torch.cuda.current_stream().wait_event(self.fetched)
        self.guest[which]()

    def start(self, prompt):
        cos, sin = self.model.cos[:PROMPT], self.model.sin[:PROMPT]
        x = self.model.embedding(prompt)
        for which in range(2):
            for layer in self.model.layers[HALF * which:HALF * (which + 1)]:
                x = layer.prefill(x, cos, sin)
            self.place.copy_(self.stored[which], non_blocking=True)
            x = self.borrowed[which].prefill(x, cos, sin)
        self.tokens.copy_(greedy(self.model.logits(x)))
        self.position.fill_(PROMPT)
        return self.tokens[:, 0].tolist()

    def following(self, i):
        self.half(0)
        self.half(1)
        return self.tokens[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    model = Model(Sizes(inner=4096, layers=2 * HALF, length=1024, batch=BATCH))
    borrowing = Borrowing(model, options.fixed)
    prompt = prompts(options.seed, BATCH, PROMPT, model.sizes.vocabulary)
    serve(record, prompt, 1, borrowing.start, borrowing.following, warm_up=True)
    texts = serve(record, prompt, options.steps, borrowing.start, borrowing.following)
    finish(record, texts, model.sizes.vocabulary)


main()
