#!/usr/bin/env python3
"""A report is one page: at most 60 lines, at any width from 80 columns on, with the first finding's gain and place in its
first ten lines; and --full has all that the page leaves out."""

import argparse
import json
import os
import pathlib
import subprocess
import sys

INPUTS = pathlib.Path(__file__).resolve().parent / "inputs"
LINES, FIRST = 60, 10


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary

    def analyze(path, *words, columns=None):
        env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LLMPROF_HOME")}
        env.update({"LLMPROF_HOME": "/nonexistent", "LLMPROF_STORE": "off", "LC_ALL": "C.UTF-8"}, **({"COLUMNS": str(columns)} if columns else {}))
        done = subprocess.run([binary, "analyze", str(path), "--quiet", *words], capture_output=True, text=True, env=env)
        return done.stdout if done.returncode in (0, 3) else None

    problems, pages = [], 0
    for path in sorted(INPUTS.iterdir()):
        whole = analyze(path, "--full")
        if whole is None:
            continue  # no recording
        report = json.loads(analyze(path, "--json"))
        first = next((row for row in report["findings"] if row["severity"] not in ("info",)), None)
        for columns in (None, 200, 110, 80):
            page = analyze(path, columns=columns)
            lines = page.rstrip("\n").split("\n")
            pages += 1
            where = f"{path.name}, {columns or 'no'} columns"
            if len(lines) > LINES:
                problems.append(f"{where}: {len(lines)} lines")
            if len(lines) > len(whole.split("\n")):
                problems.append(f"{where}: longer than --full")
            if columns and max(map(len, lines)) > columns:
                problems.append(f"{where}: wider")
            if columns == 80 or any(line.startswith("  warning:") for line in lines):
                continue  # lines break earlier there, and warnings stand first
            head = " ".join(line.strip() for line in lines[:FIRST])
            if first and first["title"].isprintable() and first["title"] not in head:
                problems.append(f"{where}: the first finding is not in the first {FIRST} lines: {first['title']}")
            if first and first["gain"] and " -> " not in head:
                problems.append(f"{where}: the first finding's gain is not in the first {FIRST} lines")
            for row in (first or {}).get("where", [])[:1]:
                if row["name"] not in head:
                    problems.append(f"{where}: its place is not in the first {FIRST} lines: {row['name']}")
        for row in report["findings"]:
            if row["id"] + ":" not in whole:
                problems.append(f"{path.name}: --full lacks finding {row['id']}")
    if pages < 40:
        problems.append(f"only {pages} pages were looked at")
    print("\n".join(problems) or f"{pages} pages of at most {LINES} lines")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
