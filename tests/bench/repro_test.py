#!/usr/bin/env python3
"""The repro line of a row measures it again: run as it stands, it gives the same case by the same protocol."""

import argparse
import json
import pathlib
import shlex
import subprocess
import tempfile

# What changes a measurement, one after the other; matmul is another word for gemm.
COMMANDS = [
    ["matmul", "--m", "64", "--n", "64", "--k", "64", "--dtype", "fp32", "--threads", "1", "--quick", "--regime", "cold",
     "--seed", "7"],
    ["rmsnorm", "--tokens", "8", "--hidden", "64", "--dtype", "float32", "--min-time", "0.02", "--regime", "sustained"],
    ["softmax", "--rows", "8", "--columns", "64", "--dtype", "fp32", "--suite-time", "--regime", "sustained"],
    ["--max-cases", "1", "--quick"],
]
SAME = ("name", "variant", "shape", "dtype", "regime", "seed", "repro")


def measure(binary, words, path):
    subprocess.run([binary, "bench", *words, "-o", str(path)], check=True, capture_output=True, timeout=120)
    return json.loads(path.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    binary = str(pathlib.Path(parser.parse_args().binary).resolve())
    with tempfile.TemporaryDirectory(prefix="llmprof-repro-") as folder:
        for i, words in enumerate(COMMANDS):
            first = measure(binary, ["--device", "cpu", *words], pathlib.Path(folder) / f"{i}.json")
            row = first["cases"][0]
            line = shlex.split(row["repro"])
            assert line[:2] == ["llmprof", "bench"], line
            again = measure(binary, line[2:], pathlib.Path(folder) / f"{i}-again.json")
            other = again["cases"][0]
            for key in SAME:
                assert row[key] == other[key], f"{row['repro']}: {key} {row[key]!r}, then {other[key]!r}"
            assert first["protocol"] == again["protocol"], (
                f"{row['repro']}: another protocol\n  {first['protocol']}\n  {again['protocol']}")
            assert first["device_key"] == again["device_key"], f"{row['repro']}: another device"
    print(f"{len(COMMANDS)} repro lines measure the same again")


if __name__ == "__main__":
    main()
