"""What tests of readers share that compare a report with their own reading of the same files."""

import collections
import json
import subprocess

problems = []


def expect(condition, text):
    if not condition and len(problems) < 20:
        problems.append(text)
    return condition


def near(a, b, slack=1e-9):
    return a is not None and b is not None and abs(a - b) <= slack * max(1, abs(b))


def report_of(binary, *files, code=0):
    done = subprocess.run([binary, "analyze", *map(str, files), "--json"], capture_output=True, text=True, timeout=120)
    expect(code is None and done.returncode in (0, 3) or done.returncode == code, f"{[file.name for file in files]}: exit {done.returncode}: {done.stderr}")
    return json.loads(done.stdout) if done.stdout else collections.defaultdict(list)
