"""Planted: weights live in (pinned) host memory and are copied to the GPU in every step.
Healthy: they stay on the GPU."""
import torch

from common import decode_request, options, random, repeat

args = options(__doc__)
LAYERS, HIDDEN = 4, 4096
resident = [random(HIDDEN, HIDDEN) for _ in range(LAYERS)]
offloaded = [weight.cpu().pin_memory() for weight in resident]
room = torch.empty_like(resident[0])
x = random(16, HIDDEN)


def step():
    y = x
    for layer in range(LAYERS):
        weight = resident[layer]
        if not args.healthy:
            weight = room.copy_(offloaded[layer], non_blocking=True)
        y = y @ weight
    return y


repeat(decode_request(step), args.seconds)
