"""Planted: some 4 ms of Python between the steps (a scheduler that sorts its requests) while the GPU waits.
Healthy: the same steps without it."""
from common import Ballast, decode_request, options, repeat

args = options(__doc__)
ballast = Ballast()
waiting = [(i * 7919 % 10007, i) for i in range(12000)]


def schedule():
    order = sorted(waiting, key=lambda request: request[0])
    return sum(priority for priority, _ in order[::2])


def step():
    if not args.healthy:
        schedule()
    ballast(6)


repeat(decode_request(step), args.seconds)
