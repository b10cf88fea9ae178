#!/usr/bin/env python3
"""Where the report says that a program is while the GPU waits for its code: in the functions that do the work, which
call no CUDA, by file and line.

    code_places_test.py --binary build/release/bin/llmprof --fakes FOLDER

The programs run in this interpreter and launch kernels through a stand-in for CUPTI. Skipped (77) where the recorder
does not know the interpreter.
"""
import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

OPTIONS = None
CUDA = """
import copy, ctypes, os, time
cupti = ctypes.CDLL(os.environ["FAKES"] + "/libcupti.so.13")
ctypes.CDLL(os.environ["FAKES"] + "/libcudart.so.13")
ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()  # as the driver does in cuInit
cupti.fake_now.restype = ctypes.c_uint64
cupti.fake_launch.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64]
cupti.fake_synchronize_stream.argtypes = [ctypes.c_void_p, ctypes.c_bool]
names = [b"_Z8kernel%02dPfi" % number for number in range(12)]  # which live as long as CUPTI's records

def launch():
    for name in names:
        cupti.fake_launch(name, cupti.fake_now(), 40000, 7, 0)

def wait():
    cupti.fake_synchronize_stream(None, False)

def until(end):  # does nothing but ask for the time
    while time.perf_counter() < end:
        pass
"""


def line_of(program, text):
    lines = [number for number, line in enumerate(program.split("\n"), 1) if text in line]
    assert len(lines) == 1, (text, lines)
    return lines[0]


