#!/usr/bin/env python3
"""benchmarks/counters_cost.py on a program that sleeps, with a stand-in for hardware counters and without.

    counters_cost_test.py --binary build/release/bin/llmprof --fakes FOLDER
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = None


class CountersCost(unittest.TestCase):
    def measure(self, *words, env=None):
        with tempfile.TemporaryDirectory(prefix="llmprof-counters-cost-test-") as folder:
            summary = pathlib.Path(folder) / "summary.json"
            command = [sys.executable, "-B", str(ROOT / "benchmarks/counters_cost.py"), "--llmprof", OPTIONS.binary,
                       "--target", str(ROOT / "tests/run/counters_cost_stand_in.py"), "--rounds", "4", "--seconds", "0.5",
                       "--settle", "0.2", "--state", f"{folder}/state.json", "--summary", str(summary), *words]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **(env or {})})
            self.assertNotIn("Traceback", done.stderr, done.stderr)
            return done, json.loads(summary.read_text())["summary"] if summary.exists() else {}

    def test_in_turns(self):
        fakes = pathlib.Path(OPTIONS.fakes)
        env = {"LLMPROF_CUPTI": f"{fakes}/libcupti.so.13", "LLMPROF_NVML": f"{fakes}/libnvidia-ml.so.1",
               "LLMPROF_CUDA": f"{fakes}/libcupti.so.13", "FAKE_NVML_GPUS": "1", "FAKE_PM_GPUS": "1"}
        done, summary = self.measure(env=env)
        out = summary["items"]
        self.assertNotIn("error", out, done.stdout)
        self.assertEqual(out["rounds"], 4)
        self.assertGreater(out["off_ms"], 2)
        self.assertEqual(out["within"], out["percent"] <= 2)
        self.assertEqual(done.returncode, 0 if out["within"] else 1)
        self.assertEqual(len(out["ci95"]), 2)

    def test_without_counters_nothing_is_claimed(self):
        done, summary = self.measure(env={"LLMPROF_CUPTI": "/nowhere", "LLMPROF_CUDA": "/nowhere"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("no counters were sampled", summary["items"]["error"])
        self.assertNotIn("percent", summary["items"])

    def test_wrong(self):
        done, _ = self.measure("--programs", "nothing_like_it")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no program nothing_like_it: expected of", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--fakes", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
