"""A program that copies to the host and waits in every way of PyTorch, a known number of times.

Prints a RESULT line: how often it waited for the GPU.
"""
import torch
from timing import print_result, stage

ROUNDS = 40


def main():
    on_gpu, on_host = torch.randn(1024, 1024, device="cuda"), torch.randn(1024, 1024)
    pinned, event = on_host.pin_memory(), torch.cuda.Event()

    def item():
        (on_gpu @ on_gpu)[0, 0].item()

    def to_host():
        (on_gpu @ on_gpu).cpu()

    def to_pinned():
        pinned.copy_(on_gpu @ on_gpu, non_blocking=True)
        torch.cuda.current_stream().synchronize()

    def to_gpu():  # the pageable copy waits for itself
        (on_host.to("cuda") + pinned.to("cuda", non_blocking=True)).sum()
        torch.cuda.synchronize()

    def by_event():
        product = on_gpu @ on_gpu
        event.record()
        event.synchronize()
        torch.zeros_like(product).copy_(product)
        torch.cuda.current_stream().synchronize()

    waits = 0
    for step, count in ((item, 1), (to_host, 1), (to_pinned, 1), (to_gpu, 2), (by_event, 2)):
        for _ in range(ROUNDS):
            with stage(step.__name__, True):
                step()
        waits += count * ROUNDS
    print_result("", waits=waits)


if __name__ == "__main__":
    main()
