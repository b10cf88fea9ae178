#!/usr/bin/env python3
"""What `llmprof run` leaves beside a recording: its page, which holds the report that was printed and every row of it.

    page_test.py --binary build/release/bin/llmprof --fakes FOLDER

The program launches kernels through a stand-in for CUPTI.
"""
import argparse
import base64
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

OPTIONS = None
PROGRAM = """
import ctypes, os, sys, time
cupti = ctypes.CDLL(os.environ["FAKES"] + "/libcupti.so.13")
ctypes.CDLL(os.environ["FAKES"] + "/libcudart.so.13")
ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()  # as the driver does in cuInit
cupti.fake_now.restype = ctypes.c_uint64
cupti.fake_launch.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64]
cupti.fake_synchronize_stream.argtypes = [ctypes.c_void_p, ctypes.c_bool]
names = [b"_Z8kernel%02dPfi" % number for number in range(40)]  # which live as long as CUPTI's records
for step in range(20):
    for name in names:
        cupti.fake_launch(name, cupti.fake_now(), 1000, 7, 0)
    cupti.fake_synchronize_stream(None, False)
    time.sleep(0.001)
"""


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="llmprof-page-test-")
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)
        self.program = self.place / "program.py"
        self.program.write_text(PROGRAM)

    def run_llmprof(self, *options, store="off"):
        fakes = OPTIONS.fakes
        env = {**os.environ, "FAKES": fakes, "LLMPROF_CUPTI": f"{fakes}/libcupti.so.13", "LLMPROF_CUDA": f"{fakes}/libcupti.so.13",
               "LLMPROF_STORE": str(store)}
        return subprocess.run([OPTIONS.binary, "run", "--counters", "off", *options, "--", sys.executable, str(self.program)],
                              env=env, cwd=self.place, capture_output=True, text=True, timeout=120)

    def result_in(self, page):
        found = re.search(r'<script type="application/json" id="llmprof-result"([^>]*)>\s*(.*?)\s*</script>', page, re.DOTALL)
        text = found[2]
        return json.loads(gzip.decompress(base64.b64decode(text)) if "gzip" in found[1] else text)

    def test_it_holds_the_whole_report(self):
        done = self.run_llmprof("-o", "kept", "--top", "3", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"page: {self.place}/kept/report.html\n", done.stderr)
        printed, kept = json.loads(done.stdout), self.result_in((self.place / "kept/report.html").read_text())
        self.assertEqual(len(printed["kernels_topk"]), 3)
        self.assertGreaterEqual(len(kept["kernels_topk"]), 40)
        self.assertEqual(kept["kernels_topk"][:3], printed["kernels_topk"])
        self.assertEqual(kept["stages"], printed["stages"])
        self.assertIn('id="llmprof-timeline"', (self.place / "kept/report.html").read_text())

    def test_in_the_run_store_it_is_one_of_the_runs_files(self):
        store = self.place / "store"
        done = self.run_llmprof(store=store)
        self.assertEqual(done.returncode, 0, done.stderr)
        pages = list(store.glob("*/recording/report.html"))
        self.assertEqual(len(pages), 1, done.stderr)
        shown = subprocess.run([OPTIONS.binary, "runs", "verify"], env={**os.environ, "LLMPROF_STORE": str(store)},
                               capture_output=True, text=True)
        self.assertEqual(shown.returncode, 0, shown.stdout + shown.stderr)
        manifest = json.loads(next(store.glob("*/manifest.json")).read_text())
        self.assertIn("recording/report.html", [file["path"] for file in manifest["files"]])

    def test_it_can_be_left_out(self):
        done = self.run_llmprof("-o", "kept", "--no-html")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("page:", done.stderr)
        self.assertFalse((self.place / "kept/report.html").exists())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--fakes", required=True)
    OPTIONS, others = parser.parse_known_args()
    OPTIONS.binary, OPTIONS.fakes = os.path.abspath(OPTIONS.binary), os.path.abspath(OPTIONS.fakes)
    unittest.main(argv=sys.argv[:1] + others)
