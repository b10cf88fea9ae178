"""Steps whose order is that of streams, events and the edges of a CUDA graph: kernels that spin on one SM for a known time.

  events      a kernel on the side stream waits for one on the main stream by an event; the host waits for an event
  one_stream  the host waits for the main stream, beside which a kernel runs on the side stream, and goes on
  graph       a CUDA graph that forks and joins

Each step is an NVTX range of that name, and waits until all is done. The RESULT line has the times of the kernels that a
step cannot hide, measured alone, and of the steps.
"""
import argparse
import statistics
import time

import torch

from timing import print_result, stage

WARM_UP = 5
# Milliseconds of each kernel, as asked for; what they took is measured.
FIRST, SECOND = 1.0, 0.8
SHORT, LONG, NEXT = 0.6, 1.2, 1.0
ROOT, LEFT, RIGHT, JOIN = 0.3, 1.5, 0.5, 0.4


class Spin:
    """Kernels by the time they take, which the clock of the moment makes a number of cycles."""

    def __init__(self):
        self.cycles_per_ms = 1e6
        for _ in range(3):
            self.cycles_per_ms /= self.alone(1.0)

    def __call__(self, ms):
        torch.cuda._sleep(int(ms * self.cycles_per_ms))

    def alone(self, ms):
        times = []
        for _ in range(9):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            self(ms)
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return statistics.median(times)


def steps_of(spin):
    main, side = torch.cuda.Stream(), torch.cuda.Stream()
    made, done = torch.cuda.Event(), torch.cuda.Event()

    def events():
        with torch.cuda.stream(main):
            spin(FIRST)
            made.record(main)
        side.wait_event(made)
        with torch.cuda.stream(side):
            spin(SECOND)
            done.record(side)
        done.synchronize()

    def one_stream():
        with torch.cuda.stream(side):
            spin(LONG)
        with torch.cuda.stream(main):
            spin(SHORT)
            main.synchronize()
            spin(NEXT)
            main.synchronize()
        side.synchronize()

    def captured():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=main):
            spin(ROOT)
            side.wait_stream(main)
            with torch.cuda.stream(side):
                spin(RIGHT)
            spin(LEFT)
            main.wait_stream(side)
            spin(JOIN)
        return graph

    def graph():
        if not graph.made:
            graph.made.append(captured())
        with torch.cuda.stream(main):
            graph.made[0].replay()
            main.synchronize()

    graph.made = []
    return {"events": (events, [FIRST, SECOND]), "one_stream": (one_stream, [SHORT, NEXT]),
            "graph": (graph, [ROOT, LEFT, JOIN])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", default="events,one_stream,graph")
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    spin, values = Spin(), {}
    steps = steps_of(spin)
    for name in args.stages.split(","):
        step, path = steps[name]
        for _ in range(WARM_UP):
            step()
        times = []
        for _ in range(args.steps):
            begin = time.perf_counter()
            with stage(name, True):
                step()
            times.append((time.perf_counter() - begin) * 1e3)
        values[name] = {"kernels_ms": sum(spin.alone(ms) for ms in path), "step_ms": statistics.median(times)}
    print_result("", steps=args.steps, stages=values)


if __name__ == "__main__":
    main()
