#!/usr/bin/env python3
"""The completions that `llmprof completion SHELL` prints, and the manual page.

Every command and option of --help is in all of them, so that one that is added cannot be forgotten. The lines below are
typed into a real shell, TAB and all: bash always, zsh and fish where they are installed.
"""

import argparse
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

# What is typed before TAB, and the arguments that stand there afterwards ("--x=y" counts as two).
CASES = [
    ("ana", ["analyze"]),
    ("analyze --for\tj", ["analyze", "--format", "json"]),
    ("analyze --format=j", ["analyze", "--format", "json"]),
    ("analyze --sort me", ["analyze", "--sort", "mean"]),
    ("list find", ["list", "findings"]),
    ("analyze --gpu H200-S", ["analyze", "--gpu", "H200-SXM-141GB"]),
    ("run --model=tinyl", ["run", "--model", "tinyllama-1.1b-chat-v1.0"]),
    ("model llama-3.1-8", ["model", "llama-3.1-8b"]),
    ("bench attention_d", ["bench", "attention_decode"]),
    ("bench gemm --dtype bf16,tf", ["bench", "gemm", "--dtype", "bf16,tf32"]),
    ("bench --regime su", ["bench", "--regime", "sustained"]),
    ("bench --device cp", ["bench", "--device", "cpu"]),
    ("bench --device=cp", ["bench", "--device", "cpu"]),
    ("workload --size ti", ["workload", "--size", "tiny"]),
    ("run --mode li", ["run", "--mode", "light"]),
    ("ctl sto", ["ctl", "stop"]),
    ("runs ver", ["runs", "verify"]),
    ("ser", ["serve"]),
    ("repo", ["report"]),
    ("report --form", ["report", "--format"]),
    ("report myrec", ["report", "myrecording.json.gz"]),
    ("runs verify --form", ["runs", "verify", "--format"]),
    ("ctl stop --ses", ["ctl", "stop", "--session"]),
    ("report --format ht", ["report", "--format", "html"]),
    ("serve --token-file myrec", ["serve", "--token-file", "myrecording.json.gz"]),
    ("analyze myrec", ["analyze", "myrecording.json.gz"]),
    ("analyze --ceilings myr", ["analyze", "--ceilings", "myrecording.json.gz"]),
    ("analyze --ceilings data", ["analyze", "--ceilings", "datasheet"]),
    ("analyze my\\ l", ["analyze", "my long name.json"]),
    ("run -o myf", ["run", "-o", "myfolder"]),
    ("run --mode light -- cat myrec", ["run", "--mode", "light", "--", "cat", "myrecording.json.gz"]),
    ("diff myrec", ["diff", "myrecording.json.gz"]),
    ("export --to per", ["export", "--to", "perfetto"]),
    ("export myrec", ["export", "myrecording.json.gz"]),
    ("completion fi", ["completion", "fish"]),
]

problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)


def output(binary, *arguments):
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=60, check=False)
    expect(done.returncode == 0, f"llmprof {' '.join(arguments)}: exit {done.returncode}\n{done.stderr[-500:]}")
    return done.stdout


def declared(binary):
    """{command: (long options, words in braces)} as --help has them."""
    commands = re.findall(r"^  ([a-z]+) ", re.split(r"\n(?:Subc|C)ommands:\n", output(binary, "--help"))[1], re.M)
    expect(len(commands) >= 10, f"--help lists only {commands}")
    found = {}
    for command in commands:
        text = output(binary, command, "--help")
        options = re.findall(r"^  (?:-\w,)*(--[a-z][\w-]*)", text, re.M)
        sets = dict(re.findall(r"^  (?:-\w,)*(--[a-z][\w-]*) \w*:\{([\w,-]+)\}", text, re.M))
        expect(options, f"{command} --help has no options")
        found[command] = options, sets
    return found


def check_complete(binary, scripts, page):
    """Nothing of --help is missing anywhere."""
    for command, (options, sets) in declared(binary).items():
        bash = re.search(rf"^    {command}\) echo '(.*)' ;;", scripts["bash"], re.M)
        zsh = re.search(rf"^    {command}\)\n(.*?)^      ;;", scripts["zsh"], re.M | re.S)
        fish = "\n".join(re.findall(rf"^complete .*'__llmprof_in {command}'.*", scripts["fish"], re.M))
        section = re.search(rf"^\.SS {command}\n(.*?)(?=^\.S[SH] )", page, re.M | re.S)
        expect(bash and zsh and fish and section, f"{command} is not everywhere: {bash}, {zsh}, {fish[:40]}, {section}")
        if problems:
            return
        for option in options:
            expect(option in bash.group(1).split(), f"bash: {command} lacks {option}")
            expect(re.search(rf"\){option}[=\[]|\*{option}[=\[]", zsh.group(1)), f"zsh: {command} lacks {option}")
            expect(re.search(rf" -l {option[2:]} ", fish), f"fish: {command} lacks {option}")
            if option != "--help":
                expect(option.replace("-", "\\-") in section.group(1), f"llmprof.1: {command} lacks {option}")
        for option, words in sets.items():
            line = next(line for line in fish.splitlines() if f" -l {option[2:]} " in line)
            for word in words.split(","):
                expect(word in line, f"fish: {command} {option} lacks {word}")


