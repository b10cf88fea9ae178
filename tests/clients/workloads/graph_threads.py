"""Threads that launch CUDA graphs of their own, each on its stream, and check what they computed; one of them eager kernels too.

Prints a RESULT line: how many graphs were launched and how many came out wrong.

    graph_threads.py [--threads 3] [--seconds 8]
"""
import argparse
import threading
import time

import torch
from timing import print_result

KERNELS = 200  # of a graph, each adds one
RESETS = 50    # launches of a graph between two checks


def work(number, until, counts):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        sums = torch.zeros(1 << 14, device="cuda")
        beside = torch.zeros(1 << 14, device="cuda")
        graph = torch.cuda.CUDAGraph()
        stream.synchronize()
        with CAPTURES:  # PyTorch captures one graph at a time
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                for _ in range(KERNELS):
                    sums.add_(1)
        READY.wait()
        while time.monotonic() < until[0]:
            sums.zero_()
            beside.zero_()
            for _ in range(RESETS):
                graph.replay()
                if number == 0:
                    beside.add_(1)
                if number != 1:
                    stream.synchronize()
            right = bool((sums == KERNELS * RESETS).all())
            if number == 0:
                right = right and bool((beside == RESETS).all())
            counts[number][0] += RESETS
            counts[number][1] += not right


CAPTURES, READY = threading.Lock(), None


def main():
    global READY
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    args = parser.parse_args()
    torch.zeros(1, device="cuda").add_(1)
    torch.cuda.synchronize()
    until, counts = [0.0], [[0, 0] for _ in range(args.threads)]
    READY = threading.Barrier(args.threads, action=lambda: until.__setitem__(0, time.monotonic() + args.seconds))
    threads = [threading.Thread(target=work, args=(i, until, counts)) for i in range(args.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print_result("", launched=sum(one[0] for one in counts), wrong=sum(one[1] for one in counts),
                 each=[one[0] for one in counts])


if __name__ == "__main__":
    main()
