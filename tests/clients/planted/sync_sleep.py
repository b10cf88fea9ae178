"""Planted: the host sleeps on an event after every layer to check its output (blocking synchronisation).
Healthy: one check in sixteen steps."""
import torch

from common import decode_request, options, repeat

LAYERS = 32
args = options(__doc__)
x = torch.ones(32 * 2**20, device="cuda", dtype=torch.float32)
flag = torch.zeros(1, device="cuda")
seen = torch.zeros(1).pin_memory()
event = torch.cuda.Event(blocking=True)


def check():
    seen.copy_(flag, non_blocking=True)
    event.record()
    event.synchronize()
    if seen[0] != 0:
        raise SystemExit("a layer gave a value that is not finite")


steps = 0


def step():
    global steps
    for _ in range(LAYERS):
        x.mul_(1.0)
        if not args.healthy:
            check()
    steps += 1
    if not args.healthy or steps % 16 == 0:
        check()


repeat(decode_request(step), args.seconds)
