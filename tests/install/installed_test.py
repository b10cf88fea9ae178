#!/usr/bin/env python3
"""What `cmake --install` puts under a prefix: complete, startable on systems as old as RHEL 9 (glibc 2.34) and Ubuntu 22.04
(2.35), and movable.

    installed_test.py --build BUILD_FOLDER     installs it and looks at everything
    installed_test.py --prefix FOLDER          the same for what is installed or unpacked already

Sanitizer builds are not for other systems: there only that the installed program runs is tested.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import elf

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDING = ROOT / "tests/golden/inputs/kineto_llama-3.1-8b_unlabelled.json.gz"

FILES = ["bin/llmprof", "lib/libllmprof_inject.so", "share/llmprof/python/sitecustomize.py",
         "share/llmprof/python/llmprof_frames.py", "share/man/man1/llmprof.1",
         "share/bash-completion/completions/llmprof", "share/fish/vendor_completions.d/llmprof.fish"]
ZSH = ["share/zsh/site-functions/_llmprof", "share/zsh/vendor-completions/_llmprof"]

# glibc, and what every glibc comes with. RHEL 9 has glibc 2.34 and GCC 11.
NEEDED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "libdl.so.2", "libpthread.so.0"}
NEWEST = {"GLIBC": (2, 34), "GCC": (7, 0, 0), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13)}

problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)


def check_elf(path):
    file = elf.Elf(path)
    extra = set(file.needed()) - NEEDED
    expect(not extra, f"{path.name} needs {', '.join(sorted(extra))}: link it statically")
    newest = {}
    for library, version in file.versions():
        family, _, number = version.partition("_")
        if not re.fullmatch(r"[\d.]+", number):
            expect(False, f"{path.name} needs {version} of {library}, which is not for programs")
            continue
        parts = tuple(int(part) for part in number.split("."))
        newest[family] = max(newest.get(family, ()), parts)
        expect(parts <= NEWEST.get(family, ()), f"{path.name} needs {version} of {library}; allowed is at most "
               f"{family}_{'.'.join(map(str, NEWEST.get(family, ())))}")
    # The host program has a C++ library of its own: neither may find the other's functions.
    shown = [name for name in file.exported() if name.startswith(("_Z", "__cxa", "__gxx"))]
    expect(not shown, f"{path.name} shows {len(shown)} functions of its C++ library, {shown[:3]}: hide them")
    for place in file.search_paths():
        expect(place.startswith("$ORIGIN"), f"{path.name} looks for libraries in {place}, which is not relative to itself")
    versions = " ".join(f"{family}_{'.'.join(map(str, parts))}" for family, parts in sorted(newest.items()))
    print(f"{path.name}: needs {' '.join(file.needed())}; newest {versions}")
    expect("GLIBC" in newest, f"{path.name}: no versions of glibc's symbols were found")


class Program:
    """The installed program, with nothing of the build's environment."""

    def __init__(self, prefix, folder):
        self.binary, self.folder = prefix / "bin/llmprof", folder
        self.environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "LC_ALL": "C.UTF-8"}

    def run(self, *arguments, code=0):
        done = subprocess.run([self.binary, *map(str, arguments)], cwd=self.folder, env=self.environment, text=True,
                              capture_output=True, timeout=250, check=False)
        expect(done.returncode == code, f"llmprof {' '.join(map(str, arguments))}: exit {done.returncode}, expected {code}\n"
               f"{done.stderr[-800:]}")
        return done


def check_program(prefix, folder, recording):
    program = Program(prefix, folder)
    version = program.run("--version").stdout
    expect(re.fullmatch(r"llmprof \d+\.\d+\.\d+\n", version), f"--version printed {version!r}")
    expect(program.run("-V").stdout == version, "-V prints something else than --version")
    expect(program.run("list", "gpus").stdout.count("\n") > 20, "list gpus: too few lines")
    expect("change first" in program.run("demo", "--recorded", "--no-html").stdout, "demo --recorded: no findings")
    report = program.run("analyze", recording, "--json").stdout
    expect(report.startswith("{") and json.loads(report)["schema"] == "llmprof.report/1", "analyze: no report")
    for kind in ("perfetto", "sqlite"):
        program.run("export", recording, "--to", kind, "-o", f"trace.{kind}")
    expect((folder / "trace.sqlite").read_bytes().startswith(b"SQLite format 3\0"), "export: no database")
    done = program.run("run", "-o", "session", "--", "/bin/sh", "-c", "echo $LD_PRELOAD; echo $CUDA_INJECTION64_PATH")
    inject = str(prefix / "lib/libllmprof_inject.so")
    expect(inject in done.stdout.splitlines(), f"run: the program was not given {inject}: {done.stdout!r}")
    expect("cannot be preloaded" not in done.stderr, f"run: the library could not be loaded:\n{done.stderr}")
    # The loader says nothing of a library that it could not load at cuInit: load it for certain.
    probe = subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({inject!r}).InitializeInjection"],
                           capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    expect(probe.returncode == 0, f"{inject} cannot be loaded:\n{probe.stderr[-400:]}")
    if os.access("/usr/bin/python3", os.X_OK):
        done = program.run("run", "--torch", "-o", "torch", "--", "/usr/bin/python3", "-c",
                           "import os; print(os.environ['PYTHONPATH'])")
        expect(str(prefix / "share/llmprof/python") in done.stdout, f"run --torch: hook module not found: {done.stdout!r}")


def check_tree(prefix):
    for name in FILES:
        expect((prefix / name).is_file() or (prefix / (name + ".gz")).is_file(), f"{name} is not installed")
    expect(any((prefix / name).is_file() for name in ZSH), "no completion for zsh is installed")
    page = prefix / "share/man/man1/llmprof.1"
    if page.is_file():
        text = page.read_text()
        for word in (".TH LLMPROF 1", ".SS analyze", "\\-\\-ceilings", ".SH EXIT STATUS"):
            expect(word in text, f"llmprof.1 lacks {word!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--prefix", type=pathlib.Path)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--recording", type=pathlib.Path, default=RECORDING)
    parser.add_argument("--sanitized", action="store_true", help="the build has sanitizers: any versions will do")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmprof-install-") as name:
        folder = pathlib.Path(name).resolve()
        prefix = arguments.prefix and arguments.prefix.resolve()
        if prefix is None:
            first = folder / "first"
            subprocess.run([arguments.cmake, "--install", arguments.build, "--prefix", first], check=True,
                           stdout=subprocess.DEVNULL)
            prefix = folder / "second" / "opt"
            prefix.parent.mkdir()
            first.rename(prefix)  # nothing may know where it was installed first
        check_tree(prefix)
        if arguments.sanitized:
            print("symbol versions: skipped, this is a sanitizer build; only that it runs is tested")
        else:
            for path in (prefix / "bin/llmprof", prefix / "lib/libllmprof_inject.so"):
                check_elf(path)
        home = folder / "home"
        home.mkdir()
        check_program(prefix, home, arguments.recording)
    print("\n".join(problems) or "installed copy is complete")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
