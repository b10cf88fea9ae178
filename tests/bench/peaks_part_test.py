#!/usr/bin/env python3
"""Ceilings of a part of the data types are kept beside those of a whole measurement, and never alone."""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile


def peaks(binary, home):
    done = subprocess.run([binary, "peaks", "--device", "cpu", "--threads", "1", "--quick", "--dtype", "fp64", "--json",
                           "-o", str(home / "peaks.json")], env={**os.environ, "LLMPROF_HOME": str(home / "state")},
                          check=True, capture_output=True, text=True, timeout=120)
    return done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    binary = str(pathlib.Path(parser.parse_args().binary).resolve())
    with tempfile.TemporaryDirectory() as temporary:
        home = pathlib.Path(temporary)
        folder = home / "state" / "ceilings"
        said = peaks(binary, home)
        assert "not kept: reports need all data types" in said, said
        assert not folder.exists(), list(folder.iterdir())
        # Beside a whole measurement (here: one of fp32, by hand) they are kept.
        key = json.loads((home / "peaks.json").read_text())["device"]["key"]
        folder.mkdir(parents=True)
        rate = {"value": 1.0, "how": "by hand", "iqr_frac": 0, "clock_mhz": 0, "power_w": 0, "quick": False}
        kept = {"schema": "llmprof.ceilings/1", "device_key": key, "name": "", "uuid": "", "driver": "",
                "tool_version": "", "unix_s": 0, "library_tflops": {"fp32": rate}, "unit_tflops": {},
                "bandwidth_gbs": {}, "latency_us": {}}
        path = folder / f"{key}.json"
        path.write_text(json.dumps(kept))
        said = peaks(binary, home)
        assert "kept in" in said, said
        assert set(json.loads(path.read_text())["library_tflops"]) == {"fp32", "fp64"}, path.read_text()
    print("ok")


if __name__ == "__main__":
    main()
