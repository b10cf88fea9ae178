"""What both workloads share: the recording of a program by torch.profiler, stage ranges, the RESULT line."""
import contextlib
import json
import os

from torch.cuda import nvtx


@contextlib.contextmanager
def torch_profiler(trace):
    """Records into the file `trace` with torch.profiler's defaults; records nothing if it is empty."""
    if not trace:
        yield
        return
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recording:
        yield
    recording.export_chrome_trace(trace)


def stage(name, measured):
    """An NVTX range; warm-up runs are not measured and have none."""
    return nvtx.range(name) if measured else contextlib.nullcontext()


def print_result(trace, **values):
    if trace:
        values["trace_bytes"] = os.path.getsize(trace)
    print("RESULT " + json.dumps(values), flush=True)
