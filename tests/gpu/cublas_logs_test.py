#!/usr/bin/env python3
"""Logs that cuBLAS and cuBLASLt write while `llmprof run` records the same process: two independent counts of its products.

    python3 tests/gpu/cublas_logs_test.py [--state cublas_logs.json]

Both libraries log to files while their hooks note the same calls. By shape, types and number of problems the products of
the logs, one of both logs counted once, must be those of the hooks, and so must their FLOPs. Analysed together, products
outside of CUDA graphs must take the kernels of the recording: each shape's mean time is that of the GEMMs of this shape by
plain SQL on the exported recording.
"""
import collections
import json
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile

import harness

CASES = {"eager": ["llm_eager.py", "--model", "tinyllama-1.1b", "--prompt", "64", "--new", "24", "--iters", "2"],
         "batch": ["llm_eager.py", "--model", "qwen2.5-0.5b", "--prompt", "96", "--new", "16", "--iters", "2", "--batch", "4"],
         "graph": ["llm_cuda_graph.py", "--model", "tinyllama-1.1b", "--ctx", "256", "--steps", "24", "--rounds", "2"]}
CLOSE = 0.005  # of mean times: they are printed to four digits
SHAPE = ("batch", "m", "n", "k", "dtype", "weight_dtype")


def tool(args, *words):
    done = subprocess.run([args.llmprof, *map(str, words)], capture_output=True, text=True, timeout=args.timeout)
    if done.returncode != 0:
        raise RuntimeError(f"llmprof {words[0]}: exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def query(database, text):
    with sqlite3.connect(database) as open_one:
        return open_one.execute(text).fetchall()


def hooked(database):
    """Products of the hooks, by shape."""
    shape = ", ".join("c." + name for name in SHAPE)
    calls = query(database, f"SELECT {shape}, COUNT(*) FROM library_calls c WHERE c.kind = 'gemm' GROUP BY {shape}")
    return {row[:-1]: row[-1] for row in calls}


def counted(rows, name):
    out = collections.Counter()
    for row in rows:
        out[tuple(row[part] for part in SHAPE)] += row[name] or 0
    return out


def run(args, name):
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="llmprof-cublas-logs-"))
    logs = {"cublas": scratch / "cublas.log", "cublaslt": scratch / "cublaslt.log"}
    env = {"CUBLAS_LOGINFO_DBG": "1", "CUBLAS_LOGDEST_DBG": str(logs["cublas"]),
           "CUBLASLT_LOG_LEVEL": "2", "CUBLASLT_LOG_FILE": str(logs["cublaslt"])}
    session, database = scratch / "session", scratch / "session.sqlite"
    words = [args.llmprof, "run", "--no-html", "--quiet", "--unrecorded-windows", "off", "-o", str(session), "--",
             args.python, str(harness.WORKLOADS / CASES[name][0]), *CASES[name][1:]]
    try:
        outcome = harness.execute(words, args.timeout, env)
        if outcome.failure():
            return {"error": outcome.failure()}
        tool(args, "export", session, "--to", "sqlite", "-o", database)
        report = json.loads(tool(args, "analyze", session, *logs.values(), "--full", "--format", "json"))
        alone = json.loads(tool(args, "analyze", *logs.values(), "--full", "--format", "json"))
        of_hooks, of_logs = hooked(database), counted(alone["logged_products"], "calls")
        return {"log_bytes": {key: path.stat().st_size for key, path in logs.items()},
                "hooks": {"products": sum(of_hooks.values()), "shapes": len(of_hooks),
                          "flops": sum(2 * key[0] * key[1] * key[2] * key[3] * count for key, count in of_hooks.items())},
                "logs": {"products": sum(of_logs.values()), "shapes": len(of_logs),
                         "flops": sum(row["total_flops"] or 0 for row in alone["logged_products"])},
                "different": [[list(key), of_hooks.get(key, 0), of_logs.get(key, 0)]
                              for key in sorted(set(of_hooks) | set(of_logs), key=str)
                              if of_hooks.get(key, 0) != of_logs.get(key, 0)][:20],
                "joined": {"products": sum(row["calls"] for row in report["logged_products"]),
                           "recorded": sum(row["recorded_calls"] or 0 for row in report["logged_products"]),
                           "recorded_us": sum((row["recorded_calls"] or 0) * (row["recorded_us"] or 0)
                                              for row in report["logged_products"])},
                "gemms": gemms(database),
                "cannot_tell": [entry["question"] + " " + entry["why"] for entry in report["cannot_tell"]
                                if "log" in entry["question"] + entry["why"]][:5]}
    except (RuntimeError, KeyError, sqlite3.Error, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        if args.keep:
            shutil.copytree(scratch, pathlib.Path(args.keep) / name, dirs_exist_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)


def gemms(database):
    """GEMM kernels of the recording, without the reductions behind split-K kernels: those outside of CUDA graphs, one a
    product, with their time, and how many are in graphs."""
    rows = query(database, "SELECT g.graph_node <> 0, COUNT(*), SUM(g.dur_ns) / 1e3 FROM gpu_ops g JOIN gpu_links l ON l.row = g.row "
                           "WHERE l.category = 'gemm' AND l.work IS NOT NULL GROUP BY 1")
    found = {bool(row[0]): row[1:] for row in rows}
    return {"kernels": found.get(False, (0, 0))[0], "us": found.get(False, (0, 0))[1], "in_graphs": found.get(True, (0, 0))[0]}


def problems_of(name, found):
    if "error" in found:
        return [f"{name}: {found['error']}"]
    problems = [f"{name}: {shape}: {hooks} products by the hooks, {logs} by the logs" for shape, hooks, logs in found["different"][:3]]
    if found["hooks"]["flops"] != found["logs"]["flops"]:
        problems.append(f"{name}: {found['hooks']['flops']} FLOPs by the hooks, {found['logs']['flops']} by the logs")
    if not found["hooks"]["products"]:
        problems.append(f"{name}: no products")
    joined, kernels = found["joined"], found["gemms"]
    if joined["recorded"] < 0.99 * kernels["kernels"]:
        problems.append(f"{name}: {joined['recorded']} products found in the recording, which has {kernels['kernels']} GEMMs")
    elif joined["recorded"] == kernels["kernels"] and abs(joined["recorded_us"] / max(1, kernels["us"]) - 1) > CLOSE:
        problems.append(f"{name}: {joined['recorded_us']} us of joined products, {kernels['us']} us by SQL")
    return problems


def main():
    args = harness.arguments(__doc__, "cublas_logs_results.json").parse_args()
    return harness.run_cases(args, list(CASES), lambda name: run(args, name), problems_of, 60)


if __name__ == "__main__":
    sys.exit(main())
