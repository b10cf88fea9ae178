#!/usr/bin/env python3
"""`llmprof run` and `llmprof ctl` where no GPU is needed: whatever the watched program does or suffers, it behaves as
without llmprof, and llmprof says what happened.

CASES are rows: a command line, and what must come of it. Placeholders in their words: {python} this interpreter,
{client} tests/run/range_client.cc, {fakes} the folder of the libraries of tests/fakes, {here} this folder, {out} the
session folder, {work} an empty folder that is also the current one, {llmprof} the binary. What does not fit into a row
(signals, terminals, two processes that talk) is a function marked @scenario. Waiting is always for something to happen,
with a limit that only a broken program reaches.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = int(os.environ.get("LLMPROF_TEST_LIMIT_S", "60"))  # for one step; far above what a loaded machine needs


class Failure(Exception):
    pass


def expect(condition, text):
    if not condition:
        raise Failure(text)


# ---- cases ---------------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Case:
    name: str
    words: list                    # behind "llmprof"
    exit: int = 0
    stdin: bytes = b""
    stdout: object = None          # bytes: exactly; str: a regular expression found in it; None: anything
    stderr: tuple = ()             # regular expressions, each found in it
    no_stderr: tuple = ()          # none of them found
    env: dict = dataclasses.field(default_factory=dict)
    session: dict = None           # fields of session.json in {out}; None: not looked at
    files: tuple = ()              # must exist, relative to {work}
    no_files: tuple = ()           # must not exist


BINARY_INPUT = bytes(range(256)) * 16384  # 4 MiB, every byte value


def watched(*command, options=()):
    """A run that prints nothing of its own on stdout."""
    return ["run", "--no-report", "-o", "{out}", *options, "--", *command]


PASS_THROUGH = [
    *[Case(f"exit code {code}", watched("sh", "-c", f"exit {code}"), exit=code, session={"exit_status": code,
                                                                                     "signal": None})
      for code in (0, 1, 7, 127, 255)],
    Case("killed by SIGKILL before anything", ["run", "-o", "{out}", "--", "sh", "-c", "kill -9 $$"], exit=137, stdout=b"",
         stderr=("SIGKILL", "no GPU work seen"), no_stderr=("the report covers",)),
    Case("killed by SIGKILL", watched("sh", "-c", "kill -9 $$"), exit=137, stderr=("SIGKILL",),
         session={"exit_status": None, "signal": 9}),
    Case("killed by SIGSEGV", watched("{python}", "-c", "import ctypes; ctypes.string_at(0)"), exit=139,
         stderr=("SIGSEGV",), session={"signal": 11}),
    Case("abort", watched("{python}", "-c", "import os; os.abort()"), exit=134, stderr=("SIGABRT",)),
    Case("os._exit", watched("{python}", "-c", "import os; os._exit(5)"), exit=5, session={"exit_status": 5}),
    Case("an exception that nobody catches", watched("{python}", "-c", "raise SystemExit(9)"), exit=9),
    Case("stdin and stdout, every byte", watched("cat"), stdin=BINARY_INPUT, stdout=BINARY_INPUT),
    Case("stderr is the program's", watched("sh", "-c", "echo words >&2", options=["--quiet"]),
         stderr=(r"\Awords\n\Z",), stdout=b""),
    Case("arguments as they are", watched("printf", "%s|", "", "a b", "--", "--help", "[x]", "é", "-q"),
         stdout="|a b|--|--help|[x]|é|-q|".encode()),
    Case("a script without #!", watched("./local-script", "x"), stdout=b"script x\n"),
    Case("the program's name is its own", watched("sh", "-c", "echo $0"), stdout=b"sh\n"),
    Case("a report in a file", ["run", "--report", "r.txt", "-o", "{out}", "--", "echo", "hi"], stdout=b"hi\n"),
]

NOT_STARTED = [
    Case("no such program", watched("no-such-program"), exit=127, stderr=("no such program: no-such-program",),
         no_files=("out",)),
    Case("no such path", watched("./nothing"), exit=127, stderr=("no such program",), no_files=("out",)),
    Case("a program in the current folder", watched("local-script"), exit=127, stderr=(r"run -- \./local-script",)),
    Case("a folder", watched("/"), exit=126, stderr=("found a folder",), no_files=("out",)),
    Case("not executable", watched("./text.py"), exit=126, stderr=("python3 ./text.py",), no_files=("out",)),
    Case("its interpreter is missing", watched("./orphan"), exit=127, stderr=("first line",)),
]

USAGE = [
    Case("no --", ["run", "python3", "x.py"], exit=2, stderr=("expected -- before", "llmprof run -- python3 x.py")),
    Case("nothing at all", ["run"], exit=2, stderr=("expected a program to run",)),
    Case("nothing behind --", ["run", "--"], exit=2, stderr=("expected a program behind --",)),
    Case("a word before --", ["run", "x", "--", "true"], exit=2, stderr=("expected an option before --",)),
    Case("an unknown option", ["run", "--moed", "deep", "--", "true"], exit=2,
         stderr=("no option --moed", "--mode")),
    Case("an unknown mode", ["run", "--mode", "depp", "--", "true"], exit=2,
         stderr=("light, default or deep", "--mode deep")),
    Case("a negative delay", ["run", "--delay", "-1", "--", "true"], exit=2, stderr=("--delay",)),
    Case("a budget that is no number", ["run", "--budget", "two", "--", "true"], exit=2,
         stderr=("expected a number from 0.1 to 100", "two")),
    Case("a budget of nothing", ["run", "--budget", "0", "--", "true"], exit=2, stderr=("from 0.1 to 100",)),
    Case("a budget where all is recorded", ["run", "--budget", "1", "--unrecorded-windows", "off", "--", "true"], exit=2,
         stderr=("everything is recorded",)),
    Case("no steps", ["run", "--steps", "0", "--", "true"], exit=2, stderr=("--steps",)),
    Case("steps of no range", ["run", "--steps", "3", "--", "true"], exit=2,
         stderr=("--steps counts closings", "--capture-range")),
    Case("a broken stage", ["run", "--stage", "x=(", "--", "true"], exit=2, stderr=("x=|stage",)),
    Case("an unknown model", ["run", "--model", "lama", "--", "true"], exit=2, stderr=("lama",),
         no_files=("llmprof-runs",)),
    Case("an unknown GPU", ["run", "--gpu", "H900", "--", "true"], exit=2, stderr=("H900",)),
    Case("armed with a delay", ["run", "--armed", "--delay", "1", "--", "true"], exit=2, stderr=("ctl start",)),
    Case("two formats", ["run", "--json", "--format", "csv", "--", "true"], exit=2, stderr=("expected one format",),
         no_files=("llmprof-runs",)),
    Case("tables without a folder", ["run", "--format", "csv", "--", "true"], exit=2, stderr=("--report",)),
    Case("inside another run", watched("{llmprof}", "run", "--", "true"), exit=2, stderr=("already inside",),
         env={"ASAN_OPTIONS": "verify_asan_link_order=0"}),
    Case("other commands inside a run", watched("{llmprof}", "list", "formats"), stdout="json",
         env={"ASAN_OPTIONS": "verify_asan_link_order=0"}),
    Case("ctl: unknown word", ["ctl", "stopp"], exit=2, stderr=("start, stop, status or counters", "ctl stop")),
    Case("ctl: counters of no word", ["ctl", "counters"], exit=2, stderr=("expected on or off", "found nothing")),
    Case("ctl: counters of another word", ["ctl", "counters", "of"], exit=2, stderr=("expected on or off", '"of"')),
    Case("ctl: a word too many", ["ctl", "stop", "on"], exit=2, stderr=("expected nothing behind stop",)),
    Case("ctl: nothing runs", ["ctl", "status"], exit=1, stderr=("found none",)),
    Case("ctl: no session", ["ctl", "status", "--session", "{work}"], exit=1, stderr=("folder of a session",)),
    Case("the hidden command stays hidden", ["--help"], stdout=r"\A(?![\s\S]*__counters)"),
]

FOLDERS = [
    Case("a folder that is not empty", ["run", "-o", "{here}", "--", "true"], exit=2,
         stderr=("found one with files in it",)),
    Case("a file in place of the folder", ["run", "-o", "text.py", "--", "true"], exit=2, stderr=("found a file",)),
    Case("a folder that cannot be made", ["run", "-o", "/proc/llmprof", "--", "true"], exit=1,
         stderr=("cannot create the session folder",)),
    Case("folders above it are made", ["run", "-o", "a/b/c", "--", "true"], files=("a/b/c/session.json",)),
    Case("names of their own", ["run", "--name", "my run", "--", "{python}", "-c", "0"],
         stderr=(r"llmprof-runs/python[\d.]*-\d{8}-\d{6}-my-run ",)),
    Case("no room for the control page", ["run", "-o", "{out}", "--", "true"], exit=1, env={"LIMIT_FILE_BYTES": "4096"},
         stderr=("cannot reserve",)),
    # 64 KiB: enough for the control page and session.json, not for what the client records.
    Case("the disk fills while it runs", watched("{client}", "--ranges", "400000"), env={"LIMIT_FILE_BYTES": "65536"},
         stdout=b"pushed 400000\n", session={"exit_status": 0}),
]

ENVIRONMENT = [
    Case("a foreign CUDA_INJECTION64_PATH", watched("sh", "-c", "echo $LLMPROF_NEXT_INJECTION $CUDA_INJECTION64_PATH"),
         env={"CUDA_INJECTION64_PATH": "/opt/other.so"}, stdout=r"^/opt/other\.so .*libllmprof_inject\.so$",
         stderr=("already names /opt/other.so",)),
    Case("an LD_PRELOAD that was there", watched("sh", "-c", "echo $LD_PRELOAD"),
         env={"LD_PRELOAD": "libm.so.6", "ASAN_OPTIONS": "verify_asan_link_order=0"},
         stdout=r"^\S*libllmprof_inject\.so:libm\.so\.6$"),
    Case("a CUPTI that the user chose", watched("sh", "-c", "echo $LLMPROF_CUPTI"),
         env={"LLMPROF_CUPTI": "/x/cupti.so"}, stdout=b"/x/cupti.so\n"),
    Case("options reach the library",
         watched("sh", "-c", "echo $LLMPROF_LEVEL $LLMPROF_STEPS $LLMPROF_CAPTURE_RANGE $LLMPROF_UNRECORDED $LLMPROF_ADAPT",
                 options=["--mode", "deep", "--steps", "3", "--capture-range", "decode", "--unrecorded-windows", "off",
                          "--no-adapt"]),
         stdout=b"deep 3 decode off off\n"),
    Case("the budget reaches the library", watched("sh", "-c", "echo $LLMPROF_BUDGET", options=["--budget", "0.5"]),
         stdout=b"0.5\n"),
    Case("there is a budget by default", watched("sh", "-c", "echo $LLMPROF_BUDGET"), stdout=b"2\n"),
    Case("the last of an option given twice counts", watched("sh", "-c", "echo $LLMPROF_LEVEL $LLMPROF_UNRECORDED",
                                                             options=["--mode", "deep", "--unrecorded-windows", "auto", "--unrecorded-windows",
                                                                      "off", "--mode", "light"]),
         stdout=b"light off\n"),
    Case("an old session's variables", watched("sh", "-c", "echo \"[$LLMPROF_STEPS]\""),
         env={"LLMPROF_STEPS": "9", "LLMPROF_SESSION": "/gone"}, stdout=b"[]\n"),
]

CHILDREN = [
    Case("sh that spawns python", watched("sh", "-c", "{python} -c 'print(1)'; {python} -c 'raise SystemExit(4)'"),
         exit=4, stdout=b"1\n"),
    Case("multiprocessing by spawn", watched("{python}", "{here}/pool.py", "spawn"), stdout=b"[0, 1, 4, 9]\n"),
    Case("multiprocessing by fork", watched("{python}", "{here}/pool.py", "fork"), stdout=b"[0, 1, 4, 9]\n"),
    Case("fork after NVTX has started", watched("{client}", "--fork", "--ranges", "10"),
         stdout=b"child 3\npushed 10\n"),
    Case("a child that outlives the program", watched("sh", "-c", "sleep 0.2 >/dev/null 2>&1 & exit 2"), exit=2),
]

NOTHING_SEEN = [
    Case("no GPU work", ["run", "-o", "{out}", "--", "true"], stderr=("no GPU work seen", "nvidia-smi"), stdout=b""),
    Case("no GPU work, for programs", ["run", "--json", "-o", "{out}", "--", "true"], stderr=("no GPU work seen",),
         stdout=r'\A\{\n  "schema": "llmprof.report/1"[\s\S]*"why": "no GPU work seen'),
    Case("no GPU work, as tables", ["run", "--format", "csv", "--report", "{out}-csv", "-o", "{out}", "--", "true"],
         stderr=("no GPU work seen",), stdout=b"", files=("out-csv/cannot_tell.csv",)),
    Case("armed for ever", ["run", "--armed", "-o", "{out}", "--", "true"], stderr=("no `llmprof ctl start` came",)),
    Case("gone before the delay was over", ["run", "--delay", "1000", "-o", "{out}", "--", "true"],
         stderr=("before the --delay of 1000.0 s was over",)),
    Case("a range that never comes", ["run", "--capture-range", "never", "-o", "{out}", "--", "{client}"],
         stdout=b"pushed 1000\n", stderr=("1 process loaded the recorder", '--capture-range "never" records only')),
    Case("only the ranges that are wanted", ["run", "--capture-range", "step", "--steps", "3", "--json", "--report",
                                            "r.json", "-o", "{out}", "--", "{client}"],
         stdout=b"pushed 1000\n", files=("r.json",)),
    Case("no GPU work, its exit code", ["run", "-o", "{out}", "--", "sh", "-c", "exit 7"], exit=7,
         stderr=("no GPU work seen",)),
]

# GPUs, counters and power that tests/fakes make up; {fakes} is their folder.
FAKE_GPUS = {"LLMPROF_NVML": "{fakes}/libnvidia-ml.so.1", "LLMPROF_CUPTI": "{fakes}/libcupti.so.13",
             "LLMPROF_CUDA": "{fakes}/libcupti.so.13", "FAKE_NVML_GPUS": "2", "FAKE_PM_GPUS": "2"}
SAMPLERS = [
    Case("samplers of every GPU", watched("{client}"), env=FAKE_GPUS, stdout=b"pushed 1000\n",
         files=("out/samples/nvml.spool", "out/samples/counters-0.spool", "out/samples/counters-1.spool"),
         no_files=("out/samples/counters.log",)),
    Case("samplers of the visible GPU only", watched("true"), env=FAKE_GPUS | {"CUDA_VISIBLE_DEVICES": "1"},
         files=("out/samples/counters-1.spool",), no_files=("out/samples/counters-0.spool",)),
    Case("no counters wanted", watched("true", options=["--counters", "off"]), env=FAKE_GPUS,
         files=("out/samples/nvml.spool",), no_files=("out/samples/counters-0.spool",)),
    Case("a counter sampler that crashes", watched("sh", "-c", "exit 6"), env=FAKE_GPUS | {"FAKE_PM_CRASH": "1"},
         exit=6, files=("out/samples/nvml.spool",)),
    Case("no permission to count", watched("{client}"), env=FAKE_GPUS | {"FAKE_PM_AVAILABILITY": "35"},
         stdout=b"pushed 1000\n"),
]

CASES = PASS_THROUGH + NOT_STARTED + USAGE + FOLDERS + ENVIRONMENT + CHILDREN + NOTHING_SEEN + SAMPLERS


# ---- running -------------------------------------------------------------------------------------------------------

class Bench:
    """One empty folder with the files that the cases name, and llmprof in it."""

    def __init__(self, options, work):
        self.llmprof, self.client, self.fakes = options.binary, options.client, options.fakes
        self.work = pathlib.Path(work)
        self.out = self.work / "out"
        self.environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(self.work),
                            "XDG_RUNTIME_DIR": str(self.work / "runtime"), "LC_ALL": "C.UTF-8", "NO_COLOR": "1",
                            "LLMPROF_NVML": "/nonexistent/libnvidia-ml.so.1", "LLMPROF_STORE": "off"}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            if name in os.environ:
                self.environment[name] = os.environ[name]
        (self.work / "runtime").mkdir()
        self.file("text.py", "print('never')\n", 0o644)
        self.file("local-script", "echo script $1\n", 0o755)
        self.file("orphan", "#!/no/such/interpreter\n", 0o755)

    def file(self, name, text, mode):
        path = self.work / name
        path.write_text(text)
        path.chmod(mode)

    def fill(self, word):
        for key, value in {"python": sys.executable, "client": self.client, "fakes": self.fakes, "here": HERE,
                           "out": self.out, "work": self.work, "llmprof": self.llmprof}.items():
            word = word.replace("{" + key + "}", str(value))
        return word

    def start(self, words, env=None, **options):
        environment = dict(self.environment)
        for name, value in (env or {}).items():
            before = environment.get(name) if name == "ASAN_OPTIONS" else None  # a list, to which the case adds
            environment[name] = f"{before}:{value}" if before else self.fill(value)
        limit = environment.pop("LIMIT_FILE_BYTES", None)
        command = [self.llmprof, *map(self.fill, words)]
        if limit:  # prlimit is not everywhere; a shell is
            command = ["bash", "-c", f'ulimit -f {int(limit) // 1024}; exec "$@"', "bash", *command]
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(command, cwd=self.work, env=environment, **options)

    def run(self, words, stdin=None, **options):
        process = self.start(words, stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL, **options)
        try:
            out, err = process.communicate(stdin, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failure(f"did not end within {LIMIT_S} s: {words}") from None
        return process.returncode, out, err.decode(errors="replace")

    def ctl(self, *words):
        code, out, err = self.run(["ctl", *words])
        expect(code == 0, f"ctl {words}: exit {code}: {err}")
        return out.decode()

    def status(self, session=None):
        code, out, _ = self.run(["ctl", "status", "--json", *(["--session", str(session)] if session else [])])
        return json.loads(out) if code == 0 else None

    def session(self, folder=None):
        return json.loads(((folder or self.out) / "session.json").read_text())


def wait_until(what, condition):
    deadline = time.monotonic() + LIMIT_S
    while True:
        value = condition()
        if value:
            return value
        expect(time.monotonic() < deadline, f"waited in vain until {what}")
        time.sleep(0.02)


def check_case(bench, case):
    code, out, err = bench.run(case.words, stdin=case.stdin or None, env=case.env)
    told = f"\n  exit {code}\n  stdout {out[-600:]!r}\n  stderr {err[-1500:]}"
    expect(code == case.exit, f"expected exit code {case.exit}{told}")
    if isinstance(case.stdout, bytes):
        expect(out == case.stdout, f"stdout differs: expected {case.stdout[:200]!r}{told}")
    elif case.stdout is not None:
        expect(re.search(case.stdout, out.decode(errors="replace"), re.M), f"stdout lacks {case.stdout!r}{told}")
    for pattern in case.stderr:
        expect(re.search(pattern, err), f"stderr lacks {pattern!r}{told}")
    for pattern in case.no_stderr:
        expect(not re.search(pattern, err), f"stderr has {pattern!r}{told}")
    for key, value in (case.session or {}).items():
        found = bench.session()[key]
        expect(found == value, f"session.json: {key} is {found!r}, expected {value!r}")
    for name in case.files:
        expect((bench.work / name).exists(), f"{name} is missing{told}")
    for name in case.no_files:
        expect(not (bench.work / name).exists(), f"{name} should not be there{told}")


# ---- scenarios -----------------------------------------------------------------------------------------------------

SCENARIOS = []


def scenario(function):
    SCENARIOS.append(function)
    return function


@scenario
def deep_mode_counts_arithmetic(bench):
    for mode, wanted in (("default", False), ("deep", True)):
        out = bench.work / mode
        code, _, err = bench.run(["run", "--no-report", "--mode", mode, "-o", str(out), "--", "{client}"], env=FAKE_GPUS)
        expect(code == 0, f"exit {code}: {err}")
        found = b"fma_instructions_per_s" in (out / "samples/counters-0.spool").read_bytes()
        expect(found == wanted, f"{mode}: instructions of the FMA pipes {'not ' if wanted else ''}sampled")


# Counts a signal: says it is ready, then how often the signal came in the half second after the first one.
COUNTER = """
import signal, sys, time
seen = []
signal.signal(getattr(signal, sys.argv[1]), lambda number, frame: seen.append(number))
print("ready", flush=True)
while not seen: time.sleep(0.01)
end = time.monotonic() + 0.5
while time.monotonic() < end: time.sleep(0.01)
print(len(seen), flush=True)
sys.exit(40 + len(seen))
"""


def signalled(bench, name, send):
    process = bench.start(watched("{python}", "-c", COUNTER, name), start_new_session=True)
    expect(process.stdout.readline() == b"ready\n", "the target did not start")
    send(process.pid, getattr(signal, name))
    out, err = process.communicate(timeout=LIMIT_S)
    expect(out == b"1\n" and process.returncode == 41,
           f"{name} arrived {out!r} times, exit {process.returncode}\n{err.decode()}")
    shutil.rmtree(bench.out)


@scenario
def signals_to_llmprof_reach_the_target_once(bench):
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
        signalled(bench, name, os.kill)


@scenario
def signals_to_the_group_reach_the_target_once(bench):
    for name in ("SIGINT", "SIGTERM"):
        signalled(bench, name, os.killpg)


@scenario
def a_batch_system_signals_process_and_group(bench):
    def both(process, number):
        os.kill(process, number)
        os.killpg(process, number)

    signalled(bench, "SIGTERM", both)


@scenario
def the_report_comes_after_a_fatal_signal(bench):
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = bench.start(["run", "-o", "{out}", "--", "sleep", "100"], start_new_session=True)
        wait_until("the target runs", lambda: children_of(process.pid, "sleep"))
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=LIMIT_S)
        expect(process.returncode == code, f"exit {process.returncode}, expected {code}")
        expect("recording: " in err.decode(), f"ended without its last words: {err.decode()}")
        expect(bench.session()["signal"] == number, "session.json does not tell the signal")
        shutil.rmtree(bench.out)


def children_of(parent, name=None):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            match = re.match(r"(\d+) \((.*)\) . (\d+)", path.read_text())
            if match and int(match[3]) == parent and name in (None, match[2]):
                found.append(int(match[1]))
    return found


# What a program can see of where it was started.
PROBE = """
import json, os, re, resource
status = open("/proc/self/status").read()
masks = {key: re.search(key + r":\\s*(\\S+)", status)[1] for key in ("SigBlk", "SigIgn", "SigCgt", "ShdPnd")}
print(json.dumps({"masks": masks, "cwd": os.getcwd(), "umask": os.umask(0), "nice": os.nice(0),
    "group": os.getpgrp(), "session": os.getsid(0), "fds": sorted(os.listdir("/proc/self/fd")),
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT_" in name},
    "ends": [os.readlink(f"/proc/self/fd/{i}") for i in (0, 1, 2)],
    "environment": {name: value for name, value in os.environ.items()
                    if not re.match(r"LLMPROF_|(CUDA|NVTX)_INJECTION64_PATH|LD_PRELOAD", name)}}))
