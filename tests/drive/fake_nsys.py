#!/usr/bin/env python3
"""Stands in for Nsight Systems on PATH: `profile --help`, and `profile` with the options that its manual documents. It runs
the program and leaves FAKE_NSYS_EXPORT as the export beside the report. FAKE_NSYS = profiles (default), old (a version
without cublas, --cuda-graph-trace, --cpuctxsw and --kill), fails. Its call is written to FAKE_NSYS_CALL as JSON."""
import json
import os
import re
import shutil
import subprocess
import sys

NUMBER = re.compile(r"\d+(\.\d+)?$")
OPTIONS = {"--trace": None, "--cuda-graph-trace": re.compile(r"(graph|node)(:.*)?$"), "--sample": re.compile(r"(process-tree|system-wide|cpu|none)$"),
           "--cpuctxsw": re.compile(r"(process-tree|system-wide|none)$"), "--delay": NUMBER, "--duration": NUMBER,
           "--kill": re.compile(r"(none|sigkill|sigterm|[0-9]+)$"), "--export": re.compile(r"(sqlite|arrow|hdf|json|text|none)$"),
           "--force-overwrite": re.compile(r"(true|false)$"), "--output": None}
TRACES = ["cuda", "nvtx", "cublas", "cublas-verbose", "cudnn", "opengl", "osrt", "mpi", "none"]
OLD = os.environ.get("FAKE_NSYS") == "old"
if OLD:
    for gone in ("--cuda-graph-trace", "--cpuctxsw", "--kill"):
        del OPTIONS[gone]
    TRACES.remove("cublas")


def show_help():
    print("usage: nsys profile [<args>] [application] [<application args>]\n")
    for name in sorted(OPTIONS):
        print(f"\t{name}=\n")
        if name == "--trace":
            print("\t   Possible values are " + ", ".join(f"'{trace}'" for trace in TRACES) + ".\n\t   Select the API(s) to trace.\n")
        else:
            print("\t   See the manual.\n")


def main():
    if sys.argv[1:2] != ["profile"]:
        sys.exit("error: expected a command")
    words = sys.argv[2:]
    if words == ["--help"]:
        show_help()
        return 0
    options = {}
    while words and words[0].startswith("-"):
        name, equals, value = words.pop(0).partition("=")
        if name not in OPTIONS or not equals or (OPTIONS[name] and not OPTIONS[name].match(value)):
            sys.exit(f"unrecognised option '{name}={value}'\nusage: nsys profile [<args>] [application] [<application args>]")
        options[name] = value
    unknown = [trace for trace in options["--trace"].split(",") if trace not in TRACES]
    if unknown or not words:
        sys.exit(f"Illegal --trace argument '{unknown}', or no application.")
    if path := os.environ.get("FAKE_NSYS_CALL"):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"options": options, "command": words,
                       "injected": [name for name, value in os.environ.items() if "llmprof_inject" in value]}, file)
    code = subprocess.run(words, check=False).returncode
    if os.environ.get("FAKE_NSYS") == "fails":
        print("Importer error status: Importation failed.", file=sys.stderr)
        return 1
    print("Generating '/tmp/nsys-report-1.qdstrm'", file=sys.stderr)
    open(options["--output"] + ".nsys-rep", "w", encoding="utf-8").close()
    if options.get("--export") == "sqlite":
        shutil.copy(os.environ["FAKE_NSYS_EXPORT"], options["--output"] + ".sqlite")
    return code


if __name__ == "__main__":
    sys.exit(main())
