#!/usr/bin/env python3
"""llmprof report: what was kept of a run is what `analyze` has printed, byte for byte, in every format, for recordings
of every kind; by number, name, `last`, folder and file; and what cannot be is said."""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--binary", required=True)
parser.add_argument("--source", required=True)
args = parser.parse_args()

folder = pathlib.Path(tempfile.mkdtemp(prefix="llmprof-report-"))
env = {**os.environ, "LLMPROF_STORE": str(folder / "runs"), "LLMPROF_STORE_KEEP": "100", "LLMPROF_HOME": str(folder),
       "LC_ALL": "C.UTF-8"}
failures = []


def run(*words, code=(0, 3)):
    done = subprocess.run([args.binary, *map(str, words)], env=env, capture_output=True, text=True, errors="surrogateescape",
                          cwd=folder)
    if done.returncode not in code:
        failures.append(f"{words}: exit code {done.returncode}: {done.stderr[:300]}")
    return done


def check(holds, what):
    if not holds:
        failures.append(what)


def tables(path):
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


# Every recording, in every format.
inputs = pathlib.Path(args.source) / "tests" / "golden" / "inputs"
recordings = [path for path in sorted(inputs.iterdir()) if path.suffix in (".gz", ".sqlite", ".spool", ".txt")]
check(len(recordings) > 20, f"only {len(recordings)} recordings in {inputs}")
kept = 0
for path in recordings:
    text = run("analyze", path, "-q", code=(0, 1, 3))
    if text.returncode == 1:
        continue  # of no GPU, for example: nothing is kept
    kept += 1
    again = run("report", "last", "-q")
    check(again.stdout == text.stdout, f"{path.name}: the text differs")
    check(again.returncode == text.returncode, f"{path.name}: exit code {again.returncode}, not {text.returncode}")
    for words in (["--full"], ["--top", "3"], ["--json"]):
        one = run("analyze", path, "-q", "--no-store", *words)
        two = run("report", "last", "-q", *words)
        check(one.stdout == two.stdout, f"{path.name} {words}: differs")
    run("analyze", path, "-q", "--no-store", "--format", "csv", "-o", folder / "a")
    run("report", "last", "-q", "--format", "csv", "-o", folder / "b")
    check(tables(folder / "a") == tables(folder / "b"), f"{path.name}: the tables differ")
    shutil.rmtree(folder / "a")
    shutil.rmtree(folder / "b")
check(kept > 20, f"only {kept} reports")

# A program on the CPU has other words, and its page the timeline that run has left.
run("run", "--name", "tiny", "-q", "--", args.binary, "workload", "--device", "cpu", "--size", "tiny", "-q")
shown = json.loads(run("runs", "show", "last", "--json").stdout)
number = shown["number"]
home = pathlib.Path(run("runs", "open", "last").stdout.strip())
for words in ([], ["--full"]):
    one = run("analyze", number, "-q", "--no-store", *words).stdout
    check(run("report", number, "-q", *words).stdout == one, f"of a CPU {words}: differs")
check("GPU busy" not in run("report", number).stdout, "a CPU is called a GPU")
page = folder / "page.html"
run("report", "tiny", "-o", page)
timeline = re.compile(r'id="llmprof-timeline">([A-Za-z0-9+/=]+)<')
check(timeline.findall(page.read_text()) == timeline.findall((home / "recording" / "report.html").read_text()) != [],
      "the page has not the timeline of the run")
check('rel="up"' not in page.read_text(), "a page in a file links to a server")

# However a run is named; its recording is not read.
shutil.rmtree(home / "recording")
expected = run("report", number).stdout
check("TPOT" in expected, "without the recording there is no report")
for word in ("tiny", "last", f"#{number}", home, home / "report.json"):
    check(run("report", word).stdout == expected, f"named {word}: differs")
copy = folder / "copy"
copy.mkdir()
shutil.copy(home / "report.json", copy)
check(run("report", copy).stdout == expected, "a folder with a report.json: differs")
stored = run("report", number, "--json").stdout
check(stored == (home / "report.json").read_text(), "the JSON is not as it was kept")

# What cannot be.
said = run("report", "tinny", code=(2,)).stderr
check("did you mean tiny" in said, f"no near name: {said}")
check("expected" in run("report", 9999, code=(2,)).stderr, "a number that no run has")
(folder / "empty").mkdir()
check("report.json" in run("report", folder / "empty", code=(2,)).stderr, "a folder without a report")
check("-o" in run("report", number, "--format", "csv", code=(2,)).stderr, "csv without a folder")
run("bench", "rmsnorm", "--device", "cpu", "-q")
said = run("report", "last", code=(2,)).stderr
check("llmprof bench" in said and "--format html" in said, f"text of a bench: {said}")
check(json.loads(run("report", "last", "--json").stdout)["cases"], "the JSON of a bench")
# Of another version, a page and its JSON can be had, and text cannot.
changed = json.loads(stored)
changed["tool_version"] = "9.9.9"
del changed["source"]["duration_ms"]
(copy / "report.json").write_text(json.dumps(changed))
said = run("report", copy, code=(1,)).stderr
check("9.9.9" in said and "source.duration_ms" in said and "--format html" in said, f"of another version: {said}")
run("report", copy, "-o", page)
check('data-kind="report"' in page.read_text(), "the page of another version")
for broken in ("{", "[]", '{"schema": "llmprof.report/1"}', '{"schema": "x"}', "", "\x00"):
    (copy / "report.json").write_text(broken)
    check(re.search("expected|empty", run("report", copy, code=(1,)).stderr), f"{broken!r}")
changed = json.loads(stored)
changed["stages"][0]["wall_ms"] = "soon"
(copy / "report.json").write_text(json.dumps(changed))
check("stages.wall_ms" in run("report", copy, code=(1,)).stderr, "a text in the place of a number")

shutil.rmtree(folder)
print("\n".join(failures[:40]) or f"{kept} reports are as they were")
raise SystemExit(1 if failures else 0)