"""


@scenario
def the_target_sees_what_it_would_see_without_llmprof(bench):
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])

    for prepare in (None, ignore):
        (bench.work / "output").write_bytes(b"")
        (bench.work / "errors").write_bytes(b"")
        seen = []
        for words in ([sys.executable, "-c", PROBE],
                      [bench.llmprof, *map(bench.fill, watched("{python}", "-c", PROBE, options=["-q"]))]):
            with open(bench.work / "output", "wb") as out, open(bench.work / "errors", "wb") as err:
                done = subprocess.run(words, cwd=bench.work, env=bench.environment, stdin=subprocess.DEVNULL,
                                      stdout=out, stderr=err, preexec_fn=prepare, timeout=LIMIT_S, check=False)
            expect(done.returncode == 0, (bench.work / "errors").read_text())
            seen.append(json.loads((bench.work / "output").read_text()))
        for key, value in seen[0].items():
            expect(seen[1][key] == value, f"{key}: {seen[1][key]} under llmprof, {value} without it")
        shutil.rmtree(bench.out)


@scenario
def a_closed_pipe_ends_the_target_as_usual(bench):
    done = subprocess.run(["bash", "-c", f'"{bench.llmprof}" run -q --no-report -o "{bench.out}" -- '
                           "sh -c 'while echo line; do :; done' | head -n 1; exit ${PIPESTATUS[0]}"],
                          cwd=bench.work, env=bench.environment, capture_output=True, timeout=LIMIT_S, check=False)
    expect(done.stdout == b"line\n" and done.returncode == 141, f"{done.stdout[:80]!r}, exit {done.returncode}")


class NoTerminals(Exception):
    """This machine has no pseudo-terminals (a container without /dev/pts)."""


class Terminal:
    """llmprof on a terminal of its own, as its session leader's foreground job."""

    def __init__(self, bench, words, stdout=None):
        """`stdout`: a file that takes the program's standard output from the terminal."""
        try:
            self.process, self.fd = pty.fork()
        except OSError as problem:
            raise NoTerminals(str(problem)) from problem
        if self.process == 0:
            os.chdir(bench.work)
            if stdout is not None:
                os.dup2(os.open(stdout, os.O_WRONLY | os.O_CREAT), 1)
            os.execve(bench.llmprof, [bench.llmprof, *map(bench.fill, words)], bench.environment | {"TERM": "xterm"})
        self.text = b""

    def read_until(self, pattern):
        deadline = time.monotonic() + LIMIT_S
        while not re.search(pattern, self.text):
            expect(time.monotonic() < deadline, f"the terminal never showed {pattern!r}: {self.text!r}")
            ready, _, _ = select.select([self.fd], [], [], 0.1)
            if ready:
                try:
                    data = os.read(self.fd, 65536)
                except OSError:  # the other end is closed
                    data = b""
                if not data:
                    expect(re.search(pattern, self.text), f"the terminal never showed {pattern!r}: {self.text!r}")
                self.text += data

    def end(self):
        with contextlib.suppress(Failure):
            self.read_until(rb"\Z(?!)")  # to the end
        _, status = os.waitpid(self.process, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


@scenario
def control_c_on_a_terminal_reaches_the_target_once(bench):
    terminal = Terminal(bench, watched("{python}", "-c", COUNTER, "SIGINT", options=["-q"]))
    terminal.read_until(rb"ready")
    os.write(terminal.fd, b"\x03")
    code = terminal.end()
    expect(code == 41, f"exit {code}: {terminal.text!r}")


@scenario
def progress_is_shown_on_a_terminal_that_the_program_does_not_write_to(bench):
    words = watched("sh", "-c", "while ! test -e {work}/done; do sleep 0.05; done")
    terminal = Terminal(bench, words, stdout=bench.work / "output")
    terminal.read_until(rb"llmprof: [\d.]+ s .* kernels .* recording: default")
    (bench.work / "done").write_text("")
    expect(terminal.end() == 0, f"{terminal.text!r}")
    expect(re.search(rb"\r\x1b\[Kllmprof: recording: ", terminal.text), f"not cleared at the end: {terminal.text!r}")
    shutil.rmtree(bench.out)
    _, _, err = bench.run(["run", "--no-report", "-o", "{out}", "--", "sleep", "0.7"])
    expect("kernels" not in err, f"progress without a terminal: {err}")
    shutil.rmtree(bench.out)
    terminal = Terminal(bench, watched("sh", "-c", "sleep 0.7; echo line"))
    expect(terminal.end() == 0 and terminal.text.startswith(b"line"), f"progress among the program's lines: {terminal.text!r}")


@scenario
def armed_then_started_then_stopped(bench):
    process = bench.start(watched("{client}", "--until", "{work}/done", options=["--armed"]))
    status = wait_until("ctl finds the session", bench.status)
    expect(status["session"] == str(bench.out) and status["level"] == "off", f"{status}")
    expect("recording  no" in bench.ctl("status"), "status does not say that nothing is recorded")
    expect("level default" in bench.ctl("start"), "start does not name the level")
    expect(bench.status()["level"] == "default", "start had no effect")
    expect(all("ranges" not in process for process in bench.status()["processes"]), "ranges, which nobody counts")
    bench.ctl("stop")
    expect(bench.status()["level"] == "off", "stop had no effect")
    bench.ctl("start", "--duration", "0.2", "--session", str(bench.out))
    wait_until("the duration is over", lambda: bench.status()["level"] == "off")
    (bench.work / "done").write_text("")
    process.communicate(timeout=LIMIT_S)
    expect(process.returncode == 0, f"exit {process.returncode}")
    code, _, err = bench.run(["ctl", "stop", "--session", "{out}"])
    expect(code == 1 and "found a finished one" in err, f"exit {code}: {err}")
    expect(not list((bench.work / "runtime").glob("llmprof-*/*")), "the register keeps an ended session")


@scenario
def counters_compared_with_none(bench):
    for counters, compared in (("auto", True), ("on", False)):
        done, out = bench.work / f"done-{counters}", bench.work / counters
        process = bench.start(["run", "--no-report", "--mode", "light", "--counters", counters, "-o", str(out), "--",
                               "{client}", "--until", str(done)], env=FAKE_GPUS)
        spool = out / "samples" / "counters-0.spool"
        wait_until("sampling has begun", lambda: spool.exists() and b"counters_started_ns" in spool.read_bytes())
        if compared:
            wait_until("some steps run without counters", lambda: b"counters_stopped_ns" in spool.read_bytes())
        else:
            time.sleep(2)
            expect(b"counters_stopped_ns" not in spool.read_bytes(), "counters that are wanted on were switched off")
        done.write_text("")
        process.communicate(timeout=LIMIT_S)
        expect(process.returncode == 0, f"exit {process.returncode}")


@scenario
def counters_switched_off_and_on(bench):
    process = bench.start(watched("{client}", "--until", "{work}/done"), env=FAKE_GPUS)
    wait_until("ctl finds the session", bench.status)
    expect(bench.status()["counters"] is True, "counters are not sampled from the start")
    expect("counters off" in bench.ctl("counters", "off"), "off is not said")
    expect(bench.status()["counters"] is False, "off had no effect")
    expect("by `llmprof ctl counters off`" in bench.ctl("status"), "status does not say who switched them off")
    spool = bench.out / "samples" / "counters-0.spool"
    wait_until("the sampler has stopped", lambda: b"counters_stopped_ns" in spool.read_bytes())
    stopped = spool.stat().st_size
    bench.ctl("counters", "on")
    expect(bench.status()["counters"] is True, "on had no effect")
    wait_until("the sampler runs again", lambda: spool.stat().st_size > stopped + 4096)
    (bench.work / "done").write_text("")
    process.communicate(timeout=LIMIT_S)
    expect(process.returncode == 0, f"exit {process.returncode}")


@scenario
def the_newest_of_two_sessions(bench):
    first = bench.start(["run", "--no-report", "-o", "first", "--", "sleep", "100"])
    wait_until("the first runs", bench.status)
    second = bench.start(["run", "--no-report", "--", "sleep", "100"])
    wait_until("the second is found first", lambda: "llmprof-runs/sleep-" in bench.status()["session"])
    code, _, err = bench.run(["ctl", "status"])
    expect(code == 0 and "2 sessions are running" in err, f"exit {code}: {err}")
    for process in (first, second):
        process.terminate()
        process.communicate(timeout=LIMIT_S)
        expect(process.returncode == 143, f"exit {process.returncode}")


@scenario
def a_recording_in_the_store_ends_at_its_limit(bench):
    bench.environment.update(LLMPROF_STORE=str(bench.work / "runs"), LLMPROF_STORE_RUN_GB="0.001")
    process = bench.start(["run", "--no-report", "--name", "long", "--", "{client}", "--ranges", "200000", "--until",
                           "{work}/done"], env=FAKE_GPUS)
    wait_until("the limit is reached", lambda: (bench.status() or {}).get("level") == "off")
    expect(bench.status()["session"] == str(bench.work / "runs/0001-run-long/recording"), f"{bench.status()}")
    (bench.work / "done").write_text("")
    out, err = process.communicate(timeout=LIMIT_S)
    expect(process.returncode == 0 and out.startswith(b"pushed "), f"exit {process.returncode}: {out!r}")
    expect(b"recording ended, the program runs on" in err, f"{err!r}")
    expect(b"run 1)" in err, f"the run is not named: {err!r}")
    expect(not (bench.work / "llmprof-runs").exists(), "a folder in the current one, too")
    shown = json.loads(bench.run(["runs", "show", "long", "--json"])[1])
    expect(shown["gpus"] == ["NVIDIA Fake H200"] * 2 and shown["exit_code"] == 0, f"{shown}")
    code, out, err = bench.run(["analyze", "long", "--json"])
    expect(code == 0 and json.loads(out)["source"]["kind"] == "session", f"analyze long: {code}: {err}")


@scenario
def a_store_that_cannot_be_used_is_no_reason_not_to_record(bench):
    (bench.work / "file").write_text("")
    bench.environment["LLMPROF_STORE"] = str(bench.work / "file/runs")
    code, out, err = bench.run(["run", "--no-report", "--", "sh", "-c", "echo words; exit 3"])
    expect(code == 3 and out == b"words\n", f"exit {code}: {out!r}")
    expect("not kept in the run store" in err and "llmprof-runs/sh-" in err, err)
    code, _, err = bench.run(["run", "--no-report", "--no-store", "--", "true"])
    expect(code == 0 and "not kept" not in err and "llmprof-runs/true-" in err, f"--no-store: {code}: {err}")
    bench.environment.update(LLMPROF_STORE=str(bench.work / "runs"), LLMPROF_STORE_RECORDINGS="here")
    code, _, err = bench.run(["run", "--no-report", "--", "true"])
    expect(code == 0 and "llmprof-runs/true-" in err and "run 1)" in err, f"recordings here: {code}: {err}")
    code, _, err = bench.run(["run", "--", "./no-such-program"])
    expect(code == 127, f"no such program: {code}: {err}")
    code, _, err = bench.run(["run", "--no-report", "--", "./orphan"])  # found, and exec fails
    rows = json.loads(bench.run(["runs", "list", "--json"])[1])["runs"]
    expect([row["number"] for row in rows] == [1], f"a run that did not start is kept: {rows}")


@scenario
def delay_and_duration(bench):
    process = bench.start(watched("{client}", "--until", "{work}/done",
                                  options=["--delay", "0.5", "--duration", "0.5"]))
    seen = []

    def next_level():
        status = bench.status()
        if status and (not seen or seen[-1] != status["level"]):
            seen.append(status["level"])
        return "default" in seen and seen[-1] == "off"

    wait_until("recording began and ended", next_level)
    (bench.work / "done").write_text("")
    process.communicate(timeout=LIMIT_S)
    expect(process.returncode == 0, f"exit {process.returncode}")
    expect(seen in (["off", "default", "off"], ["default", "off"]), f"levels {seen}")


@scenario
def llmprof_itself_is_killed(bench):
    process = bench.start(watched("sleep", "100"), start_new_session=True)
    target = wait_until("the target runs", lambda: children_of(process.pid, "sleep"))[0]
    helpers = [child for child in children_of(process.pid) if child != target]
    process.kill()
    process.wait(timeout=LIMIT_S)
    try:
        wait_until("helpers are gone", lambda: not any(alive(helper) for helper in helpers))
        expect(alive(target), "the target died with llmprof")
        expect(bench.status() is None, "ctl takes a dead session for a running one")
        expect(bench.session()["end_unix_ns"] is None, "session.json claims an end")
    finally:
        os.kill(target, signal.SIGKILL)
    process.communicate(timeout=LIMIT_S)


def alive(process):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@scenario
def the_injection_library_is_missing(bench):
    alone = bench.work / "alone" / "bin"
    alone.mkdir(parents=True)
    shutil.copy(bench.llmprof, alone / "llmprof")
    done = subprocess.run([alone / "llmprof", "run", "--", "true"], cwd=bench.work, env=bench.environment,
                          capture_output=True, text=True, timeout=LIMIT_S, check=False)
    expect(done.returncode == 1 and "lib/libllmprof_inject.so" in done.stderr, f"exit {done.returncode}: {done.stderr}")
    expect(not (bench.work / "llmprof-runs").exists(), "a folder was made for a run that cannot be")


@scenario
def baseline_runs_first_and_reads_the_same_input(bench):
    (bench.work / "input").write_bytes(b"some words\n")
    with open(bench.work / "input", "rb") as stdin:
        process = bench.start(["run", "--baseline", "--no-report", "-o", "{out}", "--", "sh", "-c",
                               "cat; echo $LLMPROF_LEVEL; exit 3"], stdin=stdin)
        out, err = process.communicate(timeout=LIMIT_S)
    expect(process.returncode == 3, f"exit {process.returncode}: {err.decode()}")
    expect(out == b"some words\nlight\nsome words\ndefault\n", f"{out!r}")
    expect(bench.session()["baseline"] == "baseline", "session.json does not name the baseline")
    expect(bench.session(bench.out / "baseline")["mode"] == "light", "the baseline is not light")


@scenario
def an_input_that_never_ends_is_not_held(bench):
    """A pipe that stays open must not keep llmprof or its helpers from ending, nor be kept open by them."""
    process = bench.start(watched("true"), stdin=subprocess.PIPE)
    out = []
    reader = threading.Thread(target=lambda: out.append(process.stdout.read()))
    reader.start()
    reader.join(LIMIT_S)
    expect(out == [b""], "stdout was still open after the program had ended")
    process.stdin.close()
    expect(process.wait(timeout=LIMIT_S) == 0, f"exit {process.returncode}")
    process.stderr.close()
    process.stdout.close()


# ---- main ----------------------------------------------------------------------------------------------------------

def attempt(options, name, job):
    with tempfile.TemporaryDirectory(prefix="llmprof-run-") as work:
        began = time.monotonic()
        try:
            job(Bench(options, work))
        except NoTerminals as problem:
            return f"skipped {name}: {problem}"
        except (Failure, OSError, subprocess.TimeoutExpired) as problem:
            return f"FAILED {name}: {problem}"
        return f"ok {name} ({time.monotonic() - began:.1f} s)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, type=os.path.abspath)
    parser.add_argument("--client", required=True, type=os.path.abspath)
    parser.add_argument("--fakes", required=True, type=os.path.abspath, help="folder of the libraries of tests/fakes")
    parser.add_argument("names", nargs="*", help="parts of the names of cases; all if none is given")
    options = parser.parse_args()
    jobs = [(case.name, lambda bench, case=case: check_case(bench, case)) for case in CASES]
    jobs += [(function.__name__.replace("_", " "), function) for function in SCENARIOS]
    chosen = [job for job in jobs if not options.names or any(part in job[0] for part in options.names)]
    if not chosen:
        sys.exit(f"no case matches {options.names}")
    good = skipped = 0
    for name, job in chosen:
        result = attempt(options, name, job)
        good += result.startswith("ok")
        skipped += result.startswith("skipped")
        print(result, flush=True)
    print(f"{good} of {len(chosen)} cases passed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(0 if good + skipped == len(chosen) else 1)


if __name__ == "__main__":
    main()
