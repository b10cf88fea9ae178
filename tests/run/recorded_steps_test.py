#!/usr/bin/env python3
"""benchmarks/recorded_steps.py: its figures on made-up step times, and whole, against a fake CUPTI.

    recorded_steps_test.py --binary build/release/bin/llmprof --library build/release/lib/libcupti.so.alone --fakes FOLDER
"""
import argparse
import contextlib
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import recorded_steps

OPTIONS = None


def made_up(rounds, alone, recorded, noise=0.001):
    """Turns in which "nothing" takes 10 ms a step, drifting by 5 % from round to round."""
    generator = random.Random(7)
    turns = []
    for number in range(rounds + 1):
        drift = 1 + 0.05 * (number % 3)
        for mode, factor in (("nothing", 1.0), ("alone", alone), ("recorded", recorded)):
            slow = 3.0 if number == 0 else 1.0  # warm-up
            steps = [10 * drift * factor * slow * (1 + generator.gauss(0, noise)) for _ in range(30)]
            turns.append({"round": number, "mode": mode, "cupti": "out" if mode == "nothing" else mode, "ms": steps,
                          "passed_over": 0})
    return turns


class Figures(unittest.TestCase):
    def test_points_by_rounds(self):
        out = recorded_steps.summarize("items", {"turns": made_up(8, 1.10, 1.115), "notes": []})
        self.assertEqual(out["rounds"], 8)
        self.assertEqual(out["steps"], {"nothing": 240, "alone": 240, "recorded": 240})
        self.assertAlmostEqual(out["points"]["alone"]["median"], 10.0, delta=0.1)
        self.assertAlmostEqual(out["points"]["recorded"]["median"], 11.5, delta=0.1)
        found = out["points"]["undisturbed"]
        self.assertAlmostEqual(found["median"], 1.5, delta=0.1)
        self.assertLess(found["ci95"][0], found["median"])
        self.assertGreater(found["ci95"][1], found["median"])
        self.assertTrue(out["within_limit"] and out["certain"])
        self.assertEqual(out["cupti"]["nothing"], {"out": 8})

    def test_too_dear(self):
        out = recorded_steps.summarize("items", {"turns": made_up(8, 1.10, 1.15), "notes": []})
        self.assertFalse(out["within_limit"])
        self.assertTrue(out["certain"])

    def test_paces_of_the_host(self):
        turns = made_up(10, 1.10, 1.11)
        generator = random.Random(3)
        for turn in turns:  # in two thirds of its time a state is half as slow again, each in its own
            slow_until = generator.randrange(30)
            turn["ms"] = [ms * (1.5 if at > slow_until else 1) for at, ms in enumerate(turn["ms"])]
        out = recorded_steps.summarize("items", {"turns": turns, "notes": []})
        self.assertAlmostEqual(out["points"]["undisturbed"]["median"], 1.0, delta=0.3)
        self.assertTrue(out["within_limit"])

    def test_parts(self):
        turns = made_up(6, 1.10, 1.16)
        for turn in [turn for turn in turns if turn["mode"] == "alone"]:
            for mode, more in (("copies", 0.01), ("launches", 0.03), ("calls", 0.04)):
                turns.append(dict(turn, mode=mode, ms=[ms * (1 + more / 1.1) for ms in turn["ms"]]))
        out = recorded_steps.summarize("items", {"turns": turns, "notes": []})
        self.assertEqual({mode: round(part["median"]) for mode, part in out["parts"].items()},
                         {"alone": 10, "copies": 1, "launches": 2, "calls": 1, "recorded": 2})

    def test_noise_is_uncertain(self):
        out = recorded_steps.summarize("items", {"turns": made_up(8, 1.10, 1.12, noise=0.2), "notes": []})
        self.assertFalse(out["certain"])
        self.assertFalse(recorded_steps.summarize("items", {"turns": made_up(3, 1.1, 1.1), "notes": []})["certain"])

    def test_incomplete_rounds(self):
        turns = made_up(4, 1.1, 1.1)
        turns = [turn for turn in turns if (turn["round"], turn["mode"]) not in ((1, "alone"), (2, "recorded"))]
        out = recorded_steps.summarize("items", {"turns": turns, "notes": ["x"], "error": "it died"})
        self.assertEqual((out["rounds"], out["notes"], out["error"]), (2, 1, "it died"))
        self.assertNotIn("points", out)


