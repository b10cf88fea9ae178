"""Planted: an inner size of 14337 for 16-bit matrices: rows that start at no multiple of 16 bytes.
Healthy: padded to 14400.

Passes over memory fill the rest of a request, so that neither arithmetic nor weights are what limits it."""
from common import Ballast, options, prefill_request, random, repeat

HIDDEN, TOKENS = 4096, 4096
args = options(__doc__)
inner = 14400 if args.healthy else 14337
up, down = random(inner, HIDDEN), random(HIDDEN, inner)
x = random(TOKENS, HIDDEN)
ballast = Ballast()


def step():
    ballast(8)
    y = (x @ up.t()) @ down.t()
    ballast(8)
    return y


repeat(prefill_request(step), args.seconds)
