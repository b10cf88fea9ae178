#!/usr/bin/env python3
"""`llmprof run --with ncu|nsys` as a user types it, with stand-ins for both tools on PATH (fake_ncu.py, fake_nsys.py), which
parse their command lines by what the tools' manuals document.

    drive_test.py --binary build/release/bin/llmprof --fakes FOLDER
"""
import argparse
import csv
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
INPUTS = HERE.parent / "golden/inputs"
RECORDING = INPUTS / "kineto_llama-3.1-8b_unlabelled.json.gz"
TABLE = INPUTS / "ncu_raw_decode.csv.gz"
OPTIONS = None

# Launches kernels through a stand-in for CUPTI where llmprof's recorder is in it, and does nothing on the GPU elsewhere.
PROGRAM = """
import ctypes, os, sys, time
library = os.environ.get("CUDA_INJECTION64_PATH")
print("injected" if library else "plain", flush=True)
if not library: sys.exit(0)
cupti = ctypes.CDLL(os.environ["FAKES"] + "/libcupti.so.13")
ctypes.CDLL(os.environ["FAKES"] + "/libcudart.so.13")
ctypes.CDLL(library).InitializeInjection()
cupti.fake_now.restype = ctypes.c_uint64
cupti.fake_launch.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64]
cupti.fake_synchronize_stream.argtypes = [ctypes.c_void_p, ctypes.c_bool]
names = [(b"_Z3bigPfi", 9000), (b"_Z5smallPfi", 3000), (b"_Z4tinyPfi", 100)]
for step in range(20):
    for name, ns in names:
        cupti.fake_launch(name, cupti.fake_now(), ns, 7, 0)
    cupti.fake_synchronize_stream(None, False)
    time.sleep(0.001)
"""
HANGS = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); time.sleep(600)"


def is_alive(marker):
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z" and marker.encode() in words:
            return True
    return False


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="llmprof-drive-test-")
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)
        self.store, self.bin, self.call = self.place / "store", self.place / "bin", self.place / "call.json"
        self.bin.mkdir()

    def tool(self, name):
        (self.bin / name).symlink_to(HERE / f"fake_{name}.py")

    def run_llmprof(self, *words, command="run", **settings):
        fakes = OPTIONS.fakes
        env = {**os.environ, "PATH": f"{self.bin}:/usr/bin:/bin", "LLMPROF_STORE": str(self.store), "FAKES": fakes,
               "LLMPROF_CUPTI": f"{fakes}/libcupti.so.13", "LLMPROF_CUDA": f"{fakes}/libcupti.so.13", "CUDA_HOME": "", "CUDA_PATH": "",
               "FAKE_NCU_CALL": str(self.call), "FAKE_NCU_TABLE": str(TABLE), "FAKE_NSYS_CALL": str(self.call),
               "FAKE_NSYS_EXPORT": str(INPUTS / "nsys_2026.sqlite"), **settings}
        return subprocess.run([OPTIONS.binary, command, *words], env=env, cwd=self.place, capture_output=True, text=True, timeout=120,
                              check=False)

    def seen(self):
        return json.loads(self.call.read_text())

    def said_line(self, stderr, tool):
        """The command line that was printed, as a shell would read it."""
        line = [line for line in stderr.splitlines() if line.startswith(f"llmprof: {tool}: /")]
        self.assertEqual(len(line), 1, stderr)
        return shlex.split(line[0][len(f"llmprof: {tool}: "):])


