"""The measuring part of llmprof on a GPU for the first time: are libraries found, do own kernels compile, is every result
right, are the times those that PyTorch sees?

Runs `llmprof peaks --quick`, every operation once with its check, and the same GEMM, copy and sum with torch in the same
call. Writes everything as JSON and prints a summary of at most 8 kB. Nothing here is a verdict: where a step fails, its
first words are printed and the next one runs.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

os.environ.setdefault("LLMPROF_STORE", "off")  # nothing of this among the runs of whoever calls it

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUMMARY_MAX = 8000

# Operation, further options: small enough to take seconds, larger than L2.
CASES = [
    ("gemm", ["--m", "8192", "--n", "8192", "--k", "8192", "--dtype", "bf16"]),
    ("gemm", ["--m", "4096", "--n", "4096", "--k", "4096", "--dtype", "fp64,fp32,tf32,fp16,fp8,int8"]),
    ("gemm", ["--m", "1", "--n", "4096", "--k", "14336", "--dtype", "bf16"]),
    ("memory", ["--bytes", str(1 << 30), "--variant", "read,write,copy,triad"]),
    ("memory", ["--bytes", str(16 << 20), "--variant", "read,copy"]),
    ("registers", ["--mflop", "1000000", "--dtype", "fp64,fp32,tf32,fp16,bf16,fp8,int8"]),
    ("memcpy", ["--bytes", str(256 << 20), "--variant", "h2d,d2h,h2d_pageable,d2h_pageable"]),
    ("launch", ["--variant", "eager,graph_node,stream_sync,event_sync"]),
    ("rmsnorm", ["--variant", "plain,residual"]),
    ("layernorm_gelu", []),
    ("softmax", []),
    ("softmax", ["--rows", "512", "--columns", "131072"]),
    ("swiglu", []),
    ("rope", []),
    ("embedding", []),
    ("kv_append", ["--tokens", "65536"]),
    ("quantise", []),
    ("dequantise", []),
    ("gemm", ["--m", "512", "--dtype", "bf16", "--variant", "bias,bias_gelu,residual"]),
    ("gemm_batched", ["--dtype", "bf16,tf32"]),
    ("gemm_w8a8", ["--m", "512", "--dtype", "fp8,int8"]),
    ("gemm", ["--m", "1,7,16,100", "--dtype", "fp8"]),
    ("gemm_w8a8", ["--m", "1,7", "--dtype", "fp8,int8"]),
    ("gemm_grouped", ["--dtype", "bf16,fp8", "--variant", "even,skewed"]),
    ("gemm_grouped", ["--dtype", "bf16", "--rows", "256", "--groups", "128", "--n", "1536", "--k", "2048"]),
    ("moe_routing", ["--tokens", "32,4096"]),
]

# Times by CUDA graphs of several calls over rotated inputs, as llmprof takes its sustained ones.
TORCH = r"""
import json, statistics, torch
def time_us(calls, sets, rounds=20):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(sets): calls(i)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        launches = 2 * sets
        with torch.cuda.graph(graph, stream=stream):
            for i in range(launches): calls(i % sets)
        for _ in range(5): graph.replay()
        times = []
        for _ in range(rounds):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record(stream); graph.replay(); b.record(stream); b.synchronize()
            times.append(a.elapsed_time(b) * 1000 / launches)
    return statistics.median(times)
