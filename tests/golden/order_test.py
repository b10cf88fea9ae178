#!/usr/bin/env python3
"""The order of events in a file means nothing, and an event that stands there twice counts once: a shuffled and a partly
doubled recording give the report of the recording itself, digit for digit. So does llmprof's own file of it."""

import argparse
import gzip
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

INPUTS = pathlib.Path(__file__).resolve().parent / "inputs"
# The source differs by name, the diagnostics say that events were sorted or dropped.
MAY_DIFFER = {"source", "diagnostics"}


def split(text):
    """The text before the events, each event as it stands, the text behind."""
    start = text.index('"traceEvents": [') + len('"traceEvents": [')
    end = text.rindex("]")
    events = [event if event.count("{") == event.count("}") else event + "\n  }" for event in re.split(r"\n  \},\n", text[start:end])]
    return text[:start], events, text[end:]


def report(binary, path, *more):
    return json.loads(subprocess.run([binary, "analyze", path, "--json", *more], capture_output=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    failed = 0
    for name in ("kineto_qwen2.5-0.5b_annotated", "vision_language", "two_streams", "training"):
        head, events, tail = split(gzip.open(INPUTS / f"{name}.json.gz", "rt").read())
        generator = random.Random(1)
        shuffled = events[:]
        generator.shuffle(shuffled)
        doubled = shuffled + generator.sample(events, len(events) // 10)
        with tempfile.TemporaryDirectory(prefix="llmprof-order-") as folder:
            found = {}
            for kind, some in (("as recorded", events), ("shuffled", shuffled), ("doubled", doubled)):
                path = pathlib.Path(folder) / f"{kind.replace(' ', '_')}.json"
                path.write_text(head + ",\n".join(some) + tail)
                found[kind] = report(binary, path)
            own = pathlib.Path(folder) / "own.llmprof"
            report(binary, pathlib.Path(folder) / "as_recorded.json", "--save", own)
            found["saved"] = report(binary, own)
        counts = {row["key"]: row["count"] for row in found["doubled"]["diagnostics"]}
        for kind in ("shuffled", "doubled", "saved"):
            differ = [key for key, value in found["as recorded"].items() if key not in MAY_DIFFER and found[kind][key] != value]
            print(f"{'FAIL' if differ else 'ok  '} {name:34} {kind:10} {len(events)} events {differ}")
            failed += bool(differ)
        if name != "two_streams" and not counts.get("duplicate-event"):
            print(f"FAIL {name}: doubled events were not counted")
            failed += 1
    print(f"{failed} failed")
    return 1 if failed else 0


sys.exit(main())
