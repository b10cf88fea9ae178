#!/usr/bin/env python3
"""`./dev install` without its build: where it installs, what it says of PATH, and what it answers to a wrong use."""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Stand-ins for what takes minutes: cmake "installs" a file, everything else succeeds.
CMAKE = """#!/bin/sh
[ "$1" = --install ] || exit 0
while [ $# -gt 0 ]; do
  [ "$1" = --prefix ] && prefix=$2
  shift
done
mkdir -p "$prefix/bin" && echo '#!/bin/sh' >"$prefix/bin/llmprof" && chmod +x "$prefix/bin/llmprof"
"""

problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)


def main():
    with tempfile.TemporaryDirectory(prefix="llmprof-dev-") as name:
        folder = pathlib.Path(name).resolve()
        tools, home, work = folder / "tools", folder / "home", folder / "work"
        for path in (tools, home, work):
            path.mkdir()
        (tools / "cmake").write_text(CMAKE)
        (tools / "dpkg-query").write_text("#!/bin/sh\necho installed\n")
        for tool in tools.iterdir():
            tool.chmod(0o755)

        def dev(*arguments, path="", code=0):
            environment = {"PATH": f"{path}{tools}:/usr/bin:/bin:/usr/sbin", "HOME": str(home), "LC_ALL": "C.UTF-8"}
            done = subprocess.run([ROOT / "dev", *arguments], cwd=work, env=environment, capture_output=True, text=True,
                                  timeout=60, check=False)
            expect(done.returncode == code, f"./dev {' '.join(arguments)}: exit {done.returncode}, expected {code}\n{done.stderr}")
            return done.stdout + done.stderr

        text = dev("install", "--prefix", "here")
        expect((work / "here/bin/llmprof").exists(), f"--prefix here: not below the caller's folder\n{text}")
        expect(f"installed: {work}/here/bin/llmprof" in text, f"it does not say where the program is:\n{text}")
        expect("is not on PATH" in text and f'export PATH="{work}/here/bin:$PATH"' in text, f"no word on PATH:\n{text}")
        text = dev("install", f"--prefix={work}/there", path=f"{work}/there/bin:")
        expect(f"{work}/there/bin is on PATH: llmprof --help" in text, f"on PATH, and not said:\n{text}")
        text = dev("install", "--prefix", str(work / "here"), path=f"{work}/there/bin:{work}/here/bin:")
        expect(f"'llmprof' is {work}/there/bin/llmprof, which comes first" in text, f"another one is first:\n{text}")
        dev("install", "--prefix=~/own")
        expect((home / "own/bin/llmprof").exists(), "--prefix=~/own is not below HOME")

        for arguments, said in ((["--prefix"], "expected a folder behind --prefix"), (["--prefix="], "found an empty text"),
                                (["--perfix", "x"], "found '--perfix'"), (["/opt"], "found '/opt'")):
            text = dev("install", *arguments, code=2)
            expect(said in text and "usage: ./dev install [--prefix DIR]" in text, f"install {arguments}:\n{text}")
        expect("did you mean 'install'" in dev("instal", code=2), "instal: no suggestion")
        (work / "file").touch()
        expect("cannot write to" in dev("install", "--prefix", "file", code=1), "a prefix that is a file")
        expect("install [--prefix DIR]" in dev("help") and "  package " in dev("help"), "./dev help lacks the commands")
        if os.getuid() != 0 and not os.access("/usr/local", os.W_OK):
            expect(f"installed: {home}/.local/bin/llmprof" in dev("install"), "no default for those who are not root")
    print("\n".join(problems) or "./dev install says what it should")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
