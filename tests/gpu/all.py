#!/usr/bin/env python3
"""Every test and benchmark that needs a GPU, one after the other.

    python3 tests/gpu/all.py [--llmprof build/release/bin/llmprof] [--folder gpu_results] [--budget SECONDS] [--only NAME,...]

The short ones come first. several_gpus, rank_skew and join_ranks need two GPUs, the others one. Each keeps its runs in FOLDER/NAME.json and writes
its summary to docs/results/h200_NAME.json (another GPU: --prefix). A second call does what the first left undone: a test
that has passed is not repeated as long as the folder is there. One line a test at the end; 0 only if all passed.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Name, command, seconds on an H200.
TESTS = [
    ("flops", ["tests/gpu/flops_test.py"], 70),
    ("workload", ["tests/gpu/workload_test.py"], 120),
    ("cold_start", ["tests/gpu/cold_start_test.py"], 180),
    ("steady", ["tests/gpu/steady_test.py"], 720),
    ("shapes", ["tests/gpu/shapes_test.py"], 130),
    ("streams", ["tests/gpu/streams_test.py"], 60),
    ("waits", ["tests/gpu/waits_test.py"], 20),
    ("graph_threads", ["tests/gpu/graph_threads_test.py"], 60),
    ("client", ["tests/gpu/client_test.py"], 180),
    ("torch_operators", ["tests/gpu/torch_operators_test.py"], 100),
    ("several_gpus", ["tests/gpu/several_gpus_test.py"], 90),
    ("rank_skew", ["tests/gpu/rank_skew_test.py"], 100),
    ("cublas_logs", ["tests/gpu/cublas_logs_test.py"], 60),
    ("join_ranks", ["tests/gpu/join_ranks_test.py"], 60),
    ("bench_torch", ["tests/gpu/bench_torch_test.py"], 450),
    ("bench_own_attention", ["tests/gpu/bench_own_attention_test.py"], 120),
    ("bench_sanitizer", ["tests/gpu/bench_sanitizer_test.py"], 400),
    ("bench_ridge", ["tests/gpu/bench_ridge_test.py"], 240),
    ("bench_noise", ["tests/gpu/bench_noise_look.py"], 60),
    ("bench_speeds", ["tests/gpu/bench_repeat_test.py", "--kernel", "gemm --m 1 --n 28672 --k 4096 --dtype bf16"], 60),
    ("bench_repeat", ["tests/gpu/bench_repeat_test.py"], 580),
    ("drive_ncu", ["tests/gpu/drive_ncu_test.py"], 90),
    ("ncu_bytes", ["tests/gpu/ncu_bytes_test.py"], 120),
    ("faults", ["tests/gpu/faults_test.py", "--seconds", "15"], 300),
    ("recorded_steps", ["benchmarks/recorded_steps.py"], 160),
    ("counters_cost", ["benchmarks/counters_cost.py"], 60),
    ("distortion", ["benchmarks/distortion.py", "--rounds", "8"], 900),
    ("planted", ["tests/gpu/planted_test.py"], 600),
    ("truth", ["tests/gpu/truth_test.py"], 600),
    ("long_run", ["tests/gpu/long_run_test.py", "--seconds", "600"], 680),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llmprof", default=os.environ.get("LLMPROF", str(ROOT / "build/release/bin/llmprof")))
    parser.add_argument("--folder", default="gpu_results", help="runs so far")
    parser.add_argument("--summaries", default=str(ROOT / "docs/results"))
    parser.add_argument("--prefix", default="h200_")
    parser.add_argument("--budget", type=float, default=7200, metavar="SECONDS", help="start nothing new after this")
    parser.add_argument("--only", default="", help="of " + ",".join(name for name, _, _ in TESTS))
    args = parser.parse_args()
    wanted = [name for name in args.only.split(",") if name] or [name for name, _, _ in TESTS]
    unknown = set(wanted) - {name for name, _, _ in TESTS}
    if unknown:
        parser.error(f"no test {', '.join(sorted(unknown))}")
    end = time.monotonic() + args.budget
    folder, summaries = pathlib.Path(args.folder), pathlib.Path(args.summaries)
    folder.mkdir(parents=True, exist_ok=True)
    summaries.mkdir(parents=True, exist_ok=True)
    lines, failed = [], False
    record = folder / "passed.json"
    done = json.loads(record.read_text()) if record.exists() else []
    for name, words, seconds in TESTS:
        if name not in wanted:
            continue
        summary = summaries / f"{args.prefix}{name}.json"
        state = folder / f"{name}.json"
        if name in done:
            lines.append(f"{name:16} passed before")
            continue
        left = end - time.monotonic()
        if left < min(seconds, 60):
            lines.append(f"{name:16} no time")
            failed = True
            continue
        begin = time.monotonic()
        print(f"== {name}", flush=True)
        code = subprocess.run([sys.executable, "-B", str(ROOT / words[0]), *words[1:], "--llmprof", args.llmprof, "--state",
                               str(state), "--summary", str(summary), "--budget", f"{left:.0f}"], cwd=ROOT).returncode
        failed |= code != 0
        if code == 0:
            done.append(name)
            record.write_text(json.dumps(done) + "\n")
        lines.append(f"{name:16} {'passed' if code == 0 else f'exit code {code}'} in {time.monotonic() - begin:.0f} s")
    print("\n" + "\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