out = {"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": torch.cuda.get_device_name()}
a = [torch.rand(8192, 8192, device="cuda").mul_(2).sub_(1).bfloat16() for _ in range(2)]
w = [torch.rand(8192, 8192, device="cuda").mul_(2).sub_(1).bfloat16() for _ in range(2)]
o = [torch.empty(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
us = time_us(lambda i: torch.mm(a[i], w[i].t(), out=o[i]), 2)
out["gemm_8192_bf16"] = {"us": us, "tflops": 2 * 8192**3 / us / 1e6}
n = 1 << 28
x = [torch.rand(n, device="cuda") for _ in range(2)]
y = [torch.empty(n, device="cuda") for _ in range(2)]
us = time_us(lambda i: y[i].copy_(x[i]), 2)
out["copy_1GiB"] = {"us": us, "gbs": 2 * 4 * n / us / 1e3}
s = torch.empty((), device="cuda")
us = time_us(lambda i: torch.sum(x[i], dim=0, out=s), 2)
out["read_1GiB"] = {"us": us, "gbs": 4 * n / us / 1e3}
print(json.dumps(out))
"""


def run(command, seconds):
    """Exit code, output, seconds. A command that does not end is ended, and says so."""
    start = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        return done.returncode, done.stdout, done.stderr, time.monotonic() - start
    except subprocess.TimeoutExpired:
        return 124, "", f"did not end within {seconds} s", time.monotonic() - start


def first_words(text, count=400):
    return " | ".join(line.strip() for line in text.strip().splitlines() if line.strip())[:count]


def last_json(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def number(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def case_line(row):
    ratio = row.get("check_worst_over_tolerance")
    note = f"  {row['note'][:160]}" if row.get("note") else ""
    return (f"  {row['name']} {row.get('variant', '')} {row['shape']} {row['dtype']} {row['regime']}: "
            f"{number(row.get('median_us'), 2)} us  {number(row.get('tflops'))} TFLOP/s  {number(row.get('gbs'), 0)} GB/s  "
            f"{number(row.get('sm_clock_mhz'), 0)} MHz {number(row.get('power_w'), 0)} W  [{row.get('backend', '')}] "
            f"{row['status']} ({number(ratio, 2)} of tolerance){note}")


def measured(row, key):
    return None if row is None else row.get(key)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llmprof", default=os.environ.get("LLMPROF", str(ROOT / "build/release/bin/llmprof")))
    parser.add_argument("--python", default=sys.executable, help="interpreter that has torch")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--budget", type=float, default=500, metavar="SECONDS", help="start nothing new after this")
    parser.add_argument("-o", "--output", default="bench_first_light.json")
    options = parser.parse_args()
    end = time.monotonic() + options.budget
    results, lines = {}, []

    code, out, err, seconds = run([options.llmprof, "peaks", "--device", options.device, "--quick", "--no-store", "--json"],
                                  180)
    results["peaks"] = {"code": code, "seconds": seconds, "json": last_json(out), "stderr": err[-4000:]}
    lines.append(f"peaks --quick: code {code}, {seconds:.0f} s")
    peaks = results["peaks"]["json"]
    if peaks is None:
        lines.append("  " + first_words(err or out))
    else:
        for row in peaks.get("peak_flops", []):
            lines.append(f"  {row['dtype']} {row['path']}: {number(row['tflops'])} TFLOP/s "
                         f"({number(row['sm_clock_mhz'], 0)} MHz, {number(row['power_w'], 0)} W) {row['shape']}")
        for row in peaks.get("peak_bandwidth", []):
            lines.append(f"  {row['kind']}: {number(row['gbs'], 0)} GB/s")
        for row in peaks.get("peak_latency", []):
            lines.append(f"  {row['kind']}: {number(row['us'], 2)} us")
        lines += ["  remark: " + str(item)[:200] for item in peaks.get("diagnostics", [])[:10]]

    code, out, err, seconds = run([options.python, "-c", TORCH], 120)
    torch = results["torch"] = last_json(out.strip().splitlines()[-1]) if code == 0 and out.strip() else None
    lines.append(f"torch: code {code}, {seconds:.0f} s" + ("" if torch else ": " + first_words(err)))

    cases, found = [], {}
    for name, further in CASES:
        if time.monotonic() > end:
            lines.append("budget spent before " + name)
            break
        code, out, err, seconds = run(
            [options.llmprof, "bench", name, "--device", options.device, "--quick", "--json"] + further, 120)
        report = last_json(out)
        cases.append({"name": name, "options": further, "code": code, "seconds": seconds, "json": report,
                      "stderr": err[-2000:]})
        if report is None:
            lines.append(f"{name} {' '.join(further)}: code {code}, {first_words(err or out)}")
            continue
        for row in report.get("cases", []):
            row.pop("samples_us", None)
            found[(row["name"], row.get("variant", ""), row["dtype"], row["shape"], row["regime"])] = row
            if row["regime"] == "sustained" or row["status"] != "passed":
                lines.append(case_line(row))
    results["cases"] = cases

    def find(name, variant, part):
        for key, row in found.items():
            if key[0] == name and key[1] == variant and key[4] == "sustained" and part in key[3]:
                return row
        return None

    if torch:
        lines.append(f"against torch {torch['torch']} on {torch['gpu']} (1 and more: at least as fast):")
        pairs = [("gemm_8192_bf16", "tflops", find("gemm", "", "8192")),
                 ("copy_1GiB", "gbs", find("memory", "copy", str(1 << 30))),
                 ("read_1GiB", "gbs", find("memory", "read", str(1 << 30)))]
        results["against_torch"] = {}
        for key, unit, row in pairs:
            ours = measured(row, unit)
            ratio = ours / torch[key][unit] if ours else None
            results["against_torch"][key] = {"ours": ours, "torch": torch[key][unit], "ratio": ratio}
            lines.append(f"  {key}: {number(ours)} against {number(torch[key][unit])}, ratio {number(ratio, 3)}")

    with open(options.output, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
    text = "\n".join(lines)
    print(text if len(text) <= SUMMARY_MAX else text[:SUMMARY_MAX - 1200] + "\n[...]\n" + text[-1100:])


if __name__ == "__main__":
    main()
