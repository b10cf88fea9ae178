#!/usr/bin/env python3
"""--redact: a recording full of what a person would not hand on is reported and exported in every format, and none of it
may be found in what was written; figures stay what they are.

    redact_test.py --binary build/release/bin/llmprof
"""
import argparse
import base64
import json
import os
import pathlib
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import zlib

SECRETS = ["secretcustomer", "secrethost", "10.11.12.13", "d0833277-9272-9c1d-ac31-12b6bdb06dae", "hunter2"]


def recording():
    """Two decode steps of three kernels, with Python functions, an input file's text and metadata."""
    events = []
    correlation = 0
    for step in range(6):
        at = 1000 + step * 1000
        events.append({"ph": "X", "cat": "user_annotation", "name": "decode", "ts": at, "dur": 900, "pid": 1, "tid": 1})
        events.append({"ph": "X", "cat": "python_function", "pid": 1, "tid": 1, "ts": at + 1, "dur": 880,
                       "name": "/home/secretcustomer/app/serve.py(12): step", "args": {"Python id": step + 1}})
        for kernel in range(3):
            correlation += 1
            call = at + 10 + 20 * kernel
            events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": call, "dur": 5, "pid": 1,
                           "tid": 1, "args": {"correlation": correlation}})
            events.append({"ph": "X", "cat": "kernel", "name": "/home/secretcustomer/kernels/gemm.cu:main", "pid": 0,
                           "tid": 7, "ts": call + 10, "dur": 200, "args": {"correlation": correlation, "stream": 7,
                                                                         "device": 0, "grid": [128, 1, 1],
                                                                         "block": [128, 1, 1]}})
    # A broken event, whose place is a diagnostic.
    events.append({"ph": "X", "cat": "kernel", "name": "/home/secretcustomer/x", "ts": "NaN", "dur": 1, "pid": 0, "tid": 7,
                   "args": {"device": 0, "stream": 7}})
    return {"schemaVersion": 1, "hostname": "secrethost", "command_line": "serve.py --password hunter2",
            "master": "10.11.12.13:29500", "uuid": "GPU-" + SECRETS[3],
            "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132,
                                  "computeMajor": 9, "computeMinor": 0}],
            "traceEvents": events}


def texts_of_page(page):
    """The page itself, and what it holds packed."""
    yield page
    for packed in re.findall(r"[A-Za-z0-9+/]{200,}={0,2}", page):
        try:
            yield zlib.decompress(base64.b64decode(packed), 47).decode("utf-8", "replace")
        except (ValueError, zlib.error):
            pass


def contents(path):
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if not file.is_file():
            continue
        data = file.read_bytes()
        if file.suffix == ".html":
            yield from ((file, text) for text in texts_of_page(data.decode()))
        elif file.suffix == ".db":
            with sqlite3.connect(file) as connection:
                yield file, "\n".join(connection.iterdump())
        else:
            yield file, data.decode("utf-8", "replace")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = str(pathlib.Path(parser.parse_args().binary).resolve())
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder) / "secretcustomer"
        home.mkdir()
        trace = home / "trace.json"
        trace.write_text(json.dumps(recording()))
        out = pathlib.Path(folder) / "out"
        out.mkdir()
        environment = {**os.environ, "LLMPROF_STORE": "off", "LLMPROF_HOME": folder}

        def run(*words, redact=True):
            command = [binary, *words, *(["--redact"] if redact else [])]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode not in (0, 3):
                sys.exit(f"{' '.join(command)}: {done.returncode}\n{done.stderr}")
            return done

        plain = json.loads(run("analyze", str(trace), "--json", redact=False).stdout)
        if not any(secret in json.dumps(plain) for secret in SECRETS):
            failures.append("the recording does not show what is to be left out")
        written = json.loads(run("analyze", str(trace), "--json").stdout)
        for stage, other in zip(plain["stages"], written["stages"]):
            if stage != other:
                failures.append(f"figures differ: {stage} {other}")
        (out / "report.json").write_text(json.dumps(written))
        (out / "report.txt").write_text(run("analyze", str(trace), "--full").stdout)
        run("analyze", str(trace), "-o", str(out / "report.html"))
        run("analyze", str(trace), "--format", "csv", "-o", str(out / "report"))
        for form, name in (("perfetto", "trace.pftrace"), ("sqlite", "trace.db"), ("csv", "trace"), ("json", "trace.json")):
            run("export", str(trace), "--to", form, "-o", str(out / name))
        for file, text in contents(out):
            for secret in [*SECRETS, *([socket.gethostname()] if len(socket.gethostname()) > 6 else [])]:
                if secret in text:
                    at = text.index(secret)
                    failures.append(f"{file.name} holds {secret}: ...{text[max(0, at - 60):at + 40]!r}")
        if "serve.py" not in (out / "report.txt").read_text() + json.dumps(written):
            failures.append("the names of files are gone too")
        both = subprocess.run([binary, "analyze", str(trace), "--redact", "--save", str(out / "x.llmprof")],
                              env=environment, capture_output=True, text=True, check=False)
        if both.returncode != 2 or "--save or --redact" not in both.stderr:
            failures.append(f"--save with --redact: {both.returncode} {both.stderr}")
    for failure in failures:
        print(failure)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
