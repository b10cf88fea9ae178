#!/usr/bin/env python3
"""Whether rewording the sentences of the declarations changes anything but the list of metrics."""

import argparse
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
import run as golden  # noqa: E402

SUFFIX = " (reworded)"
LENGTH_MIN = 40  # shorter ones may stand in code for other reasons ("Kernel name")


def metrics(binary):
    done = subprocess.run([binary, "list", "metrics", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["rows"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--reworded", required=True)
    parser.add_argument("--objects", required=True, help="folder of the libraries of all rooms")
    options = parser.parse_args()

    plain, reworded = metrics(options.binary), metrics(options.reworded)
    problems = []
    if len(plain) < 500 or len(plain) != len(reworded):
        problems.append(f"{len(plain)} columns, {len(reworded)} reworded: expected as many, and at least 500")
    for row, other in zip(plain, reworded):
        if other != dict(row, meaning=row["meaning"] + SUFFIX):
            problems.append(f"{row['table']}.{row['name']}: not reworded: {other}")

    # What is not in an object, the object cannot depend on.
    sentences = [row["meaning"].encode() for row in plain if len(row["meaning"]) >= LENGTH_MIN]
    libraries = [path for path in pathlib.Path(options.objects).rglob("libllmprof_*.a") if "report" not in path.name]
    if len(libraries) < 8:
        problems.append(f"expected the libraries of at least 8 rooms under {options.objects}, found {len(libraries)}")
    for path in libraries:
        content = path.read_bytes()
        problems += [f"{path.name} holds the sentence '{text.decode()}'" for text in sentences if text in content]

    version = subprocess.run([options.reworded, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    cases = 0
    for area in ("analyze", "demo", "list", "wrong"):
        for folder in sorted(path.parent for path in golden.ROOT.glob(f"{area}/*/cmd")):
            if str(folder.relative_to(golden.ROOT)) == "list/metrics":
                continue
            arguments, code, stdin, environment = golden.read_case(folder)
            result = golden.run(options.reworded, arguments, folder, 1, version, environment, stdin)
            cases += 1
            try:
                if result["exit"] != code:
                    raise golden.Failure(f"expected exit code {code}, found {result['exit']}")
                golden.compare(folder, result)
            except golden.Failure as failure:
                problems.append(f"{folder.relative_to(golden.ROOT)}: {failure}")
    for problem in problems[:20]:
        print(problem)
    print(f"{len(plain)} sentences reworded, {cases} golden cases, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
