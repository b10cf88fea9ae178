#!/usr/bin/env python3
"""What reaches a terminal, a pipe and a spreadsheet, tried on the shared recordings and on names that mean harm.

Every page fits into 80 columns and into 40; in the C locale everything is ASCII; with TERM=dumb no escape sequence and no
carriage return comes; --color, NO_COLOR and CLICOLOR_FORCE hold; a hostile name harms neither text nor CSV, and JSON has
it exactly; on a CPU names keep their letters and nothing speaks of CUDA.

The width of characters is counted here by Python's own tables of Unicode, not by llmprof's.
"""

import argparse
import csv
import fcntl
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import unicodedata

INPUTS = pathlib.Path(__file__).resolve().parent.parent / "golden" / "inputs"
COMPARED = pathlib.Path(__file__).resolve().parent.parent / "golden" / "bench" / "compare"
LISTS = ("importers", "analyses", "findings", "diagnostics", "metrics", "rules", "formats", "gpus", "models", "benchmarks")
# One of each kind that is harmful: C0, DEL, C1, zero width, overrides, isolates, byte-order mark.
HARMFUL = [*range(0x00, 0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), *range(0x200B, 0x2010), *range(0x202A, 0x202F),
           *range(0x2060, 0x206A), 0xFEFF]

problems = []


def check(good, what):
    if not good:
        problems.append(what)
        print("FAILED " + what)


class Tool:
    def __init__(self, binary, home):
        self.binary, self.home = binary, home

    def environment(self, extra):
        kept = {name: os.environ[name] for name in ("PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS") if name in os.environ}
        return {**kept, "HOME": self.home, "XDG_CACHE_HOME": self.home, "XDG_RUNTIME_DIR": self.home,
                "LC_ALL": "C.UTF-8", "LLMPROF_STORE": "off", **extra}

    def pipe(self, *words, **extra):
        return subprocess.run([self.binary, *words], cwd=INPUTS, env=self.environment(extra), stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=300, check=False)

    def terminal(self, *words, columns=80, **extra):
        """Standard output, and standard error, each on a terminal of its own."""
        ends = [pty.openpty(), pty.openpty()]
        for _, slave in ends:
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            mode = termios.tcgetattr(slave)
            mode[1] &= ~termios.OPOST  # what is written comes out as it is
            termios.tcsetattr(slave, termios.TCSANOW, mode)
        with subprocess.Popen([self.binary, *words], cwd=INPUTS, env=self.environment({"TERM": "xterm", **extra}),
                              stdin=subprocess.DEVNULL, stdout=ends[0][1], stderr=ends[1][1]) as child:
            for _, slave in ends:
                os.close(slave)
            texts = drain([master for master, _ in ends])
            code = child.wait(timeout=300)
        return texts[0], texts[1], code


def drain(masters):
    """Everything that is written to the terminals until they are closed."""
    import select  # pylint: disable=import-outside-toplevel
    texts = {master: b"" for master in masters}
    left = set(masters)
    while left:
        for master in select.select(list(left), [], [], 300)[0]:
            try:
                data = os.read(master, 1 << 16)
            except OSError:  # EIO: the other end is closed
                data = b""
            texts[master] += data
            if not data:
                left.discard(master)
    for master in masters:
        os.close(master)
    return [texts[master] for master in masters]


def columns_of(line):
    width = 0
    for character in re.sub("\x1b\\[[0-9;]*m", "", line):
        if unicodedata.combining(character):
            continue
        width += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return width


def commands():
    """Every command that needs no GPU and measures nothing."""
    for path in sorted(INPUTS.glob("*.json.gz")):
        if path.name not in ("no_gpu_events.json.gz", "training.json.gz"):
            yield ("analyze", path.name)
    yield ("analyze", "unfused_attention.json.gz", "--gpu", "h100-sxm", "--top", "0")
    yield ("model", "llama-3.1-8b")
    yield ("model", "deepseek-v3", "--batch", "64", "--context", "100000")
    for name in LISTS:
        yield ("list", name)
    yield ("bench", "--compare", str(COMPARED / "old.json"), str(COMPARED / "new.json"))
    yield ("diff", "two_streams.json.gz", "unfused_attention.json.gz")
    yield ("doctor",)
    yield ("demo", "--recorded", "--no-html")
    yield ("--help",)
    for name in ("run", "analyze", "diff", "export", "model", "peaks", "bench", "workload", "list", "demo", "doctor", "ctl", "runs", "serve",
                 "report"):
        yield (name, "--help")


