#!/usr/bin/env python3
"""Golden tests: a command line, and exactly what it prints.

tests/golden/<area>/<case>/
    cmd              first line: arguments of llmprof, in shell quoting; later lines: "exit N" (default 0), "stdin FILE"
                     (through a pipe; default: nothing) and "env NAME=VALUE" (COLUMNS=80 makes the page one of a
                     terminal of 80 columns)
    expected.txt     what it prints to stdout; expected.json if that is JSON
    expected.err     what it prints to stderr; absent if nothing
    expected.out/    the files it writes to {out}
    ...              inputs of this case; inputs shared between cases lie in tests/golden/inputs

Commands run in tests/golden/inputs, so shared inputs go by their bare name; {case} is the folder of the case, {out} an
empty folder. The version of llmprof is masked. Every case runs with one and with three threads and must print the same.

Every report.json is also checked against the laws of docs/architecture.md by code that shares nothing with llmprof:
totals that must add up, keys that must be there, and times recomputed from the recording in decimal arithmetic.
"""

import argparse
import difflib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import conservation

ROOT = pathlib.Path(__file__).resolve().parent
INPUTS = ROOT / "inputs"
DIFF_LINES_MAX = 80


class Failure(Exception):
    pass


def read_case(folder):
    lines = (folder / "cmd").read_text().splitlines()
    code, stdin, environment = 0, None, {}
    for line in lines[1:]:
        if not line.strip() or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "exit":
            code = int(rest)
        elif word == "stdin":
            stdin = rest
        elif word == "env" and "=" in rest:
            name, _, value = rest.partition("=")
            environment[name] = value
        else:
            raise Failure(f"{folder}/cmd: expected 'exit N', 'stdin FILE' or 'env NAME=VALUE', found {line!r}")
    return shlex.split(lines[0]), code, stdin, environment


def normalise(text, version, out):
    text = text.replace(str(out), "OUT").replace(str(ROOT), "GOLDEN")
    return re.sub(r"(?<![\w.])" + re.escape(version) + r"(?![\w.])", "VERSION", text) if version else text


def run(binary, arguments, folder, threads, version, of_case, stdin=None):
    """stdout, stderr, exit code and written files of one run."""
    with tempfile.TemporaryDirectory(prefix="llmprof-golden-") as temporary:
        out = pathlib.Path(temporary) / "out"
        out.mkdir()
        case = os.path.relpath(folder, INPUTS)
        words = [word.replace("{case}", case).replace("{out}", str(out)) for word in arguments]
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": temporary, "LC_ALL": "C.UTF-8",
                       "LLMPROF_THREADS": str(threads), "NO_COLOR": "1", "LLMPROF_STORE": "off", **of_case}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            if name in os.environ:
                environment[name] = os.environ[name]
        piped = (INPUTS / stdin.replace("{case}", case)).read_bytes() if stdin else b""
        done = subprocess.run([binary, *words], cwd=INPUTS, env=environment, input=piped,
                              capture_output=True, timeout=300, check=False)
        files = {str(path.relative_to(out)): normalise(path.read_text(errors="backslashreplace"), version, out)
                 for path in sorted(out.rglob("*")) if path.is_file()}
        return {"stdout": normalise(done.stdout.decode(errors="backslashreplace"), version, out),
                "stderr": normalise(done.stderr.decode(errors="backslashreplace"), version, out),
                "exit": done.returncode, "files": files}


def expected_name(stdout):
    return "expected.json" if stdout.lstrip().startswith("{") else "expected.txt"


def difference(name, wanted, found):
    if wanted == found:
        return ""
    lines = list(difflib.unified_diff(wanted.splitlines(), found.splitlines(), f"{name} (expected)", f"{name} (found)",
                                      lineterm=""))
    more = [f"... {len(lines) - DIFF_LINES_MAX} more lines"] if len(lines) > DIFF_LINES_MAX else []
    return "\n".join(lines[:DIFF_LINES_MAX] + more) or f"{name}: differs in line ends only"


def check_laws(arguments, folder, result):
    """Conservation on every report, wherever it was printed."""
    texts = dict(result["files"], stdout=result["stdout"])
    for name, text in texts.items():
        if not text.lstrip().startswith("{"):
            continue
        try:
            conservation.check_document(text, recordings(arguments, folder))
        except conservation.Broken as broken:
            raise Failure(f"{name}: {broken}") from broken


