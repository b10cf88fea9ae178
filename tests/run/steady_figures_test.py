"""tests/gpu/steady_test.py without a GPU: the processes alone that it forks, the interval of their median, its verdicts."""
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/gpu"))
import forked
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

    def judged(self, value, processes, unrecorded=None):
        own = {"unrecorded": unrecorded, "unrecorded_n": 0 if unrecorded is None else 9, "alone": steady_test.median(processes),
               "alone_n": 9 * len(processes), "alone_processes": sorted(processes)}
        headline = {"itl_ms": value, "itl_n": 9, "ttft_ms": None, "ttft_n": 0}
        return steady_test.judge({"headline": headline, "own": {"steps_ms": own, "ttft_ms": own}})["itl_ms"]["verdict"]

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


if __name__ == "__main__":
    unittest.main()
