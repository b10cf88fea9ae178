"""What both workloads share: the recording of a program by torch.profiler, stage ranges, turns, the RESULT line."""
import contextlib
import json
import os
import sys

from torch.cuda import nvtx


@contextlib.contextmanager
def torch_profiler(trace, full=False):
    """Records into the file `trace` with torch.profiler's defaults, or with shapes and Python stacks if `full`; records
    nothing if `trace` is empty."""
    if not trace:
        yield
        return
    from torch.profiler import ProfilerActivity, profile
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, record_shapes=full, with_stack=full) as recording:
        yield
    recording.export_chrome_trace(trace)


def torch_profiler_again(folder):
    """torch_profiler into the next file of `folder`."""
    return torch_profiler(os.path.join(folder, f"again-{len(os.listdir(folder))}.json"))


def shift_memory(steps):
    """Allocates memory, another amount for each number of steps, and returns it: small tensors that come later lie
    elsewhere, and the time of a kernel of one microsecond depends on that by some percent."""
    import torch
    return [torch.empty(size, dtype=torch.uint8, device="cuda") for i in range(steps)
            for size in (512 * (2 * i + 1), (2 * i + 3) << 20)]


def stage(name, measured):
    """An NVTX range; warm-up runs are not measured and have none."""
    return nvtx.range(name) if measured else contextlib.nullcontext()


def take_turns(turns, measure, times):
    """measure(times) once. With `turns`, once for every number on stdin, of so many requests or rounds each: programs
    that are all ready can then take turns on one GPU, and a comparison of them takes no account of its drift."""
    if turns == 0:
        measure(times)
        return
    print("READY", flush=True)
    for _ in range(turns):
        line = sys.stdin.readline()
        if not line.strip():
            return
        measure(int(line))


def print_result(trace, **values):
    if trace:
        values["trace_bytes"] = os.path.getsize(trace)
    print("RESULT " + json.dumps(values), flush=True)
