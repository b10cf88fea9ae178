#!/usr/bin/env python3
"""How long each reading of NVML takes, and what it makes of a program that allocates device memory meanwhile.

    python3 benchmarks/reading_stalls.py [--seconds 1.5] [--period-ms 20] [--rounds 3] [--summary FILE]

The driver has locks that a reading holds and an allocation waits for. A process calls cudaMalloc and cudaFree all the time,
some megabytes each, with a kernel now and then, and times each call; in turns of --seconds nothing else runs, or this
process makes one kind of reading every --period-ms. Given are the median and the longest of a reading, alone and beside
the program, and of the program's calls the share of its time that lies in what is beyond three times their median: time
in which it was stalled. Then the same program, three seconds long, by itself and under `llmprof run` in turns, --rounds times:
light mode without hardware counters, light mode, default mode.
"""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]

PROGRAM = r"""
import ctypes, sys, time
import torch
x = torch.zeros(1 << 20, device="cuda")
path = [line.split()[-1] for line in open("/proc/self/maps") if "libcudart" in line][0]
rt = ctypes.CDLL(path)
p, size, clock = ctypes.c_void_p(), ctypes.c_size_t(8 << 20), time.perf_counter_ns
print("ready", flush=True)
took, until = [], time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    a = clock(); rt.cudaMalloc(ctypes.byref(p), size); b = clock(); rt.cudaFree(p); took += [b - a, clock() - b]
    if len(took) % 32 == 0:
        x.add_(1)
took.sort()
median = took[len(took) // 2]
late = sum(ns - median for ns in took if ns > 3 * median)
print(len(took), median, took[-1], late / sum(took), flush=True)
"""


class Field(ctypes.Structure):
    _fields_ = [("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong),
                ("latency", ctypes.c_longlong), ("type", ctypes.c_uint), ("result", ctypes.c_uint), ("value", ctypes.c_ulonglong)]


def readings(nvml, device):
    """{name: a function that makes it}"""
    words = (ctypes.c_uint * 64)()
    longs = (ctypes.c_ulonglong * 64)()
    one = ctypes.byref(words)

    def fields(*ids):
        several = (Field * len(ids))()

        def read():
            for i, number in enumerate(ids):
                several[i].field = number
            nvml.nvmlDeviceGetFieldValues(device, len(ids), several)
        return read

    out = {
        "utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(device, one),
        "clock sm": lambda: nvml.nvmlDeviceGetClockInfo(device, 1, one),
        "clock memory": lambda: nvml.nvmlDeviceGetClockInfo(device, 2, one),
        "temperature": lambda: nvml.nvmlDeviceGetTemperature(device, 0, one),
        "memory": lambda: nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(longs)),
        "throttle reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device, ctypes.byref(longs)),
        "power usage": lambda: nvml.nvmlDeviceGetPowerUsage(device, one),
        "energy": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(longs)),
        "field power": fields(186),
        "field memory temperature": fields(82),
        "fields throttled": fields(74, 76, 269, 270, 271),
        "fields all": fields(186, 82, 74, 76, 269, 270, 271),
    }
    sample = ctypes.c_void_p()
    if nvml.nvmlGpmSampleAlloc(ctypes.byref(sample)) == 0:
        out["gpm sample"] = lambda: nvml.nvmlGpmSampleGet(device, sample)
    return out


def timed(read, seconds, period_s):
    """Microseconds of each reading."""
    took, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        begin = time.perf_counter_ns()
        read()
        took.append((time.perf_counter_ns() - begin) / 1e3)
        time.sleep(period_s)
    return took


def beside(args, read):
    """The program, and a reading again and again: ([us of a reading], {of the program})."""
    program = subprocess.Popen([args.python, "-c", PROGRAM, str(args.seconds)], stdout=subprocess.PIPE, text=True)
    if program.stdout.readline().strip() != "ready":
        raise SystemExit("the program did not start")
    took = timed(read, args.seconds * 0.95, args.period_ms / 1e3) if read else []
    calls, median, longest, stalled = program.stdout.readline().split()
    program.wait()
    return took, {"calls": int(calls), "median_us": int(median) / 1e3, "longest_us": int(longest) / 1e3,
                  "stalled_frac": round(float(stalled), 4)}


def under(args, words):
    """The program by itself, or under llmprof: share of its time in which it was stalled."""
    command = [args.python, "-c", PROGRAM, "3"]
    if words is not None:
        command = [args.llmprof, "run", "--quiet", "--no-report", *words, "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LLMPROF_STORE": "off"}, cwd=args.scratch)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[:6])}: exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    return float(done.stdout.splitlines()[-1].split()[-1])


MODES = {"by itself": None, "light, no counters": ["--mode", "light", "--counters", "off"], "light": ["--mode", "light"], "default": []}


def recorded(args):
    """{mode: [share of each round]}"""
    out = {mode: [] for mode in MODES}
    for _ in range(args.rounds):
        for mode, words in MODES.items():
            out[mode].append(round(under(args, words), 4))
    for mode, shares in out.items():
        print(f"{mode:20} stalled " + ", ".join(f"{100 * share:.1f} %" for share in shares), flush=True)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--period-ms", type=float, default=20)
    parser.add_argument("--only", help="some readings, by comma")
    parser.add_argument("--python", default=sys.executable, help="that has PyTorch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--llmprof", default=os.environ.get("LLMPROF", str(ROOT / "build/release/bin/llmprof")))
    parser.add_argument("--summary", metavar="FILE")
    args = parser.parse_args()
    args.llmprof = os.path.abspath(args.llmprof)
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise SystemExit(f"NVML does not start here, is there an NVIDIA GPU? {error}") from None
    if nvml.nvmlInit_v2() != 0:
        raise SystemExit("NVML does not start here: is there an NVIDIA GPU?")
    device = ctypes.c_void_p()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
    name = ctypes.create_string_buffer(96)
    nvml.nvmlDeviceGetName(device, name, 96)
    chosen = readings(nvml, device)
    if args.only:
        chosen = {word: chosen[word] for word in args.only.split(",")}
    rows = []
    for label, read in [("nothing", None), *chosen.items(), ("nothing", None)]:
        alone = timed(read, 0.3, args.period_ms / 1e3) if read else []
        took, program = beside(args, read)
        row = {"reading": label, **program}
        if took:
            row |= {"alone_us": round(statistics.median(alone), 1), "alone_longest_us": round(max(alone), 1),
                    "beside_us": round(statistics.median(took), 1), "beside_longest_us": round(max(took), 1)}
        rows.append(row)
        print(f"{label:26} reading {row.get('alone_us', 0):8.1f} us alone, {row.get('beside_us', 0):8.1f} beside (longest "
              f"{row.get('beside_longest_us', 0):8.1f}); calls {program['median_us']:6.1f} us, longest {program['longest_us']:8.1f}, "
              f"stalled {100 * program['stalled_frac']:5.1f} %", flush=True)
    with tempfile.TemporaryDirectory() as args.scratch:
        shares = recorded(args)
    if args.summary:
        found = {"gpu": name.value.decode(), "seconds": args.seconds, "period_ms": args.period_ms, "rows": rows, "stalled_under": shares}
        pathlib.Path(args.summary).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
