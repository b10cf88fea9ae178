"""What the programs of this folder share: their arguments, their clock, their ranges and the one line they end with."""
import argparse
import contextlib
import importlib.util
import json
import os
import sys
import time

KINDS = ("prefill", "decode", "mixed", "vision", "other")


def loaded(name, path):
    """The module at this path, which others of the same file's name do not hide."""
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=20, help="steps to run after the program's own warm-up, 5 to 500 (README.md says of what)")
    parser.add_argument("--ranges", action="store_true", help="mark the stages by NVTX ranges")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.steps < 5:
        parser.error("--steps: at least 5")
    return arguments


def now():
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


def ranges(on):
    """`with mark("words"):` is an NVTX range, or nothing."""
    if not on:
        return lambda words: contextlib.nullcontext()
    from torch.cuda import nvtx
    return nvtx.range


def split(total, parts):
    """`total` as up to `parts` positive whole numbers that differ by at most one, the larger ones last."""
    parts = min(total, parts)
    return [total // parts + (i >= parts - total % parts) for i in range(parts)]


PACE_EVERY_NS = 5_000_000


def pace_ns():
    """How long the same work takes: half as long again where another program runs on the other half of the CPU's core."""
    start, work = time.perf_counter_ns(), 0
    for i in range(300):
        work += i * i % 7
    return time.perf_counter_ns() - start


class Record:
    def __init__(self):
        self.program = os.path.splitext(os.path.basename(sys.argv[0]))[0]
        self.steps = []
        self.requests = []
        self.paces = []  # when, and how long the work took: between steps, 5 ms apart or more

    def pace(self):
        if not self.paces or now() - self.paces[-1][0] >= PACE_EVERY_NS:
            took = pace_ns()
            self.paces.append((now(), took))

    def step(self, kind, start, end, tokens, sequences, warm_up=False):
        assert kind in KINDS and 0 < start <= end and tokens > 0 and sequences > 0
        self.steps.append(dict(kind=kind, start_ns=start, end_ns=end, tokens=tokens, sequences=sequences, warm_up=warm_up))
        self.pace()

    def divided(self, kind, start, end, count, tokens, sequences, warm_up=False):
        """`count` equal steps queued one after the other, of which only the wait after the last is known. `tokens` of each."""
        for i in range(count):
            self.step(kind, start + (end - start) * i // count, start + (end - start) * (i + 1) // count, tokens, sequences, warm_up)

    def request(self, start, first_token, end, prompt_tokens, output_tokens, warm_up=False):
        assert 0 < start <= first_token <= end and prompt_tokens > 0 and output_tokens >= 0
        self.requests.append(dict(start_ns=start, first_token_ns=first_token, end_ns=end, prompt_tokens=prompt_tokens,
                                  output_tokens=output_tokens, warm_up=warm_up))

    def finish(self):
        assert self.steps and self.requests
        print(json.dumps(dict(program=self.program, steps=self.steps, requests=self.requests, paces=self.paces)), flush=True)