def errors():
    yield ("analyze", "no_gpu_events.json.gz")
    yield ("analyze", "größe-×.json")
    yield ("analyze", "training.json.gz", "--gpu", "größe")
    yield ("list", "mödels")
    yield ("größe",)
    yield ("analyze", "--tóp", "3")
    yield ("run", "--", "./größe")
    yield ("model", "llama→")
    yield ("bench", "gëmm")
    yield ("export", "training.json.gz", "--to", "perfètto", "-o", "größe")
    yield ("export", "training.json.gz", "--to", "json", "-o", "größe/×")


def fits(tool):
    for words in commands():
        name = " ".join(words)
        for columns in (80, 40):
            out, _, code = tool.terminal(*words, columns=columns)
            check(code in (0, 4), f"{name} at {columns}: exit code {code}")
            check(out, f"{name} at {columns}: prints nothing")
            for line in out.decode().split("\n"):
                check(columns_of(line) <= columns, f"{name}: {columns_of(line)} of {columns} columns: {line}")
                check(not re.search("[\x00-\x09\x0b-\x1a\x1c-\x1f\x7f]", line), f"{name}: control characters: {line!r}")
    # The same by COLUMNS where there is no terminal, and every column without a width and with --full.
    words = ("analyze", "unfused_attention.json.gz")
    narrow, wide = tool.pipe(*words, COLUMNS="80").stdout.decode(), tool.pipe(*words).stdout.decode()
    check(max(map(columns_of, narrow.split("\n"))) <= 80, "COLUMNS=80 is not kept")
    check("not shown: " in narrow and "--full" in narrow, "what was left out is not said")
    check("not shown: " not in wide and max(map(columns_of, wide.split("\n"))) > 80, "a pipe lacks columns")
    full = tool.terminal(*words, "--full", "--color", "never")[0].decode()
    check("not shown: " not in full and "launches" in full, "--full lacks columns")


def is_ascii(tool):
    for variables in ({"LC_ALL": "C"}, {"LC_ALL": "", "LC_CTYPE": "de_DE.ISO-8859-1", "LANG": "de_DE.UTF-8"}):
        for words in [*commands(), *errors()]:
            done = tool.pipe(*words, **variables)
            for stream, data in (("stdout", done.stdout), ("stderr", done.stderr)):
                bad = re.search(rb"[^\n\x20-\x7e]+", data)
                check(bad is None, f"{' '.join(words)}: {stream} in {variables} holds {bad and bad.group()!r}")
            check(done.stdout or done.stderr, f"{' '.join(words)}: prints nothing")
    for words in errors():
        done = tool.pipe(*words)
        check(done.returncode not in (0, -6, -11), f"{' '.join(words)}: exit code {done.returncode}")
        check(b"llmprof: " in done.stderr, f"{' '.join(words)}: no error on stderr")
    utf8 = tool.pipe("analyze", "unfused_attention.json.gz", "--full").stdout.decode()
    check("·" in utf8 and "─" in utf8, "UTF-8 is not used where it can be shown")


def dumb(tool):
    for words in [*commands(), *errors()]:
        for stream in tool.terminal(*words, TERM="dumb")[:2]:
            check(b"\x1b" not in stream and b"\r" not in stream, f"{' '.join(words)}: escapes with TERM=dumb")
    # What draws progress: a short measurement.
    words = ("bench", "gemm", "--m", "64", "--n", "64", "--k", "64", "--device", "cpu", "--min-time", "0.05", "--dtype", "fp32")
    out, err, _ = tool.terminal(*words, TERM="dumb")
    check(out and b"\x1b" not in out + err and b"\r" not in out + err, "progress is drawn with TERM=dumb")
    err = tool.terminal(*words)[1]
    check(b"\r" in err, "no progress on a terminal: the check above shows nothing")
    for part in re.findall(rb"\r\x1b\[K([^\r\n]*)", err):
        check(columns_of(part.decode()) < 80, f"a line of progress fills the terminal: {part!r}")


