#!/usr/bin/env python3
"""Ceilings of a part (some data types, or an interrupted run) are kept beside those of a whole measurement, and never
alone."""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

INTERRUPTED_EXIT = 130


def peaks(binary, home):
    done = subprocess.run([binary, "peaks", "--device", "cpu", "--threads", "1", "--quick", "--dtype", "fp64", "--json",
                           "-o", str(home / "peaks.json")], env={**os.environ, "LLMPROF_HOME": str(home / "state")},
                          check=True, capture_output=True, text=True, timeout=400)
    return done.stderr


def interrupted_peaks(binary, home):
    # Programs that a shell starts in the background ignore SIGINT.
    running = subprocess.Popen([binary, "peaks", "--device", "cpu", "--threads", "1"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env={**os.environ, "LLMPROF_HOME": str(home / "state")},
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    time.sleep(5)
    running.send_signal(signal.SIGINT)
    said = "".join(running.communicate(timeout=120))
    assert running.returncode == INTERRUPTED_EXIT, (running.returncode, said)
    return said


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    binary = str(pathlib.Path(parser.parse_args().binary).resolve())
    with tempfile.TemporaryDirectory() as temporary:
        home = pathlib.Path(temporary)
        folder = home / "state" / "ceilings"
        said = peaks(binary, home)
        assert "not kept: reports need all figures" in said, said
        assert not folder.exists(), list(folder.iterdir())
        said = interrupted_peaks(binary, home)
        assert "not kept: reports need all figures" in said or "nothing was measured" in said, said
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