class CodePlaces(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="llmprof-code-places-")
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)

    def report_of(self, program, *options):
        """The report, and the program's text, whose line numbers are those of the file."""
        program = CUDA + program
        (self.place / "program.py").write_text(program)
        fakes = OPTIONS.fakes
        env = {**os.environ, "FAKES": fakes, "LLMPROF_CUPTI": f"{fakes}/libcupti.so.13", "LLMPROF_CUDA": f"{fakes}/libcupti.so.13",
               "LLMPROF_STORE": "off"}
        done = subprocess.run([OPTIONS.binary, "run", "--counters", "off", "--no-html", "-o", str(self.place / "kept"), "--json", "--top", "50",
                               *options, "--", sys.executable, "program.py"],
                              env=env, cwd=self.place, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), program

    def host_code(self, report):
        """Host ms a step by place, all stages together, and the place that has most."""
        sums = {}
        for row in report.get("host_places", []):
            if row["kind"] == "host-code":
                sums[row["place"]] = sums.get(row["place"], 0) + row["host_ms_per_step"]
        self.assertTrue(sums, "no host code was seen")
        return sums, max(sums, key=sums.get)

    def samples(self):
        """Rows of the recording's host_places that are samples."""
        folder = self.place / "csv"
        shown = subprocess.run([OPTIONS.binary, "export", str(self.place / "kept"), "--to", "csv", "-o", str(folder)],
                               capture_output=True, text=True)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        with open(folder / "host_places.csv", encoding="utf-8", newline="") as file:
            return [row for row in csv.DictReader(file) if row["kind"] == "code-sample"]

    def test_the_function_that_calls_no_cuda_is_named(self):
        report, program = self.report_of("""
def slow(seconds):
    end = time.perf_counter() + seconds
    total = 0
    while time.perf_counter() < end:
        total += sum(range(300))  # the slow line
    return total

def prepare():
    return slow(0.003)  # called from here

for step in range(60):
    prepare()
    launch()
    wait()
""")
        inner, outer = line_of(program, "# the slow line"), line_of(program, "# called from here")
        named = f"slow (program.py:{inner}) < prepare (program.py:{outer})"
        sums, most = self.host_code(report)
        self.assertEqual(most, named, sums)
        self.assertGreater(sums[most], 0.8 * sum(sums.values()), sums)
        found = [place for finding in report["findings"] if finding["id"] in ("host-preprocessing", "cpu-bound-gap")
                 for place in finding["where"]]
        self.assertTrue(found, report["findings"])
        self.assertEqual((found[0]["kind"], found[0]["name"]), ("python", named), "the place is where it is, not behind it")
        rows = self.samples()
        self.assertGreater(len(rows), 60, "several of each 3 ms")
        self.assertLess(len(rows), 60 * 25, "one in 200 us at most")

    def test_of_library_code_the_programs_line_is_named(self):
        report, program = self.report_of("""
state = {n: {"ids": list(range(20)), "text": str(n)} for n in range(120)}

def keep():
    return copy.deepcopy(state)  # copies

def step():
    keep()  # calls
    launch()
    wait()

for number in range(60):
    step()
""")
        _, most = self.host_code(report)
        self.assertEqual(most, f"keep (program.py:{line_of(program, '# copies')}) < step (program.py:{line_of(program, '# calls')})")

    def test_code_without_frames_of_its_own_is_at_its_line(self):
        """One call of C for milliseconds, once with the interpreter's lock and once without."""
        report, program = self.report_of("""
import random, zlib
numbers = [random.random() for _ in range(20000)]
text = os.urandom(120000)

def sort():
    return sorted(numbers)  # holds the lock

def pack():
    return zlib.compress(text)  # gives it up

for number in range(60):
    sort()
    launch()
    pack()
    launch()
    wait()
""")
        sums, _ = self.host_code(report)
        for function, mark in (("sort", "# holds the lock"), ("pack", "# gives it up")):
            place = f"{function} (program.py:{line_of(program, mark)}) < <module>"
            self.assertTrue(any(name.startswith(place) and ms > 0.5 for name, ms in sums.items()), (place, sums))

    def test_a_launching_thread_is_not_taken_for_another(self):
        report, program = self.report_of("""
import threading
over = threading.Event()

def beside():
    while not over.is_set():
        time.sleep(0.001)

def prepare():
    until(time.perf_counter() + 0.004)  # here it is

def serve():
    for step in range(40):
        prepare()
        launch()
        wait()

other = threading.Thread(target=beside)
other.start()
server = threading.Thread(target=serve)
server.start()
server.join()
over.set()
other.join()
""")
        sums, most = self.host_code(report)
        self.assertRegex(most, r"until \(program.py:\d+\) < prepare \(program.py:" + str(line_of(program, "# here it is")) + r"\)")
        self.assertFalse([name for name in sums if "beside" in name], sums)

    def test_threads_that_come_and_go(self):
        """Their thread states are freed while the recorder may still read them; every step has a thread of its own."""
        report, program = self.report_of("""
import threading
def prepare():
    until(time.perf_counter() + 0.001)

def step():
    prepare()
    launch()
    prepare()
    launch()
    wait()

for number in range(150):
    threads = [threading.Thread(target=step) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
""")
        places = {row["stack"] for row in self.samples()}
        self.assertTrue(any("prepare (" in stack for stack in places), places)

    def test_forked_children_go_on(self):
        self.report_of("""
for number in range(30):
    until(time.perf_counter() + 0.002)
    launch()
    wait()
    if number % 10 == 5:
        child = os.fork()
        if child == 0:
            until(time.perf_counter() + 0.01)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
""")

    def test_without_records_of_calls_nothing_is_sampled(self):
        self.report_of("""
for number in range(30):
    until(time.perf_counter() + 0.002)
    launch()
    wait()
""", "--mode", "light")
        self.assertEqual(self.samples(), [])


def suite_of(words):
    loader = unittest.TestLoader()
    return loader.loadTestsFromNames([f"CodePlaces.{word}" for word in words], sys.modules[__name__]) if words else loader.loadTestsFromTestCase(CodePlaces)


def run_again(words):
    """The recorder's sampler needs a CPU now and then, which a busy machine may not give it for seconds: what fails is run
    again up to three times, and what is wrong of itself is so every time."""
    for runs_left in (3, 2, 1, 0):
        result = unittest.TextTestRunner(verbosity=2).run(suite_of(words))
        failed = [test for test, _ in result.failures + result.errors]
        if not failed or runs_left == 0:
            return 1 if failed else 0
        words = [test.id().rpartition(".")[2] for test in failed]
        print("again:", *words, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--fakes", required=True, help="folder of libraries in place of NVIDIA's")
    parser.add_argument("tests", nargs="*", help="names of tests; all where none is named")
    OPTIONS = parser.parse_args()
    if not (3, 10) <= sys.version_info[:2] <= (3, 12):
        print(f"the recorder does not know Python {sys.version.split()[0]}")
        sys.exit(77)
    sys.exit(run_again(OPTIONS.tests))
