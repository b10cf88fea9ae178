"""tests/gpu/steady_test.py without a GPU: the processes alone that it forks, the interval of their median, its verdicts, which
steps were at full pace; and what causes_test.py takes of such steps."""
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/gpu"))
import causes_test
import forked
import pace
import steady_test

PROGRAM = """
import sys, time
print("ran", sys.argv[1:], __name__)
if sys.argv[1] == "fails": raise ValueError("as it was asked to")
if sys.argv[1] == "exits": sys.exit(int(sys.argv[2]))
if sys.argv[1] == "hangs": time.sleep(60)
"""


class Forked(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="llmprof-forked-test-")
        self.addCleanup(folder.cleanup)
        (pathlib.Path(folder.name) / "torch.py").write_text("")
        self.program = pathlib.Path(folder.name) / "program.py"
        self.program.write_text(PROGRAM)
        self.forks = forked.Forks(sys.executable, {**os.environ, "PYTHONPATH": folder.name, "PYTHONDONTWRITEBYTECODE": "1"})
        self.addCleanup(self.forks.close)

    def run_with(self, *words, timeout=20):
        return self.forks.run([str(self.program), *words], timeout)

    def test_each_runs_as_a_program(self):
        for _ in range(3):
            self.assertEqual(self.run_with("x", "1"), "ran ['x', '1'] __main__\n")
        self.assertIn("ran", self.run_with("exits", "0"))

    def test_what_fails_gives_nothing_and_the_next_runs(self):
        for words in (("fails",), ("exits", "3")):
            self.assertEqual(self.run_with(*words), "")
            self.assertIn("ran", self.run_with("x"))
        self.assertEqual(self.run_with("hangs", timeout=1), "")
        self.assertIn("ran", self.run_with("x"))


class Verdicts(unittest.TestCase):
    def test_interval_by_ranks(self):
        self.assertEqual(steady_test.median_interval(range(10)), (1, 8))
        self.assertEqual(steady_test.median_interval([5, 1, 4, 2, 3]), (1, 5))
        self.assertEqual(steady_test.median_interval(range(20)), (5, 14))

    def judged(self, value, processes, unrecorded=None, at_pace=None, slow=None):
        own = {"unrecorded": unrecorded, "unrecorded_n": 0 if unrecorded is None else 9, "alone": steady_test.median(processes),
               "alone_n": 9 * len(processes), "alone_processes": sorted(processes)}
        headline = {"itl_ms": value, "itl_n": 9, "ttft_ms": None, "ttft_n": 0}
        if at_pace:
            headline |= {"itl_full_pace_ms": at_pace[0], "itl_full_pace_n": 9}
            own["full_pace_processes"] = at_pace[1]
        found = {"headline": headline, "own": {"steps_ms": own, "ttft_ms": own}}
        if slow is not None:
            found["host_pace"] = [{"probes": 90, "best_ns": 3900, "slow_frac": slow}]
        return steady_test.judge(found)["itl_ms"]["verdict"]

    def test_against_ten_processes(self):
        alike, noisy = [10 + 0.01 * i for i in range(10)], [10 + 0.5 * i for i in range(10)]
        self.assertEqual(self.judged(10.2, alike), "ok")
        self.assertEqual(self.judged(10.5, alike), "off")
        self.assertEqual(self.judged(11.0, noisy), "undecided")
        self.assertEqual(self.judged(15.5, noisy), "off")

    def test_own_unrecorded_steps_come_first(self):
        noisy = [10 + 0.5 * i for i in range(10)]
        self.assertEqual(self.judged(11.0, noisy, unrecorded=11.1), "ok")
        self.assertEqual(self.judged(11.0, noisy, unrecorded=12), "off")

    def test_full_pace_decides_where_nothing_was_unrecorded(self):
        noisy, alike = [10 + 0.5 * i for i in range(10)], [10 + 0.01 * i for i in range(10)]
        self.assertEqual(self.judged(15.5, noisy, at_pace=(10.1, alike), slow=0.6), "ok")
        self.assertEqual(self.judged(12.2, noisy, at_pace=(10.9, alike), slow=0.6), "off")
        self.assertEqual(self.judged(12, noisy, unrecorded=12, at_pace=(10.9, alike), slow=0.6), "ok", "of the same steps")

    def test_a_slow_cpu_excuses_what_it_can_explain(self):
        alike = [10 + 0.01 * i for i in range(10)]
        self.assertEqual(self.judged(16, alike, slow=0.6), "slowed")
        self.assertEqual(self.judged(16, alike, slow=0.1), "off")
        self.assertEqual(self.judged(2, alike, slow=0.6), "off")
        self.assertEqual(self.judged(30, alike, slow=0.6), "off")
        self.assertEqual(self.judged(10.1, alike, slow=0.6), "ok")


MS = 1_000_000


def ran(steps):
    """(ms, slow) one after the other from 1 s on, a probe before the first and behind each."""
    at, result = 1000 * MS, {"steps": [], "requests": [], "paces": [[1000 * MS, 15_000]]}
    for ms, slow in steps:
        result["steps"].append({"kind": "decode", "start_ns": at, "end_ns": at + ms * MS, "warm_up": False})
        at += ms * MS
        result["paces"].append([at, 27_000 if slow else 15_000])
    return result


class Pace(unittest.TestCase):
    def test_probes_beside_a_step_tell_its_pace(self):
        result = ran([(8, False), (13, True), (8, False), (8, False)])
        best = pace.best([result])
        self.assertEqual(best, 15_000)
        spans = [(step["start_ns"], step["end_ns"]) for step in result["steps"]]
        self.assertEqual([pace.full(pace.slowest(result, *span), best) for span in spans], [True, False, False, True])
        self.assertIsNone(pace.slowest(result, 2000 * MS, 2010 * MS), "no probe is near")
        self.assertFalse(pace.full(None, best))
        self.assertIsNone(pace.best([{"steps": []}]), "a program without probes")
        self.assertEqual(steady_test.times(result, [], best_ns=best)["steps_ms"], [8, 8])

    def test_a_repair_saves_what_it_saves_at_full_pace(self):
        planted = [(8, False)] * 6 + [(16, True)] * 8
        fixed = [(4, False)] * 6 + [(8, True)] * 2
        turns = [{"planted": causes_test.steps_ms(ran(planted)), "fixed": causes_test.steps_ms(ran(fixed))}]
        self.assertEqual(causes_test.saved_at_full_pace(turns), 0.5)
        few = [{"planted": causes_test.steps_ms(ran(planted)), "fixed": causes_test.steps_ms(ran([(4, False), (8, True)]))}]
        self.assertIsNone(causes_test.saved_at_full_pace(few))


if __name__ == "__main__":
    unittest.main()