def colors(tool):
    words = ("model", "llama-3.1-8b")
    escape = b"\x1b["

    def pipe(*more, **extra):
        return escape in tool.pipe(*words, *more, **extra).stdout

    def terminal(*more, **extra):
        return escape in tool.terminal(*words, *more, **extra)[0]
    check(not pipe(), "colours in a pipe")
    check(pipe(CLICOLOR_FORCE="1"), "CLICOLOR_FORCE")
    check(not pipe(CLICOLOR_FORCE="0"), "CLICOLOR_FORCE=0")
    check(not pipe(CLICOLOR_FORCE="1", NO_COLOR="1"), "NO_COLOR beside CLICOLOR_FORCE")
    check(pipe("--color=always", NO_COLOR="1"), "--color=always overrules NO_COLOR")
    check(not pipe("--color=never", CLICOLOR_FORCE="1"), "--color=never overrules CLICOLOR_FORCE")
    check(not pipe("--no-color", CLICOLOR_FORCE="1"), "--no-color overrules CLICOLOR_FORCE")
    check(terminal(), "no colours on a terminal")
    check(terminal("--color", "auto"), "--color auto")
    check(not terminal(NO_COLOR="1"), "NO_COLOR")
    check(terminal(NO_COLOR=""), "an empty NO_COLOR says nothing")
    check(not terminal("--color=never") and not terminal("--no-color"), "--color=never on a terminal")
    check(not terminal(TERM=""), "colours on a terminal of which nothing is known")
    done = tool.pipe(*words, "--color=sometimes")
    check(done.returncode == 2 and b"auto" in done.stderr, "--color=sometimes is taken")


def hostile_recording(path, names):
    """Kernels, operators, ranges, a thread and a device with these names, in two steps."""
    events = [{"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": names[0]}},
              {"ph": "M", "pid": 1, "tid": 1, "name": "process_name", "args": {"name": names[-1]}}]
    at = 1000
    for step in range(2):
        start = at
        for number, name in enumerate(names):
            key = step * 1000 + number + 1
            events += [
                {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 8,
                 "args": {"External id": key, "Input Dims": [[4, 8]], "Input type": [name]}},
                {"ph": "X", "cat": "python_function", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 7,
                 "args": {"Python id": key}},
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at + 1, "dur": 2,
                 "args": {"correlation": key, "External id": key}},
                {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at + 4, "dur": 20,
                 "args": {"correlation": key, "External id": key, "device": 0, "stream": 7, "grid": [1, 1, 1],
                          "block": [32, 1, 1]}}]
            at += 40
        events.append({"ph": "X", "cat": "user_annotation", "name": "decode " + names[step % len(names)], "pid": 1,
                       "tid": 1, "ts": start, "dur": at - start, "args": {}})
        at += 20
    document = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200" + names[0], "totalGlobalMem": 1,
                                                          "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
                "traceEvents": events}
    path.write_text(json.dumps(document))  # escapes everything beyond ASCII, lone surrogates too


def harmless_text(text, where):
    for character in text:
        code = ord(character)
        check(code == 0x0A or code not in HARMFUL, f"{where}: U+{code:04X} reaches the reader")
        if code != 0x0A and code in HARMFUL:
            return


