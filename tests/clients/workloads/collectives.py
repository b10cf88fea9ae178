"""Collectives of NCCL that are timed by CUDA events, and recorded by torch.profiler if --traces names a folder. Started by
torch.distributed.run; each rank has a GPU.

Parts, by --parts, each a trace of its own in FOLDER/PART/rankN.json:
  sizes  each kind of collective in each size, --calls times one behind the other; what one takes is the time between two
         events over these calls, divided by their number
  even   --calls steps of a product and an all-reduce, all ranks alike
  gpu    the same, the last rank late by --late-us in its GPU's work before each all-reduce
  host   the same, late in host code, all ranks waiting for their GPU in each step
Rank 0 prints what the events say of `sizes` and how long the late rank was late by its own clocks.
"""
import argparse
import contextlib
import os
import pathlib
import statistics
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--traces", type=pathlib.Path, metavar="FOLDER")
parser.add_argument("--parts", default="sizes,even,gpu,host")
parser.add_argument("--calls", type=int, default=40)
parser.add_argument("--megabytes", default="1,4,16,64,256", help="of one rank's whole buffer, 2**20 bytes each")
parser.add_argument("--late-us", type=float, default=600)
args = parser.parse_args()
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

import torch
import torch.distributed as dist

from timing import print_result

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
LATE_RANK = world - 1
SLEEP_CYCLES = 40_000_000  # 20 ms and more: forty launches beside a profiler take less


def kinds(elements):
    """{name: call} on buffers of so many elements in all; broadcast is rank 0's."""
    whole = torch.zeros(elements, dtype=torch.bfloat16, device=device)
    part = torch.zeros(elements // world, dtype=torch.bfloat16, device=device)
    return {"all_reduce": lambda: dist.all_reduce(whole, async_op=True),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, part, async_op=True),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, async_op=True),
            "broadcast": lambda: dist.broadcast(whole, 0, async_op=True)}


@contextlib.contextmanager
def recorded(part):
    if args.traces is None:
        yield
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as profile:
        yield
        torch.cuda.synchronize()
    folder = args.traces / part
    folder.mkdir(parents=True, exist_ok=True)
    profile.export_chrome_trace(str(folder / f"rank{rank}.json"))


def over_ranks(value, op):
    out = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(out, op=op)
    return out.item()


def time_calls(call):
    """Microseconds of one of many calls on NCCL's stream, by events around all of them. They are launched while the GPU still
    sleeps, so that no host sets the pace; the sleeps of the ranks end apart, and the shortest of the times is that of the rank
    whose sleep ended last."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    dist.barrier()
    torch.cuda._sleep(SLEEP_CYCLES)
    begin.record()
    works = [call() for _ in range(args.calls)]
    for work in works:
        work.wait()
    end.record()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end) / args.calls


def run_sizes():
    """[{name, bytes, us: without and with the profiler}]."""
    sizes = [(int(words) << 20, kinds((int(words) << 20) // 2)) for words in args.megabytes.split(",")]
    rows = [{"name": name, "bytes": size, "call": call} for size, calls in sizes for name, call in calls.items()]
    for row in rows:
        for _ in range(5):
            row["call"]()
        torch.cuda.synchronize()
        row["us_alone"] = over_ranks(time_calls(row["call"]), dist.ReduceOp.MIN)
    with recorded("sizes"):
        times = []
        for row in rows:
            times.append(time_calls(row["call"]))
    for row, us in zip(rows, times):
        row["us_recorded"] = over_ranks(us, dist.ReduceOp.MIN)
        del row["call"]
    return rows


def cycles_of(us):
    """How many cycles of torch.cuda._sleep take so long, and how long that then took, by events around forty."""
    cycles, took = us * 1000.0, us
    for _ in range(4):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(int(cycles))
        begin.record()
        for _ in range(40):
            torch.cuda._sleep(int(cycles))
        end.record()
        end.synchronize()
        took = 1e3 * begin.elapsed_time(end) / 40
        cycles *= us / took
    return int(cycles * took / us), took


def run_steps(part):
    """Steps of a product and an all-reduce; how late the late rank was in each, in us."""
    x = torch.zeros(2048, 2048, dtype=torch.bfloat16, device=device)
    late = rank == LATE_RANK and part != "even"
    cycles, took = cycles_of(args.late_us)
    late_us = []

    def step():
        y = x @ x
        if late and part == "gpu":
            torch.cuda._sleep(cycles)
            late_us.append(took)
        if part == "host":
            torch.cuda.synchronize()
            if late:
                begin = time.perf_counter()
                while time.perf_counter() < begin + args.late_us * 1e-6:
                    pass
                late_us.append(1e6 * (time.perf_counter() - begin))
        dist.all_reduce(y)
        if part == "host":
            torch.cuda.synchronize()

    for _ in range(10):
        step()
    torch.cuda.synchronize()
    dist.barrier()
    late_us.clear()
    with recorded(part):
        for _ in range(args.calls):
            step()
    return over_ranks(statistics.median(late_us) if late_us else 0.0, dist.ReduceOp.MAX)


result = {}
for part in args.parts.split(","):
    result[part] = run_sizes() if part == "sizes" else run_steps(part)
torch.cuda.synchronize()
if rank == 0:
    print_result("", world=world, calls=args.calls, late_rank=LATE_RANK, **result)
dist.destroy_process_group()
