"""Planted: large bf16 products without a pause, until the power limit lowers the clock.
Healthy: the same products at an eighth of the duty, far below the limit."""
import time

import torch

from common import options, random, repeat, stage

args = options(__doc__)
a, b = random(8192, 8192), random(8192, 8192)
out = torch.empty_like(a)
PRODUCTS = 4  # 1.6 ms each


def request():
    for _ in range(1 if args.healthy else 16):
        with stage("prefill"):
            for _ in range(PRODUCTS):
                torch.mm(a, b, out=out)
            torch.cuda.synchronize()
    if args.healthy:
        time.sleep(0.05)


repeat(request, max(5.0, args.seconds))  # the driver's power average takes a second to get there
