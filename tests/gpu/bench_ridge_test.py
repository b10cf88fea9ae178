#!/usr/bin/env python3
"""The ridge point with its parts, and what lies far to either side of it.

    python3 tests/gpu/bench_ridge_test.py [--state bench_ridge.json]

`llmprof peaks` is run; the ridge point of each data type must be the quotient of the rate and the bandwidth printed beside
it, measured and of the data sheet. Then RMSNorm, far under it, must be called memory-bound and reach 0.9 of the bandwidth
ceiling, and a product of 8192 x 8192 matrices, far over it, compute-bound. Bad use must be answered, not crash.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import harness


def peaks(args, env):
    outcome = harness.execute([args.llmprof, "peaks", "--device", "cuda:0", "--json"], args.timeout, env)
    problems, found = [], {}
    try:
        report = json.loads(outcome.stdout)
    except ValueError:
        return {"problems": [outcome.failure() or "no JSON"], "stderr": outcome.stderr[-2000:]}
    library = {row["dtype"]: row for row in report["flops"] if row["path"] == "library" and row["tflops"]}
    bandwidth = {row["kind"]: row for row in report["bandwidth"]}
    memory = max(bandwidth[kind]["gbs"] for kind in ("read", "write", "copy", "triad"))
    for row in report["ridge"]:
        wanted = row["tflops"] * 1e12 / (row["gbs"] * 1e9)
        found[f"{row['dtype']} {row['provenance']}"] = {key: row[key] for key in ("flop_per_byte", "tflops", "gbs")}
        if abs(row["flop_per_byte"] / wanted - 1) > 1e-9:
            problems.append(f"{row['dtype']} {row['provenance']}: {row['flop_per_byte']} is not {wanted}")
        if row["provenance"] == "measured" and (row["gbs"] != memory or row["tflops"] < library[row["dtype"]]["tflops"]):
            problems.append(f"{row['dtype']}: parts are not those of the tables")
    for kind in ("bf16 measured", "bf16 datasheet"):
        if kind not in found:
            problems.append(f"no ridge point: {kind}")
    return {"problems": problems, "seconds": outcome.seconds, "ridge": found,
            "library": {dtype: {key: row[key] for key in ("tflops", "of_datasheet_frac", "of_clock_frac", "sm_clock_mhz",
                                                          "power_w", "throttle", "shape", "backend")}
                        for dtype, row in library.items()},
            "bandwidth": {kind: row["gbs"] for kind, row in bandwidth.items()},
            "latency": {row["kind"]: row["us"] for row in report["latency"]}, "diagnostics": report["diagnostics"]}


def bound(args, env, options, wanted, least):
    outcome = harness.execute([args.llmprof, "bench", *options, "--device", "cuda:0", "--json", "--busy-ok"],
                              args.timeout, env)
    try:
        rows = json.loads(outcome.stdout)["cases"]
    except (ValueError, KeyError):
        return {"problems": [outcome.failure() or "no JSON"]}
    row = next(row for row in rows if row["regime"] == "sustained")
    problems = [] if row["bound"] == wanted else [f"called {row['bound']}, {wanted} expected"]
    if row["of_ceiling_frac"] is None or row["of_ceiling_frac"] < least:
        problems.append(f"{row['of_ceiling_frac']} of the ceiling, {least} expected")
    return {"problems": problems, "bound": row["bound"], "intensity": row["intensity"], "us": row["median_us"],
            "of_ceiling": row["of_ceiling_frac"], "ceiling": row["ceiling_kind"], "gbs": row["gbs"],
            "tflops": row["tflops"], "backend": row["backend"]}


def misuse(args, env, options, code, words, signal_after=None, kept=None):
    """The exit code and what must be said, in lower case; `kept`: a result that must hold at least one case."""
    outcome = harness.execute([args.llmprof, *options], args.timeout, env, signal_after=signal_after)
    said = (outcome.stdout + outcome.stderr).lower()
    problems = [] if outcome.returncode == code else [f"exit code {outcome.returncode}, {code} expected"]
    problems += [f"not said: {word}" for word in words if word not in said]
    if kept is not None:
        path = pathlib.Path(kept)
        cases = json.loads(path.read_text())["cases"] if path.exists() else []
        if not any(row.get("median_us") for row in cases):
            problems.append("nothing that was measured was kept")
    return {"problems": problems, "said": outcome.stderr[-600:], "seconds": outcome.seconds}


BURNER = "import torch,time\nx=torch.rand(8192,8192,device='cuda').bfloat16()\nprint('on',flush=True)\n" \
         "end=time.time()+60\nwhile time.time()<end:\n  for _ in range(50): x@x\n  torch.cuda.synchronize()\n"


def busy(args, env):
    with subprocess.Popen([args.python, "-c", BURNER], stdout=subprocess.PIPE, text=True) as child:
        child.stdout.readline()
        try:
            return misuse(args, env, ["bench", "memory", "--device", "cuda:0", "--quick"], 1, ["busy", "--busy-ok"])
        finally:
            child.send_signal(signal.SIGKILL)


def main():
    parser = harness.arguments(__doc__, "bench_ridge.json")
    parser.set_defaults(timeout=240)
    args = parser.parse_args()
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    with tempfile.TemporaryDirectory(prefix="llmprof-gpu-test-") as folder:
        home = str(pathlib.Path(args.state).resolve().parent / "bench_ridge_home")  # ceilings outlive this call
        env = {"LLMPROF_HOME": home}
        partial = os.path.join(folder, "interrupted.json")
        steps = [
            ("peaks", lambda: peaks(args, env)),
            ("memory-bound", lambda: bound(args, env, ["rmsnorm", "--variant", "plain", "--tokens", "16384", "--hidden",
                                                       "8192", "--dtype", "bf16"], "memory", 0.9)),
            ("compute-bound", lambda: bound(args, env, ["gemm", "--m", "8192", "--n", "8192", "--k", "8192", "--dtype",
                                                        "bf16"], "compute", 0.9)),
            ("too-large", lambda: misuse(args, env, ["bench", "gemm", "--device", "cuda:0", "--m", "400000", "--n",
                                                     "400000", "--k", "400000", "--dtype", "bf16"], 1, ["fit"])),
            ("no-such-type", lambda: misuse(args, env, ["bench", "gemm", "--device", "cuda:0", "--dtype", "int32"], 2,
                                            ["int32", "bf16"])),
            ("no-such-gpu", lambda: misuse(args, env, ["bench", "gemm", "--device", "cuda:9"], 1, ["gpu number", "cuda_visible_devices"])),
            ("hidden-gpu", lambda: misuse(args, {**env, "CUDA_VISIBLE_DEVICES": ""}, ["bench", "gemm", "--device",
                                                                                      "cuda:0"], 1, ["--device cpu"])),
            ("busy", lambda: busy(args, env)),
            ("interrupted", lambda: misuse(args, env, ["bench", "--device", "cuda:0", "-o", partial], 130, ["--resume"],
                                           (25, signal.SIGINT), partial)),
        ]
        for name, step in steps:
            if (name not in state or state.get(name)["problems"]) and not budget.spent(20):
                state.put(name, step())
            result = state.get(name)
            if result is not None:
                shown = {key: value for key, value in result.items() if key not in ("library", "said", "problems")}
                print("ok  " if not result["problems"] else "FAIL", name, result["problems"] or "",
                      json.dumps(shown)[:700], flush=True)
    results = state.results()
    missing = [name for name, _ in steps if name not in results]
    failed = [name for name, result in results.items() if result["problems"]]
    state.save(summary=results, missing=missing, failures=failed, passed=not missing and not failed)
    harness.write_summary(args, state)
    print(json.dumps({"failed": failed, "missing": missing}))
    return 0 if not missing and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
