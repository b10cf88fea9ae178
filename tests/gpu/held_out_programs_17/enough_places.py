"""Attention to as few places as hold three fifths of it: in six of eighteen layers the host is told how many these are.

A step is one pass through the model and the draw of a token, until `.item()` has it: a prefill step takes in one prompt, all
places of which are attended to, a decode step one token. A request is one text. With --ranges each layer's attention, in passes
of both kinds, has "attention" around it, and in that, where the host is told, "how many", whose end waits. There are no others.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch

from contract import Record, arguments, ranges
from parts import Reader, attended, begun, drawn, in_bands, one_text, prompt, shares_of

VOCABULARY, LENGTH, HELD = 32000, 640, 0.6
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 2048, 5632, 18, 16, 4
EACH = 3  # of so many layers the last one chooses, for itself and for those up to the next that does
BANDS = ((120, 180), (400, 560), (60, 90), (220, 310))  # of prompts' lengths, by turns


class Engine(Reader):
    def __init__(self, mark):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH)
        self.mark, self.asked, self.left_out = mark, 0, 0

    def choice(self, q, keys):
        """The places that hold enough of what all heads together attend to. The newest is always one of them."""
        with self.mark("how many"):
            mean = shares_of(q, keys).mean((0, 1))[0]
            mean[-1] += 1.0
            best = mean.sort(descending=True)
            count = (best.values.cumsum(0) < 1.0 + HELD).sum().item() + 1
        self.asked += 1
        self.left_out += keys.shape[1] - count
        return best.indices[:count]

    def run(self, ids, start):
        """Launches the pass over ids (count), the first of which stands at `start`, and the draw of `self.ids`."""
        end, one, chosen = start + ids.shape[0], start > 0, None
        hidden = None if one else self.columns[:end] > self.columns[:end, None]

        def attend(i, q, k, v):
            nonlocal chosen
            with self.mark("attention"):
                keys, values = self.cache[0, i, :, :end], self.cache[1, i, :, :end]
                keys[:, start:] = k
                values[:, start:] = v
                if one and i % EACH == EACH - 1:
                    chosen = self.choice(q, keys)
                if chosen is not None:
                    keys, values = keys.index_select(1, chosen), values.index_select(1, chosen)
                return attended(shares_of(q, keys, hidden), values)

        self.last = self.logits(self.through(ids, self.cos[start:end], self.sin[start:end], attend))
        self.ids = drawn(self.last, 0.8).view(1)


def write(engine, record, unmarked, tokens, steps, number, warm_up=False):
    asked = engine.asked
    one_text(record, unmarked, ("", "", ""), VOCABULARY, engine.prefill, engine.decode, tokens, steps, warm_up)
    assert bool(torch.isfinite(engine.last).all()) and len(tokens) + steps <= LENGTH
    assert engine.asked - asked == steps * (LAYERS // EACH) and engine.left_out > 0


def main():
    options = arguments(__doc__)
    unmarked, record = ranges(False), Record()
    chance, engine = begun(options.seed), Engine(ranges(options.ranges))
    torch.cuda.synchronize()
    answer = partial(write, engine, record, unmarked)
    answer(prompt(chance, VOCABULARY, 100), 4, 0, warm_up=True)
    in_bands(answer, chance, VOCABULARY, BANDS, options.steps, 3, 25)
    record.finish()


main()