def is_utf8(data):
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def hostile(tool, folder):
    names = [f"k{code:04x}{chr(code)}z" for code in HARMFUL]
    names += ["\u202egnp.exe", "\x1b]0;title\x07\x1b[2Jcleared", "lone\ud800surrogate", "two\nlines", "=1+1", "+1", "-2+3",
              "@SUM(1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0", "'=quoted", "größe", "ends\\"]
    path = folder / "hostile\u202e\x1b[31m=.json"
    hostile_recording(path, names)
    for extra in ((), ("--sort", "name"), ("--top", "0"), ("--top", "0", "--stage", "decode=k00|k20")):
        for done in (tool.pipe("analyze", str(path), *extra), tool.pipe("analyze", str(path), *extra, CLICOLOR_FORCE="1")):
            check(done.returncode == 0, f"hostile names: exit code {done.returncode}, {done.stderr!r}")
            for data in (done.stdout, done.stderr):
                plain = re.sub("\x1b\\[(0|1|2|1;36)m", "", data.decode())
                harmless_text(plain, f"text {extra}")
    check("\\u202egnp.exe" in tool.pipe("analyze", str(path), "--top", "0").stdout.decode(), "a name is not escaped")
    for stream in (tool.pipe("analyze", str(path) + "\x1b[2J"), tool.pipe("list", "\u202e\x1b[2J"), tool.pipe("\x1b[2J"),
                   tool.pipe("analyze", "--x\x1b[2J\u202e"), tool.pipe("run", "--", "no\x1b[2J\u202e"),
                   tool.pipe("model", "\u009b2J\x1b"), tool.pipe("bench", "\x1b[2J"), tool.pipe("analyze", b"\xff\x9b")):
        check(is_utf8(stream.stderr), f"an error that is no UTF-8: {stream.stderr!r}")
        harmless_text(stream.stderr.decode(errors="replace"), "an error")
        check(stream.returncode not in (0, -6, -11), f"an error with exit code {stream.returncode}")
    tables(tool, path, folder / "tables", names)
    document = tool.pipe("analyze", str(path), "--top", "0", "--json").stdout.decode()
    harmless_text(document, "JSON")
    found = {row["name"] for row in json.loads(document)["kernels_topk"]}
    for name in names:
        check(name.replace("\ud800", "\ufffd") in found, f"JSON lacks the name {name!r}")


def undone(cell):
    """What docs/output.md says about getting a name back."""
    cell = re.sub("^'('*[=+\\-@\t\n\uff1d\uff0b\uff0d\uff20])", r"\1", cell)
    return re.sub(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})", lambda found: chr(int(found.group(1) or found.group(2), 16)), cell)


def tables(tool, path, folder, names):
    done = tool.pipe("analyze", str(path), "--top", "0", "--format", "csv", "-o", str(folder))
    check(done.returncode == 0, f"csv: {done.stderr!r}")
    for file in sorted(folder.glob("*.csv")):
        text = file.read_bytes().decode()
        for character in set(text):
            check(ord(character) in (0x09, 0x0A) or ord(character) not in HARMFUL, f"{file.name}: U+{ord(character):04X}")
        with open(file, newline="") as stream:
            for row in csv.DictReader(stream):
                for cell in row.values():
                    number = re.fullmatch(r"-?[0-9.]+(e[+-]?[0-9]+)?", cell)
                    check(number or not re.match("[=+@\t\r-]", cell), f"{file.name}: a spreadsheet computes {cell!r}")
    with open(folder / "kernels.csv", newline="") as stream:
        found = {undone(row["name"]) for row in csv.DictReader(stream)}
    for name in names:
        check(name.replace("\ud800", "\ufffd") in found, f"kernels.csv does not give {name!r} back")


