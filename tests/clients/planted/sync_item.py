"""Planted: .item() after every layer; the GPU has nothing queued whenever the host looks at a number.
Healthy: one look per step.

A layer is one pass over 64 MiB, about 30 us, so that the host could launch far ahead."""
import torch

from common import decode_request, options, repeat

LAYERS = 64
args = options(__doc__)
x = torch.ones(16 * 2**20, device="cuda", dtype=torch.float32)
flag = torch.zeros(1, device="cuda")


def step():
    for _ in range(LAYERS):
        x.mul_(1.0)
        if not args.healthy and flag.item() != 0:
            raise SystemExit("a layer gave a value that is not finite")


repeat(decode_request(step), args.seconds)
