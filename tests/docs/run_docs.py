#!/usr/bin/env python3
"""Keeps the docs true: runs the commands they show and looks up the paths they name.

    ```sh run        every line of the block that starts with "llmprof " is run and must exit 0, or as a comment behind
                     it says: "# exit 2"
    ./dev WORD       WORD is a command of ./dev
    `src/base/x.h`   a path in backticks or in a relative link exists

Commands run in an empty folder in which trace.json.gz is a real recording, and tests and data are those of the
repository.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDING = ROOT / "tests/golden/inputs/kineto_llama-3.1-8b_unlabelled.json.gz"
FOLDERS = "src|docs|tests|data|benchmarks|cmake|\\.ci"


def pages():
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def runnable(text):
    """Commands of the blocks tagged as runnable, continued lines joined."""
    for block in re.findall(r"^```sh run\n(.*?)^```", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("llmprof "):
                yield line


def check_commands(page, text, binary, problems):
    count = 0
    with tempfile.TemporaryDirectory(prefix="llmprof-docs-") as folder:
        place = pathlib.Path(folder)
        (place / "trace.json.gz").symlink_to(RECORDING)
        (place / "tests").symlink_to(ROOT / "tests")
        (place / "data").symlink_to(ROOT / "data")
        for line in runnable(text):
            count += 1
            expected = re.search(r"#\s*exit (\d+)", line)
            # It sees no program that is watched meanwhile.
            environment = {"PATH": f"{binary.parent}:/usr/bin:/bin", "HOME": folder, "XDG_RUNTIME_DIR": folder,
                           "LC_ALL": "C.UTF-8"}
            done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, env=environment, capture_output=True,
                                  text=True, timeout=120, check=False)
            code = int(expected.group(1)) if expected else 0
            if done.returncode != code:
                problems.append(f"{page}: `{line}` exits {done.returncode}, expected {code}\n{done.stderr[-800:]}")
    return count


def check_paths(page, text, problems):
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for path in re.findall(r"`((?:" + FOLDERS + r")/[\w./-]*)`", prose):
        if not (ROOT / path).exists():
            problems.append(f"{page}: `{path}` does not exist")
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
        if "://" not in link and not (page.parent / link).exists():
            problems.append(f"{page}: the link {link} leads nowhere")


def check_dev(page, text, problems):
    commands = re.search(r"^commands=\((.*?)\)", (ROOT / "dev").read_text(), re.M).group(1).split()
    for word in re.findall(r"\./dev ([a-z]+)", text):
        if word not in commands:
            problems.append(f"{page}: ./dev {word} is no command of ./dev")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    binary = parser.parse_args().binary.resolve()
    problems, count = [], 0
    for page in pages():
        text = page.read_text()
        count += check_commands(page, text, binary, problems)
        check_paths(page, text, problems)
        check_dev(page, text, problems)
    if count == 0:
        problems.append("no runnable command found in any page")
    print("\n".join(problems))
    print(f"{len(pages())} pages, {count} commands run, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
