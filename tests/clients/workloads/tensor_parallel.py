"""Decode steps of a small tensor-parallel model: one process a GPU, each with its part of every matrix, an NCCL all-reduce
after attention and after the MLP. Started by torch.distributed.run.

Rank 0 prints the median of its own step times, and how many products and all-reduces a step has on each GPU. --late-rank
makes one rank late by --late-us a step, in its GPU's work or in the host code before that.
"""
import argparse
import os
import statistics
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--hidden", type=int, default=4096)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--one-visible", action="store_true", help="each process sees one GPU, which is its first")
parser.add_argument("--late-rank", type=int, default=-1)
parser.add_argument("--late-us", type=float, default=400)
parser.add_argument("--late-by", choices=["gpu", "host"], default="gpu")
args = parser.parse_args()
rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
if args.one_visible:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[rank] if len(visible) > rank else str(rank)

import torch
import torch.distributed as dist
from torch.cuda import nvtx

from timing import print_result

device = torch.device("cuda", 0 if args.one_visible else rank)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
hidden, part, inner = args.hidden, args.hidden // world, 4 * args.hidden // world


def weight(*shape):
    return torch.randn(*shape, device=device, dtype=torch.bfloat16) * 0.01


layers = [(weight(hidden, 3 * part), weight(part, hidden), weight(hidden, inner), weight(inner, hidden))
          for _ in range(args.layers)]
x = weight(args.batch, hidden)

late = rank == args.late_rank
cycles_per_us = 1000.0


def late_gpu():
    torch.cuda._sleep(int(args.late_us * cycles_per_us))


def late_host():
    end = time.perf_counter() + args.late_us * 1e-6
    while time.perf_counter() < end:
        pass


def late_gpu_us():
    """How long the late rank's kernel takes, by events around forty of them."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    late_gpu()
    begin.record()
    for _ in range(40):
        late_gpu()
    end.record()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end) / 40


def step():
    if late:
        late_gpu() if args.late_by == "gpu" else late_host()
    y = x
    for qkv, output, up, down in layers:
        y = (y @ qkv)[:, :part] @ output
        dist.all_reduce(y)
        y = torch.relu(y @ up) @ down
        dist.all_reduce(y)
    return y


with torch.inference_mode():
    if late and args.late_by == "gpu":
        for _ in range(3):  # the clock of the GPU decides how many cycles it takes
            cycles_per_us *= args.late_us / late_gpu_us()
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    times_ms = []
    for _ in range(args.steps):
        begin = time.perf_counter()
        with nvtx.range("decode_step"):
            step()
            torch.cuda.synchronize()
        times_ms.append(1e3 * (time.perf_counter() - begin))
flops = 2 * args.batch * args.layers * (hidden * 3 * part + part * hidden + 2 * hidden * inner)
if rank == 0:
    print_result("", world=world, steps=args.steps, products_per_step=4 * args.layers, reduces_per_step=2 * args.layers,
                 gemm_flops_per_step=flops,
                 late_us=args.late_us if args.late_rank >= 0 else 0, tpot_ms=statistics.median(times_ms), tpot_mean_ms=statistics.fmean(times_ms))
dist.destroy_process_group()