class Ncu(Case):
    def test_hot_kernels_of_a_recording_are_joined_with_it(self):
        self.tool("ncu")
        done = self.run_llmprof("--with", "ncu", "--hot", str(RECORDING), "--json", "--", sys.executable, "-c", "print('hello')")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("hello\n"), done.stdout[:80])
        report = json.loads(done.stdout[len("hello\n"):])
        options = self.seen()["options"]
        fixed = {"--target-processes": "all", "--clock-control": "none", "--cache-control": "none", "--csv": True, "--page": "raw",
                 "--print-units": "base", "--kernel-name-base": "function"}
        self.assertEqual({name: options.get(name) for name in fixed}, fixed)
        self.assertEqual(self.seen()["injected"], [])
        self.assertEqual(self.seen()["command"], [sys.executable, "-c", "print('hello')"])
        self.assertNotIn("--nvtx", options)
        # What was printed is what was run.
        words = self.said_line(done.stderr, "ncu")
        self.assertEqual(words[words.index("--kernel-name") + 1], options["--kernel-name"])
        self.assertEqual(words[-3:], [sys.executable, "-c", "print('hello')"])
        # The table lies in the run's folder, and its values are the report's.
        log = pathlib.Path(options["--log-file"])
        self.assertEqual(log.parent.parent, self.store)
        with open(log, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(line for line in file if line.startswith('"')))[1:]
        self.assertGreater(len(rows), 0)
        self.assertLessEqual(len(rows), int(options["--launch-count"]))
        self.assertEqual(sum(row["calls"] for row in report["profiled_kernels"]), len(rows))
        for row in report["profiled_kernels"]:
            calls = [float(one["dram__bytes_read.sum"].replace(",", "")) for one in rows if one["Kernel Name"] == row["name"]
                     and one["Grid Size"].strip("()").replace(", ", "x") == row["grid"]]
            of_name = [one for one in report["profiled_kernels"] if (one["name"], one["grid"]) == (row["name"], row["grid"])]
            if len(of_name) == 1:
                self.assertAlmostEqual(row["dram_read_bytes"], sum(calls) / len(calls), delta=1)
        # It is a run of the store that reads both again.
        shown = self.run_llmprof("last", "--no-store", "--json", command="analyze")
        self.assertEqual(shown.returncode, 2, "`last` is a recording of llmprof run, and there is none")
        number = int(log.parent.name.split("-")[0])
        self.assertIn(f"llmprof: counters: {log}  (run {number})\n", done.stderr)
        again = self.run_llmprof(str(number), "--no-store", "--json", command="analyze")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(json.loads(again.stdout)["profiled_kernels"], report["profiled_kernels"])
        verified = self.run_llmprof("verify", command="runs")
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)

    def test_without_a_recording_one_is_made_first(self):
        self.tool("ncu")
        (self.place / "program.py").write_text(PROGRAM)
        done = self.run_llmprof("--with", "ncu", "--kernels", "2", "--json", "--", sys.executable, "program.py", FAKE_NCU_TABLE="",
                                FAKE_NCU_KERNELS=";".join(f"{name}(float *, int)x1" for name in ["big", "small", "tiny"] * 20))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("injected\nplain\n"), done.stdout[:100])  # first with llmprof in it, then without
        self.assertEqual(self.seen()["injected"], [])
        self.assertEqual(self.seen()["options"]["--kernel-name"], "regex:^(big|small)$")
        report = json.loads(done.stdout[len("injected\nplain\n"):])
        # Names are joined although the recorders write them differently: 20 launches of 9 us, 3 us.
        joined = {row["name"]: (row["recorded_calls"], row["recorded_us"]) for row in report["profiled_kernels"]}
        self.assertEqual(joined, {"big(float *, int)": (20, 9.0), "small(float *, int)": (20, 3.0)})
        # Of the recording, `--hot last` finds the same kernels.
        again = self.run_llmprof("--with", "ncu", "--kernels", "2", "--print", "--hot", "last", "--", "true")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("'regex:^(big|small)$'", again.stdout)

    def test_a_range_and_metrics(self):
        self.tool("ncu")
        done = self.run_llmprof("--with", "ncu", "--hot", str(RECORDING), "--range", "a/b", "--metrics", "dram_read_bytes,stall_sync",
                                "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        options = self.seen()["options"]
        self.assertTrue(options["--nvtx"])
        self.assertEqual(options["--nvtx-include"], "a\\/b/")
        self.assertEqual(options["--metrics"].split(",")[:2], ["gpu__time_duration.sum", "dram__bytes_read.sum"])
        self.assertIn("dram_read_bytes is dram__bytes_read.sum today", done.stderr)

    def test_counters_stand_on_the_page(self):
        self.tool("ncu")
        done = self.run_llmprof("--with", "ncu", "--hot", str(RECORDING), "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("occupancy", done.stdout)

    def test_print_runs_nothing(self):
        self.tool("ncu")
        done = self.run_llmprof("--with", "ncu", "--hot", str(RECORDING), "--print", "--", "touch", "made")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse((self.place / "made").exists() or self.call.exists() or self.store.exists())
        line, then, analyze = done.stdout.strip().split("\n")
        self.assertEqual(then, "then")
        self.assertEqual(shlex.split(analyze), ["llmprof", "analyze", str(RECORDING), "ncu.csv"])
        # The line works by hand, and so does that which reads it.
        env = {**os.environ, "FAKE_NCU_TABLE": str(TABLE)}
        ran = subprocess.run(shlex.split(line), cwd=self.place, env=env, capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertTrue((self.place / "made").exists() and (self.place / "ncu.csv").exists())
        read = self.run_llmprof(*shlex.split(analyze)[2:], "--no-store", "--json", command="analyze")
        self.assertEqual(read.returncode, 0, read.stderr)

    def test_it_is_missing(self):
        done = self.run_llmprof("--with", "ncu", "--hot", str(RECORDING), "--", "touch", "made")
        if "llmprof: ncu: /" in done.stderr:
            self.skipTest("ncu is installed here")
        self.assertEqual(done.returncode, 1, done.stderr)
        for words in ("expected ncu (Nsight Compute), found none", "the folders of PATH", "/opt/nvidia/nsight-compute", "--kernel-name",
                      f"llmprof analyze {RECORDING} ncu.csv"):
            self.assertIn(words, done.stderr)
        self.assertFalse((self.place / "made").exists())

    def test_no_permission(self):
        self.tool("ncu")
        done = self.run_llmprof("--with", "ncu", "--hot", str(RECORDING), "--", "true", FAKE_NCU="permission")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("==ERROR== ERR_NVGPUCTRPERM", done.stderr)  # its own words
        self.assertIn("GPU counters are limited to administrators", done.stderr)  # the doctor's
        self.assertIn("NVreg_RestrictProfilingToAdminUsers=0", done.stderr)
        self.assertIn("--kernel-name", done.stderr)
        self.assertEqual(list(self.store.glob("0*")), [], "a run that came to nothing is kept")

    def test_another_profiler_holds_the_counters(self):
        self.tool("ncu")
        done = self.run_llmprof("--with", "ncu", "--hot", str(RECORDING), "--", "true", FAKE_NCU="busy")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("dcgmi profile --pause", done.stderr)

    def test_the_budget_stops_the_program_and_its_children(self):
        self.tool("ncu")
        began, marker = time.monotonic(), f"marker-{os.getpid()}"
        hangs = HANGS.replace("time.sleep(600)']", f"time.sleep(600)', '{marker}']")
        done = self.run_llmprof("--with", "ncu", "--hot", str(RECORDING), "--budget-s", "2", "--json", "--", sys.executable, "-c", hangs,
                                marker)
        self.assertLess(time.monotonic() - began, 40)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the 2 s of --budget-s are over", done.stderr)
        self.assertGreater(len(json.loads(done.stdout)["profiled_kernels"]), 0)  # what ncu had until then
        self.assertFalse(is_alive(marker), "a process of the program runs on")

    def test_a_program_that_ignores_signals_is_killed(self):
        self.tool("ncu")
        marker = f"stubborn-{os.getpid()}"
        stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        done = self.run_llmprof("--with", "ncu", "--hot", str(RECORDING), "--budget-s", "1", "--no-report", "--", sys.executable, "-c",
                                stubborn, marker)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(is_alive(marker))

    def test_the_programs_exit_code(self):
        self.tool("ncu")
        done = self.run_llmprof("--with", "ncu", "--hot", str(RECORDING), "--no-report", "--", "sh", "-c", "exit 7")
        self.assertEqual(done.returncode, 7, done.stderr)

    def test_a_folder_of_ones_own(self):
        self.tool("ncu")
        done = self.run_llmprof("--with", "ncu", "--hot", str(RECORDING), "--no-store", "-o", "mine", "--no-report", "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.place / "mine/ncu.csv").exists())
        self.assertFalse(self.store.exists())
        words = shlex.split((self.place / "mine/command.txt").read_text())
        self.assertEqual(words[words.index("--log-file") + 1], str(self.place / "mine/ncu.csv"))
        again = self.run_llmprof("--with", "ncu", "--hot", str(RECORDING), "-o", "mine", "--", "true")
        self.assertEqual(again.returncode, 1, again.stderr)
        self.assertIn("expected a new or empty folder", again.stderr)


class Nsys(Case):
    def test_its_export_is_reported(self):
        self.tool("nsys")
        done = self.run_llmprof("--with", "nsys", "--duration", "3", "--json", "--", "echo", "hello")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("hello\n"))
        report = json.loads(done.stdout[len("hello\n"):])
        self.assertEqual(report["source"]["kind"], "nsys")
        seen = self.seen()
        output = pathlib.Path(seen["options"].pop("--output"))
        self.assertEqual(output.parent.parent, self.store)
        self.assertEqual(seen["options"], {"--trace": "cuda,nvtx,cublas,osrt", "--cuda-graph-trace": "node", "--sample": "none",
                                           "--cpuctxsw": "none", "--duration": "3", "--kill": "none", "--export": "sqlite",
                                           "--force-overwrite": "true"})
        self.assertEqual((seen["command"], seen["injected"]), (["echo", "hello"], []))
        self.assertEqual(self.said_line(done.stderr, "nsys")[1:3], ["profile", "--trace=cuda,nvtx,cublas,osrt"])
        again = self.run_llmprof("last", "--no-store", "--json", command="analyze")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(json.loads(again.stdout)["stages"], report["stages"])
        verified = self.run_llmprof("verify", command="runs")
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)

    def test_an_older_version_gets_what_it_knows(self):
        self.tool("nsys")
        done = self.run_llmprof("--with", "nsys", "--no-report", "--", "true", FAKE_NSYS="old")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.seen()["options"]["--trace"], "cuda,nvtx,osrt")
        self.assertNotIn("--cuda-graph-trace", self.seen()["options"])

    def test_it_fails(self):
        self.tool("nsys")
        done = self.run_llmprof("--with", "nsys", "--", "true", FAKE_NSYS="fails")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("Importer error status", done.stderr.split("its last lines")[1])
        self.assertIn("llmprof analyze", done.stderr)

    def test_it_is_missing(self):
        done = self.run_llmprof("--with", "nsys", "--", "touch", "made")
        if "llmprof: nsys: /" in done.stderr:
            self.skipTest("nsys is installed here")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("nsys profile --trace=cuda,nvtx,cublas,osrt", done.stderr)
        self.assertIn("llmprof analyze nsys.sqlite", done.stderr)
        self.assertFalse((self.place / "made").exists())


class Options(Case):
    def test_what_does_not_go_together(self):
        for words, expected in ((["--hot", "last"], "expected --with"), (["--print"], "expected --with"),
                                (["--with", "nsys", "--metrics", "a.sum"], "which nsys does not profile"),
                                (["--with", "ncu", "--mode", "deep"], "llmprof's own recorder"),
                                (["--with", "nsys", "--torch"], "llmprof's own recorder"),
                                (["--with", "ncu", "--duration", "3"], "ncu counts launches"),
                                (["--with", "ncu", "--metrics", "a b"], "expected names of metrics")):  # before it is looked for
            with self.subTest(words=words):
                done = self.run_llmprof(*words, "--", "true")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(expected, done.stderr)

    def test_another_tool(self):
        done = self.run_llmprof("--with", "vtune", "--", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("ncu", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--fakes", required=True, help="folder of the stand-in for CUPTI")
    OPTIONS, others = parser.parse_known_args()
    OPTIONS.binary, OPTIONS.fakes = os.path.abspath(OPTIONS.binary), os.path.abspath(OPTIONS.fakes)
    unittest.main(argv=sys.argv[:1] + others)
