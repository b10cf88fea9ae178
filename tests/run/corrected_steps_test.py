"""benchmarks/corrected_steps.py without a GPU: what it makes of a report, and its verdicts."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import corrected_steps


def report_of(corrected_ms, slow_spell):
    """Twelve recorded steps of 12 ms and forty unrecorded ones of 10 ms; in a slow spell a third of the latter take 15 ms."""
    steps = [{"recording": "recorded", "duration_ns": 12_000_000, "undisturbed_ms": corrected_ms, "host_pace_frac": 1.0}] * 12
    slow = {"recording": "unrecorded", "duration_ns": 15_000_000, "undisturbed_ms": 15.0, "host_pace_frac": 0.7}
    steps += [slow if slow_spell and i < 25 else {**slow, "duration_ns": 10_000_000, "host_pace_frac": 0.99} for i in range(40)]
    steps += [{**slow, "duration_ns": 90_000_000, "host_pace_frac": 1.0, "warm_up": True},
              {**slow, "recording": "edge", "duration_ns": 80_000_000, "host_pace_frac": 1.0}]
    steps = [{**step, "start_unix_ns": 1_700_000_000_000_000_000 + i * 100_000_000} for i, step in enumerate(steps)]
    common = {"stage": "prefill step", "warm_up": False}
    row = {"stage": "prefill step", "unrecorded_ms": 15.0 if slow_spell else 10.0, "unrecorded_steps": 40, "recorded_ms": 12.0,
           "recorded_steps": 12, "replayed_ms": corrected_ms, "agree_frac": 0.01}
    return {"steps": [{**common, **step} for step in steps],
            "undisturbed": [row, {**row, "stage": "other", "recorded_steps": 1, "unrecorded_ms": None}],
            "overhead": {"calls_factor": 1.1, "calls_factor_error": 0.1, "calls_factor_changes": 2}}


class CorrectedSteps(unittest.TestCase):
    def test_steps_at_full_pace_decide(self):
        for slow_spell in (False, True):
            row = corrected_steps.figures_of(report_of(10.1, slow_spell))
            self.assertAlmostEqual(row["full_pace_frac"], 0.01)
            self.assertEqual(row["full_pace_steps"], [12, 15 if slow_spell else 40])
            self.assertAlmostEqual(row["all_steps_frac"], 10.1 / 15 - 1 if slow_spell else 0.01)
            self.assertEqual(corrected_steps.verdict(row), "yes")
        self.assertEqual(corrected_steps.verdict(corrected_steps.figures_of(report_of(10.3, False))), "NO")
        self.assertEqual(corrected_steps.verdict(corrected_steps.figures_of(report_of(9.7, False))), "NO")

    def test_a_program_that_becomes_quicker_is_compared_beside_its_recorded_steps(self):
        report = report_of(10.1, False)
        for step in report["steps"][22:]:  # more than a second behind the last recorded one
            step["duration_ns"] = 9_000_000
        row = corrected_steps.figures_of(report)
        self.assertAlmostEqual(row["full_pace_frac"], 10.1 / 9 - 1)
        self.assertAlmostEqual(row["near_frac"], 0.01)
        self.assertEqual(row["near_steps"], [10, 10])
        self.assertEqual(corrected_steps.verdict(row), "NO")

    def test_too_few_steps_decide_nothing(self):
        report = report_of(10.1, False)
        report["steps"] = report["steps"][3:]
        row = corrected_steps.figures_of(report)
        self.assertIsNone(row["full_pace_frac"])
        self.assertEqual(corrected_steps.verdict(row), "few")
        report["undisturbed"] = report["undisturbed"][1:]
        self.assertIsNone(corrected_steps.figures_of(report))

    def test_kept_recordings_are_analysed_again(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            llmprof = root / "llmprof"  # reports on the one session that is there
            (root / "report.json").write_text(json.dumps(report_of(10.1, False)))
            (root / "items/session").mkdir(parents=True)
            llmprof.write_text(f'#!/bin/sh\n[ "$1" = analyze ] && [ -d "$2" ] && exec cat {root}/report.json\necho "found no $2" >&2; exit 1\n')
            llmprof.chmod(0o755)

            def again(*words):
                return subprocess.run([sys.executable, "-B", str(ROOT / "benchmarks/corrected_steps.py"), "--again", "--llmprof", str(llmprof),
                                       "--state", str(root / "state.json"), *words], capture_output=True, text=True)
            done = again("--keep", str(root), "--programs", "items")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertAlmostEqual(json.loads((root / "state.json").read_text())["results"]["items"]["full_pace_frac"], 0.01)
            done = again("--keep", str(root), "--programs", "items,small_graphs")
            self.assertEqual(done.returncode, 1)
            self.assertIn("small_graphs: found no", done.stdout)
            done = again()
            self.assertEqual(done.returncode, 2)
            self.assertIn("--again needs --keep", done.stderr)


if __name__ == "__main__":
    unittest.main()
