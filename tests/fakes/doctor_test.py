"""`llmprof doctor` as a user runs it, on a machine made of stand-in libraries: it always ends with exit code 0 and says
what works, what does not, and what to do."""

import argparse
import json
import os
import subprocess
import unittest

ARGUMENTS = None


def doctor(*options, **settings):
    environment = dict(os.environ)
    for name in ("LLMPROF_CUPTI", "LLMPROF_NVML", "LLMPROF_CUDA"):
        environment.pop(name, None)
    environment.update(settings)
    return subprocess.run([ARGUMENTS.binary, "doctor", *options], env=environment, text=True, capture_output=True,
                          timeout=120, check=False)


def stand_ins():
    cupti = os.path.join(ARGUMENTS.fakes, "libcupti.so.13")
    return {"LLMPROF_NVML": os.path.join(ARGUMENTS.fakes, "libnvidia-ml.so.1"), "LLMPROF_CUDA": cupti,
            "LLMPROF_CUPTI": cupti}


def checks(result):
    return {check["name"]: check for check in json.loads(result.stdout)["checks"]}


class Doctor(unittest.TestCase):
    def test_everything_works(self):
        result = doctor("--format", "json", **stand_ins())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["gpus"], 1)
        found = checks(result)
        for name in ("nvml", "gpu 0", "gpm of gpu 0", "cuda", "cupti", "counters of gpu 0", "recorder"):
            self.assertEqual(found[name]["state"], "works", found[name])
        self.assertIn("with hardware counters", json.loads(result.stdout)["conclusion"])

    def test_no_permission(self):
        result = doctor("--json", FAKE_PM_AVAILABILITY="35", **stand_ins())
        self.assertEqual(result.returncode, 0)
        counters = checks(result)["counters of gpu 0"]
        self.assertEqual(counters["state"], "limited")
        self.assertIn("ERR_NVGPUCTRPERM", counters["found"])
        self.assertIn("SYS_ADMIN" if "container" in counters["found"] else "modprobe.d", counters["advice"])
        self.assertIn("without hardware counters", json.loads(result.stdout)["conclusion"])

    def test_a_crash_inside_the_driver(self):
        result = doctor(FAKE_PM_CRASH="1", **stand_ins())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("crashed (signal 11", result.stdout)

    def test_no_gpu(self):
        result = doctor(LLMPROF_NVML="/no/such/library", LLMPROF_CUDA="/no/such/library")
        self.assertEqual(result.returncode, 0)
        self.assertIn("No GPU can be used here", result.stdout)
        self.assertIn("llmprof analyze", " ".join(result.stdout.split()))
        self.assertIn("to do: install the NVIDIA driver", result.stdout)

    def test_text_fits_a_terminal(self):
        for line in doctor(FAKE_PM_AVAILABILITY="35", **stand_ins()).stdout.splitlines():
            if "/" not in line:  # a path is never cut
                self.assertLessEqual(len(line), 120, line)

    def test_a_wrong_command_line(self):
        self.assertEqual(doctor("--format", "xml").returncode, 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--fakes", required=True)
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=["doctor_test"] + rest)
