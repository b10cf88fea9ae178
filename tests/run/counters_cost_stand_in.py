"""Programs of tests/run/counters_cost_test.py: a step of 2 ms that knows nothing of a GPU."""
import time


class Sleeps:
    def step(self):
        time.sleep(0.002)


PROGRAMS = {"items": Sleeps}