class Corrected(unittest.TestCase):
    """What a report makes of the recorded steps, against those of "nothing"."""

    def summary(self, shift=0, without=1.01, pieces=1):
        turns = made_up(8, 1.10, 1.115)
        steps, now = [], 1_700_000_000_000_000_000
        for turn in [turn for turn in turns if turn["mode"] == "recorded"]:
            turn["began_unix_ns"] = []
            for ms in turn["ms"]:
                turn["began_unix_ns"].append(now)
                for piece in range(pieces):  # a little beside the program's own
                    steps.append({"start_unix_ns": now + 5_000 + round((piece / pieces + shift) * ms * 1e6),
                                  "duration_ns": round(ms * 1e6 / pieces), "recording": "recorded", "warm_up": False,
                                  "undisturbed_ms": ms / 1.115 * without / pieces})
                now += round(ms * 1e6) + 60_000
            now += 2_000_000_000
        found = recorded_steps.add_corrected(turns, {"steps": steps})
        return found, recorded_steps.summarize("items", {"turns": turns, "notes": []})["corrected"]

    def test_of_all_steps(self):
        found, out = self.summary()
        self.assertEqual(found, 270)
        self.assertEqual(out["steps"], 240)
        self.assertAlmostEqual(out["undisturbed"]["median"], 1.0, delta=0.1)
        self.assertAlmostEqual(out["medians"]["median"], 1.0, delta=0.1)
        self.assertLess(out["undisturbed"]["ci95"][0], out["undisturbed"]["ci95"][1])
        self.assertAlmostEqual(self.summary(without=0.9)[1]["undisturbed"]["median"], -10, delta=0.1)

    def test_other_steps_are_none_of_them(self):
        for other in ({"shift": 100}, {"shift": 0.5}, {"pieces": 2}, {"pieces": 3}, {"without": 1.115}):  # the last: as recorded
            found, out = self.summary(**other)
            self.assertEqual((found, out), (0, None), other)
        self.assertEqual(recorded_steps.add_corrected(made_up(3, 1.1, 1.1), None), 0)


class Arguments(unittest.TestCase):
    def wrong(self, *words):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            recorded_steps.checked(recorded_steps.arguments(), list(words))
        self.assertEqual(ended.exception.code, 2)
        return said.getvalue()

    def test_wrong(self):
        here = ["--llmprof", OPTIONS.binary, "--library", OPTIONS.library]
        self.assertIn("no program nothere", self.wrong("--programs", "items,nothere"))
        self.assertIn("3 at least", self.wrong(*here, "--rounds", "2"))
        self.assertIn("more than 0", self.wrong(*here, "--seconds", "0"))
        self.assertIn("no program /nothere", self.wrong("--llmprof", "/nothere"))
        self.assertIn("no library /nothere", self.wrong("--llmprof", OPTIONS.binary, "--library", "/nothere"))


class Whole(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="llmprof-recorded-steps-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def measure(self, programs, *words, budget="120", version="130001"):
        """Exit code, output and summary of a call with the stand-in."""
        summary = self.folder / "summary.json"
        summary.unlink(missing_ok=True)
        command = [sys.executable, "-B", str(ROOT / "benchmarks/recorded_steps.py"), "--llmprof", OPTIONS.binary,
                   "--library", OPTIONS.library, "--target", str(ROOT / "tests/run/recorded_steps_stand_in.py"),
                   "--programs", programs, "--rounds", "3", "--seconds", "0.03", "--counters", "off", "--timeout", "30",
                   "--no-costs", "--budget", budget, "--state", str(self.folder / "state.json"), "--summary", str(summary), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "FAKES": OPTIONS.fakes, "FAKE_CUPTI_VERSION": version})
        self.assertNotIn("Traceback", done.stderr, done.stderr)
        return done.returncode, done.stdout, json.loads(summary.read_text())["summary"]

    def measured(self, name, nothing, alone, version="130001"):
        code, said, summary = self.measure(name, "--keep", str(self.folder / "kept"), version=version)
        out = summary[name]
        self.assertNotIn("error", out, said)
        self.assertNotIn("notes", out, said)
        self.assertEqual(out["cupti"], {"nothing": {nothing: 3}, "alone": {alone: 3}, "recorded": {"recorded": 3}}, said)
        self.assertEqual(code, 0 if out["within_limit"] else 1)
        end = json.loads((self.folder / "state.json").read_text())["results"][name]["end"]
        self.assertEqual((end["unexpected"], end["refused_buffers"]), (0, 0))
        self.assertAlmostEqual(end["records_per_step_alone"], 10, delta=0.01)
        # The recorder has its callbacks back when it records, and none of the kernels of other turns.
        report = json.loads(subprocess.run([OPTIONS.binary, "analyze", "--json", str(self.folder / "kept" / name / "session")],
                                           capture_output=True, text=True, check=True).stdout)
        kernels, launches = (sum(stage[key] for stage in report["stages"]) for key in ("kernels", "launches"))
        self.assertGreater(kernels, 0)
        self.assertEqual(kernels, launches)
        return end

    def test_cupti_leaves(self):
        end = self.measured("small_kernels", "out", "own subscription")
        self.assertEqual((end["attached"], end["taken_out"]), (3, 2))  # rounds: R A N, N A R, R A N, N A R
        # What is measured is not measured again.
        code, said, _ = self.measure("small_kernels")
        self.assertIn("measured before", said)

    def test_cupti_stays_with_graphs_before_cuda_13(self):
        end = self.measured("graph_waited", "silent", "recorder's subscription", version="27")
        self.assertEqual((end["attached"], end["taken_out"]), (1, 0))

    def test_cupti_leaves_graphs(self):
        end = self.measured("graph_waited", "out", "own subscription")
        self.assertEqual((end["attached"], end["taken_out"]), (3, 2))

    def test_what_fails_is_told(self):
        code, said, summary = self.measure("items,eager_prefill")
        self.assertEqual(code, 1)
        self.assertIn("the stand-in dies", summary["items"]["error"])
        self.assertIn("did not come to CUPTI", summary["eager_prefill"]["error"])
        self.assertIn("not measured: items, eager_prefill", said)

    def test_no_time(self):
        code, said, summary = self.measure("items", budget="1")
        self.assertEqual((code, summary), (1, {}))
        self.assertIn("not started", said)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--fakes", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
