"""Planted: every request copies 32 MiB of inputs from pageable memory.
Healthy: pinned memory, copied on a stream of its own while the GPU works.

The copies stay under a fifth of the request on purpose: above that the finding is copy-bound, whatever the memory."""
import torch

from common import Ballast, options, prefill_request, repeat

args = options(__doc__)
ballast = Ballast()
host = torch.ones(8 * 2**20)
if args.healthy:
    host = host.pin_memory()
inputs = torch.empty_like(host, device="cuda")
side = torch.cuda.Stream()


def step():
    if args.healthy:
        with torch.cuda.stream(side):
            inputs.copy_(host, non_blocking=True)
    else:
        inputs.copy_(host)
    ballast(80)
    torch.cuda.current_stream().wait_stream(side)


repeat(prefill_request(step), args.seconds)
