#!/usr/bin/env python3
"""What `llmprof diff` says of a slower SM clock, by recordings whose arithmetic is stretched as that clock would.

A recorded prompt is stretched here: time passes more slowly where a product or attention runs on the GPU, on every thread, so that
all gaps, launches and waits keep their order. A log of nvidia-smi beside each gives the clocks. What the clock costs is this file's
own sum; the part of the difference called `clock` must be that, and what else is planted must be in a part of its own.
"""

import argparse
import bisect
import copy
import datetime
import gzip
import json
import os
import pathlib
import re
import subprocess
import tempfile

INPUTS = pathlib.Path(__file__).parent / "inputs"
ARITHMETIC, PASSES = "nvjet|gemm|flash|fmha", "MulFunctor"
# Its prompt keeps the GPU busy, so that no host time that is stretched too is waited for. It ends before so many ms from the first
# kernel: products of decode steps read memory.
RECORDING, PROMPT_MS = "batched.json.gz", 54
MHZ = 1980
problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)


class Stretched:
    """A trace in which time passes factor times as slowly within the kernels that `chosen` is true of."""

    def __init__(self, trace, factor, chosen):
        spans = sorted((e["ts"], e["dur"]) for e in trace["traceEvents"] if e.get("cat") == "kernel" and chosen(e))
        self.starts = [start for start, _ in spans]
        self.spans, self.factor, self.before = spans, factor, [0]
        for _, length in spans:
            self.before.append(self.before[-1] + length)
        self.added_ms = (factor - 1) * self.before[-1] / 1e3
        self.trace = copy.deepcopy(trace)
        for event in self.trace["traceEvents"]:
            if "ts" in event:
                start = self.at(event["ts"])
                if "dur" in event:
                    event["dur"] = self.at(event["ts"] + event["dur"]) - start
                event["ts"] = start

    def at(self, time):
        i = bisect.bisect_right(self.starts, time)
        inside = self.before[i - 1] + min(time - self.spans[i - 1][0], self.spans[i - 1][1]) if i else 0
        return time + (self.factor - 1) * inside


def query_log(trace, name, mhz):
    """Readings every 4 ms, from a second before the recording to one behind it."""
    times = [trace["baseTimeNanoseconds"] / 1e9 + e["ts"] / 1e6 for e in trace["traceEvents"] if e.get("ph") == "X"]
    lines, at = ["timestamp, index, name, power.draw [W], clocks.current.sm [MHz]"], min(times) - 1
    while at < max(times) + 1:
        when = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=at)
        lines.append(f"{when:%Y/%m/%d %H:%M:%S.%f}"[:23] + f", 0, {name}, 600.00 W, {mhz} MHz")
        at += 0.004
    return "\n".join(lines) + "\n"


class Runs:
    """A store of analyses, each of a trace and a log of clocks."""

    def __init__(self, binary, root):
        self.binary, self.root, self.count = binary, root, 0
        self.environment = {**os.environ, "LLMPROF_HOME": str(root / "home"), "LLMPROF_STORE": str(root / "store")}

    def call(self, *words):
        done = subprocess.run([self.binary, *words], capture_output=True, text=True, timeout=120, env=self.environment)
        if done.returncode:
            raise RuntimeError(f"{words}: exit {done.returncode}: {done.stderr[-500:]}")
        return done.stdout

    def add(self, trace, mhz):
        self.count += 1
        recording, log = self.root / f"{self.count}.json", self.root / f"{self.count}.csv"
        recording.write_text(json.dumps(trace))
        log.write_text(query_log(trace, trace["deviceProperties"][0]["name"], mhz))
        self.call("analyze", str(recording), str(log))
        return self.count

    def parts_of_prompt(self, a, b):
        """ms by part, of the change of TTFT, and the change."""
        result = json.loads(self.call("diff", str(a), str(b), "--json"))
        [row] = [row for row in result["stages"] if row["kind"] == "prefill" and row["metric"] == "ttft"]
        expect(row["attributed_by"] == "replay", f"attributed by {row['attributed_by']}")
        parts = {}
        for part in row["attribution"]:
            parts[part["part"]] = parts.get(part["part"], 0) + part["delta_ms"]
        return parts, row["b"] - row["a"], result["comparable"]


def judge(what, parts, changed, wanted):
    """Each part within 2 % of the whole change of what was planted, 0 where nothing was."""
    planted = sum(wanted.values())
    slack = 0.02 * sum(abs(value) for value in wanted.values())
    expect(abs(changed - planted) < slack, f"{what}: TTFT changed by {changed:.3f} ms, {planted:.3f} planted")
    for part in set(parts) | set(wanted):
        expect(abs(parts.get(part, 0) - wanted.get(part, 0)) < slack,
               f"{what}: {part} {parts.get(part, 0):+.3f} ms, planted {wanted.get(part, 0):+.3f}: {parts}")


def of_prompt(trace, words, end_ms):
    """Whether an event is a kernel of the prompt with such a name."""
    first = min(e["ts"] for e in trace["traceEvents"] if e.get("cat") == "kernel")
    return lambda event: bool(re.search(words, event["name"])) and event["ts"] < first + 1000 * end_ms


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    trace = json.loads(gzip.decompress((INPUTS / RECORDING).read_bytes()))
    for low_mhz in (1920, 1880, 1755, 1200):
        with tempfile.TemporaryDirectory() as folder:
            runs = Runs(binary, pathlib.Path(folder))
            slower = Stretched(trace, MHZ / low_mhz, of_prompt(trace, ARITHMETIC, PROMPT_MS))
            both = Stretched(slower.trace, 1.3, of_prompt(slower.trace, PASSES, PROMPT_MS + slower.added_ms))
            at_full = runs.add(trace, MHZ)
            at_low = runs.add(slower.trace, low_mhz)
            same_clock = runs.add(slower.trace, MHZ)
            with_both = runs.add(both.trace, low_mhz)
            label = f"{MHZ} to {low_mhz} MHz"
            expect(both.added_ms > 1 and slower.added_ms > 0.5, f"{label}: {both.added_ms} and {slower.added_ms} ms planted")
            parts, changed, comparable = runs.parts_of_prompt(at_full, at_low)
            judge(label, parts, changed, {"clock": slower.added_ms})
            # Readings of clocks closer than 2 % are of other moments of the same clock.
            expect(any("SM clock" in line for line in comparable["differs"]), f"{label}: {comparable}")
            parts, changed, _ = runs.parts_of_prompt(at_low, at_full)
            judge(f"{label}, the other way", parts, changed, {"clock": -slower.added_ms})
            parts, changed, comparable = runs.parts_of_prompt(at_full, same_clock)
            judge(f"{label}, clocks equal", parts, changed, {"kernel-slower": slower.added_ms})
            expect(not comparable["differs"], f"{label}, clocks equal: {comparable}")
            parts, changed, _ = runs.parts_of_prompt(at_full, with_both)
            judge(f"{label}, and a kernel", parts, changed, {"clock": slower.added_ms, "kernel-slower": both.added_ms})
    for problem in problems:
        print("FAIL", problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