def check_laws_of_text(binary, arguments, folder, version, of_case, result):
    """A page or a folder of tables holds the same report: its laws are checked on the JSON of the same command."""
    if (arguments[:1] not in (["analyze"], ["demo"]) or result["exit"] not in (0, 3)
            or result["stdout"].lstrip().startswith("{") or "--help" in arguments):
        return
    counts = re.findall(r"conservation: (\d+) of (\d+) totals", result["stdout"])
    if not counts and not result["files"]:
        raise Failure("the page does not say whether its totals add up")
    for good, all_of_them in counts:
        if good != all_of_them or good == "0":
            raise Failure(f"only {good} of {all_of_them} totals add up")
    if arguments[0] == "analyze":
        words = [word for word in arguments if word not in ("--format", "csv", "-o", "{out}", "--format=csv")] + ["--json"]
        check_laws(arguments, folder, run(binary, words, folder, 1, version, of_case))


def recordings(arguments, folder):
    """The Kineto files named on the command line."""
    found = []
    for word in arguments:
        path = INPUTS / word.replace("{case}", os.path.relpath(folder, INPUTS))
        if re.search(r"\.json(\.gz)?$", word) and path.is_file():
            found.append(path)
    return found


def compare(folder, result):
    name = expected_name(result["stdout"])
    problems = []
    stdout = folder / name
    problems.append(difference(name, stdout.read_text() if stdout.exists() else "", result["stdout"]))
    stderr = folder / "expected.err"
    problems.append(difference("stderr", stderr.read_text() if stderr.exists() else "", result["stderr"]))
    written = folder / "expected.out"
    wanted = {str(path.relative_to(written)): path.read_text() for path in sorted(written.rglob("*")) if path.is_file()}
    for path in sorted(set(wanted) | set(result["files"])):
        problems.append(difference(path, wanted.get(path, ""), result["files"].get(path, "")))
    problems = [problem for problem in problems if problem]
    if problems:
        raise Failure("\n".join(problems) + "\nIf this is what it should print now: ./dev golden --update")


def update(folder, result):
    for old in folder.glob("expected.*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    if result["stdout"]:
        (folder / expected_name(result["stdout"])).write_text(result["stdout"])
    if result["stderr"]:
        (folder / "expected.err").write_text(result["stderr"])
    for name, text in result["files"].items():
        path = folder / "expected.out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run_case(binary, folder, version, updating):
    arguments, code, stdin, environment = read_case(folder)
    result = run(binary, arguments, folder, 1, version, environment, stdin)
    if result["exit"] != code:
        raise Failure(f"expected exit code {code}, found {result['exit']}\nstderr:\n{result['stderr'][-2000:]}")
    threaded = run(binary, arguments, folder, 3, version, environment, stdin)
    for part in ("exit", "stdout", "stderr", "files"):
        if threaded[part] != result[part]:
            lines = difference(part, str(result[part]), str(threaded[part]))
            raise Failure(f"{part} depends on the number of threads (1 against 3):\n{lines}")
    check_laws(arguments, folder, result)
    if not stdin:
        check_laws_of_text(binary, arguments, folder, version, environment, result)
    if updating:
        update(folder, result)
    else:
        compare(folder, result)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--update", action="store_true", help="write what is printed now as what is expected")
    parser.add_argument("cases", nargs="*", help="area/case, or part of it; all if none is given")
    options = parser.parse_args()
    binary = str(pathlib.Path(options.binary).resolve())
    folders = sorted(path.parent for path in ROOT.glob("*/*/cmd"))
    chosen = [folder for folder in folders
              if not options.cases or any(name in str(folder.relative_to(ROOT)) for name in options.cases)]
    if not chosen:
        sys.exit(f"no golden case matches {options.cases}")
    words = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout.split()
    version = words[-1] if words else ""
    failed = 0
    for folder in chosen:
        name = folder.relative_to(ROOT)
        try:
            run_case(binary, folder, version, options.update)
            print(f"{'updated' if options.update else 'ok'} {name}")
        except (Failure, subprocess.TimeoutExpired) as problem:
            failed += 1
            print(f"FAILED {name}: {' '.join(read_case(folder)[0])}\n{problem}\n")
    print(f"{len(chosen) - failed} of {len(chosen)} golden cases passed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