def check_models(binary, script):
    models = re.search(r"'model 0'.*?\n\s*known='([^']*)'", script).group(1).split()
    expect(len(models) > 20, f"only {len(models)} models complete")
    for model in models:
        output(binary, "model", model, "--json", "-o", "/dev/null")


class Terminal:
    """A shell on a pseudo-terminal. It reads what is typed ahead in order, so nothing depends on time."""

    def __init__(self, argv, folder, environment):
        self.process, self.master = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execvpe(argv[0], argv, environment)
        self.text = ""

    def type(self, text):
        os.write(self.master, text.encode())

    def until(self, pattern, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = re.search(pattern, self.text, re.S)
            if found:
                self.text = self.text[found.end():]
                return found
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    return None
        return None

    def close(self):
        os.close(self.master)
        os.kill(self.process, 9)
        os.waitpid(self.process, 0)


def split(arguments):
    """"--x=y" as two arguments: the shells differ in how they join them."""
    out = []
    for argument in arguments:
        out += argument.split("=", 1) if argument.startswith("--") else [argument]
    return out


def try_in_terminal(shell, argv, setup, folder):
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TERM": "dumb", "LC_ALL": "C.UTF-8", "PS1": "$ "}
    terminal = Terminal(argv, folder, environment)
    # In place of llmprof: prints its arguments. The words are cut so that their echo is not taken for the answer.
    terminal.type("llmprof() { printf 'ANS''WER'; printf '<%s>' \"$@\"; printf 'EN''D\\n'; }\n")
    terminal.type(setup + "\necho REA''DY\n")
    if not terminal.until("READY"):
        expect(False, f"{shell} does not start: {terminal.text[-400:]}")
        terminal.close()
        return
    for typed, expected in CASES:
        if expected is None:
            continue
        terminal.type(f"llmprof {typed}\t\n")
        answer = terminal.until(r"ANSWER(.*?)END")
        if answer is None:
            expect(False, f"{shell}: no answer to `{typed}`: {terminal.text[-400:]!r}")
            break
        got = [word.rstrip("/") for word in split(re.findall(r"<(.*?)>", answer.group(1)))]
        expect(got == expected, f"{shell}: `llmprof {typed}<TAB>` gives {got}, expected {expected}")
    terminal.close()


def try_fish(folder, script):
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    for typed, expected in CASES:
        if expected is None:
            continue
        line = "llmprof " + typed.replace("--for\tj", "--format j")
        done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C {fish_quoted(line)}"], cwd=folder,
                              env=environment, capture_output=True, text=True, timeout=60, check=False)
        got = [line.split("\t")[0].rstrip("/") for line in done.stdout.splitlines()]
        wanted = expected[-1]
        expect(any(word == wanted or word.endswith("=" + wanted) for word in got) and len(got) <= 3,
               f"fish: `{line}<TAB>` offers {got[:6]}, expected {wanted}\n{done.stderr[-300:]}")


def fish_quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def check_wrong(binary):
    done = subprocess.run([binary, "completion", "csh"], capture_output=True, text=True, check=False)
    expect(done.returncode == 2 and "bash, zsh or fish" in done.stderr, f"completion csh: {done.returncode} {done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    binary = parser.parse_args().binary.resolve()
    scripts = {shell: output(binary, "completion", shell) for shell in ("bash", "zsh", "fish")}
    check_complete(binary, scripts, output(binary, "man"))
    check_models(binary, scripts["bash"])
    check_wrong(binary)
    with tempfile.TemporaryDirectory(prefix="llmprof-completions-") as name:
        folder = pathlib.Path(name).resolve()
        paths = {"bash": folder / "c/llmprof", "zsh": folder / "c/_llmprof", "fish": folder / "c/llmprof.fish"}
        (folder / "c").mkdir()
        for shell, path in paths.items():
            path.write_text(scripts[shell])
        work = folder / "work"
        (work / "myfolder").mkdir(parents=True)
        for file in ("myrecording.json.gz", "my long name.json", "other.txt"):
            (work / file).touch()
        if not shutil.which("bash"):
            sys.exit("bash is not installed")
        try_in_terminal("bash", ["bash", "--norc", "--noprofile", "-i"], f"source {paths['bash']}", work)
        tried = ["bash"]
        if shutil.which("zsh"):
            setup = f"fpath=({folder}/c $fpath); autoload -Uz compinit; compinit -D -u"
            try_in_terminal("zsh", ["zsh", "-f", "-i"], setup, work)
            tried.append("zsh")
        if shutil.which("fish"):
            try_fish(work, paths["fish"])
            tried.append("fish")
    missing = [shell for shell in ("zsh", "fish") if shell not in tried]
    if missing:
        print(f"not tried, because not installed: {', '.join(missing)}")
    print("\n".join(problems) or f"{sum(case[1] is not None for case in CASES)} lines completed in {', '.join(tried)}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
