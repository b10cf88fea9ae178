#!/usr/bin/env python3
"""`llmprof bench` on a GPU, used badly: what does not fit, a data type that the chip lacks, no GPU, a GPU that others use,
Ctrl-C in the middle. And at its power limit, by the real clock: what waits for the power's control must end. On stand-ins for
NVIDIA's libraries, whose kernels run on the CPU.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

SMALL = ["--n", "16", "--k", "16", "--dtype", "bf16", "--quick"]
CASES = 4


class Bench:
    def __init__(self, binary, stand_in, nvml, home):
        self.binary, self.nvml = binary, nvml
        self.environment = dict(os.environ, LLMPROF_HOME=str(home), XDG_CACHE_HOME=str(home))
        for library in ("CUDA", "NVRTC", "CUBLASLT", "CUBLAS", "CUDNN"):
            self.environment[f"LLMPROF_{library}"] = str(stand_in)
        self.environment["LLMPROF_NVML"] = "/nowhere/libnvidia-ml.so"

    def start(self, *arguments, **changes):
        return subprocess.Popen([self.binary, "bench", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env={**self.environment, **changes})

    def run(self, *arguments, **changes):
        process = self.start(*arguments, **changes)
        out, err = process.communicate(timeout=900)
        return process.returncode, out, err


failures = []


def expect(what, holds, *evidence):
    print(f"{'ok' if holds else 'FAILED'}  {what}")
    if not holds:
        failures.append(what)
        for text in evidence:
            print(text)


def one_case(bench, *arguments, **changes):
    code, out, err = bench.run("gemm", "--device", "cuda:0", "--json", *arguments, **changes)
    return code, (json.loads(out)["cases"] if out else []), err


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--stand-in", required=True, help="the driver, NVRTC, cuBLASLt, cuBLAS and cuDNN")
    parser.add_argument("--nvml", required=True, help="a stand-in that tells of a busy GPU")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmprof-test-") as folder:
        home = pathlib.Path(folder)
        bench = Bench(arguments.binary, arguments.stand_in, arguments.nvml, home)

        code, rows, err = one_case(bench, "--m", "16", *SMALL)
        expect("a small product is measured", code == 0 and {row["status"] for row in rows} == {"passed"}, err, rows)

        _, rows, err = one_case(bench, "--m", "50000000", "--n", "4096", "--k", "4096", "--dtype", "bf16")
        expect("what does not fit is refused with what would", rows[0]["status"] == "out-of-memory" and
               "fits" in rows[0]["note"] and "m" in rows[0]["note"], err, rows)

        code, out, err = bench.run("gemm", "--device", "cuda:0", "--dtype", "int32")
        expect("a type that is not offered is told with those that are", code == 2 and "int32" in err and "bf16" in err, err)
        _, rows, err = one_case(bench, "--m", "64", "--n", "64", "--k", "64", "--dtype", "fp4")
        expect("a type that this chip does not multiply is told with the chip that does",
               rows[0]["status"] == "unsupported" and "come with 10.0" in rows[0]["note"], rows)
        _, rows, err = one_case(bench, "--m", "16", "--n", "24", "--k", "16", "--dtype", "fp8")
        expect("a shape that the type cannot have is told", rows[0]["status"] == "unsupported" and
               "multiples of 16" in rows[0]["note"], err, rows)

        code, out, err = bench.run("gemm", "--device", "cuda:0", *SMALL, LLMPROF_CUDA="/nowhere/libcuda.so.1")
        expect("without a driver it says what to do", code == 1 and "--device" in err and "driver" in err, code, err)
        code, out, err = bench.run("gemm", "--device", "cuda:7", *SMALL)
        expect("a GPU that is not there is told with those that are", code != 0 and "from 0 to 0" in err, code, err)

        busy = {"LLMPROF_NVML": arguments.nvml}
        code, out, err = bench.run("gemm", "--device", "cuda:0", "--m", "16", *SMALL, **busy)
        expect("a busy GPU is refused", code == 1 and "in use" in err and "--busy-ok" in err and not out, code, err, out)
        expect("it says who uses it", f"({os.getpid()}), process 4194303" in err, os.getpid(), err)
        code, rows, err = one_case(bench, "--m", "16", "--busy-ok", *SMALL, **busy)
        expect("--busy-ok measures it and marks the rows", code == 0 and
               all("other programs" in row["note"] for row in rows), err, rows)

        # This NVML says that the power cap holds the clock down.
        code, rows, err = one_case(bench, "--m", "16", "--n", "16", "--k", "16", "--dtype", "bf16", "--busy-ok", **busy)
        expect("at a power limit the candidates are compared in turns", code == 0 and
               all(row["status"] == "passed" and "power cap" in row["throttle"] and row["compared"].count(";") > 0
                   for row in rows), err, rows)

        interrupted(bench, home / "kept.json")
    return 1 if failures else 0


def interrupted(bench, path):
    rows = ",".join(str(16 * i) for i in range(1, CASES + 1))
    sweep = ["gemm", "--device", "cuda:0", "--m", rows, *SMALL, "-o", str(path)]
    process = bench.start(*sweep)
    begun = time.monotonic()
    while time.monotonic() < begun + 300 and process.poll() is None:
        if any(file.stat().st_size > 2000 for file in path.parent.glob(path.name + "*")):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    cases = json.loads(path.read_text())["cases"] if path.exists() else []
    shapes = {row["shape"] for row in cases}
    expect("Ctrl-C keeps what was measured", process.returncode == 130 and 0 < len(shapes) < CASES and "--resume" in err,
           process.returncode, len(shapes), err, sorted(str(file) for file in path.parent.iterdir()))
    code, out, err = bench.run(*sweep, "--resume", str(path))
    rows = json.loads(path.read_text())["cases"]
    expect("--resume measures the rest", code == 0 and len({row["shape"] for row in rows}) == CASES and
           rows[:len(cases)] == cases, code, err)


if __name__ == "__main__":
    sys.exit(main())