def on_a_cpu(tool, folder):
    """The reference workload, recorded on this machine's CPU; stages by a rule, so that a name can hold our words."""
    recording = folder / "cpu.llmprof"
    done = tool.pipe("workload", "--device", "cpu", "--size", "tiny", "--new", "4", "--record", str(recording))
    check(done.returncode == 0, f"workload: {done.stderr!r}")
    text = tool.pipe("analyze", str(recording), "--top", "0", "--stage", "GPU SMs=decode").stdout.decode()
    check("Operators" in text, "no table of operators on a CPU")
    lines = text.split("\n")
    for title in ("Stages", "Operators", "Kernels"):
        at = next((number for number, line in enumerate(lines) if line.startswith(title)), None)
        header = re.split("  +", lines[at + 1].strip()) if at is not None else []
        check(len(header) == len(set(header)), f"{title} on a CPU has a column twice: {header}")
    check("GPU SMs" in text, "a name lost its letters on a CPU")
    own = text.replace("GPU SMs", "")
    check("GPU" not in own and " SMs" not in own, "our words speak of a GPU on a CPU")
    for word in ("CUDA", "cuda", "torch", "record_shapes", "with_stack", "profile_memory"):
        check(word not in own, f"advice on a CPU speaks of {word}")
    check("CPU busy" in own and "threads" in own, "the words for a CPU are missing")
    done = tool.pipe("analyze", str(recording), "--gpu", "h200")
    check(done.returncode == 2 and b"found one of a program on a CPU" in done.stderr,
          f"a CPU's recording is compared with a GPU: {done.returncode} {done.stderr!r}")
    watched = folder / "watched"
    done = tool.pipe("run", "-o", str(watched), "--", tool.binary, "workload", "--device", "cpu", "--size", "tiny", "--new", "4")
    check(done.returncode == 0, f"run on a CPU: {done.stderr!r}")


def stored_runs(tool, folder):
    """Pages about the run store: as wide as the terminal, and harmless whatever runs are called."""
    store = {"LLMPROF_STORE": str(folder / "runs" / ("long" * 20)), "NO_COLOR": "1"}
    names = ["\u202egnp.exe", "\x1b[2Jcleared", "größe", "a" * 300, "two\nlines"]
    for name in names:
        done = tool.pipe("run", "--quiet", "--no-report", "--name", name, "--", "sh", "-c", f"true '{name}'", **store)
        check(done.returncode == 0 and not done.stderr, f"--name {name!r}: {done.returncode} {done.stderr!r}")
    tool.pipe("analyze", "unfused_attention.json.gz", **store)
    listed = tool.pipe("runs", "list", "--json", **store).stdout.decode()
    check({row["name"] for row in json.loads(listed)["runs"]} >= set(names), f"names are not kept: {listed}")
    for words in (("list",), ("show", "1"), ("show", "2"), ("show", "last"), ("prune", "--dry-run"), ("prune",), ("verify",),
                  ("pin", "2"), ("unpin", "2"), ("open", "2"), ("show", "nothing"), ("prune", "2")):
        for columns in (80, 40):
            out, err, code = tool.terminal("runs", *words, columns=columns, **store)
            check(code == (2 if words[-1] == "nothing" else code) and code in (0, 2), f"runs {words}: {code} {err!r}")
            harmless_text((out + err).decode(), f"runs {words}")
            for line in out.decode().split("\n"):
                check(words[0] == "open" or columns_of(line) <= columns, f"runs {words} at {columns}: {line}")
        for data in tool.terminal("runs", *words, LC_ALL="C", **store)[:2]:
            check(re.search(rb"[^\n\x20-\x7e]", data) is None, f"runs {words}: {data!r} in the C locale")
    for words in (("list",), ("show", "1"), ("verify",)):
        text = tool.pipe("runs", *words, "--format", "csv", **store).stdout.decode()
        check(text.count("\n") >= 2 or words[0] == "verify", f"runs {words} as CSV: {text!r}")
        harmless_text(text.replace("\t", ""), f"runs {words} as CSV")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("parts", nargs="*", help="fits, is_ascii, dumb, colors, hostile, on_a_cpu, stored_runs; all if none is given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmprof-terminal-") as temporary:
        folder = pathlib.Path(temporary)
        tool = Tool(str(pathlib.Path(options.binary).resolve()), temporary)
        parts = {"fits": lambda: fits(tool), "is_ascii": lambda: is_ascii(tool), "dumb": lambda: dumb(tool),
                 "colors": lambda: colors(tool), "hostile": lambda: hostile(tool, folder),
                 "on_a_cpu": lambda: on_a_cpu(tool, folder), "stored_runs": lambda: stored_runs(tool, folder)}
        for name, part in parts.items():
            if not options.parts or name in options.parts:
                part()
                print(f"{name}: {'done' if not problems else f'{len(problems)} problems so far'}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
