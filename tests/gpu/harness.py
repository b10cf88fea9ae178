"""What the GPU tests share: `llmprof run` as a user types it, its report, resumable results, a time budget.

The tests need a machine with an NVIDIA GPU, the built program and, for the PyTorch programs, torch and transformers.
They are run by hand (docs/howto/reproduce-gpu-results.md); nothing here runs in a build.
"""
import argparse
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

os.environ.setdefault("LLMPROF_STORE", "off")  # nothing of this among the runs of whoever calls it

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "tests/clients"
PROGRAMS = CLIENTS / "planted"
WORKLOADS = CLIENTS / "workloads"


def arguments(description, state):
    """The options every test has; `state` is the default name of its result file."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llmprof", default=os.environ.get("LLMPROF", str(ROOT / "build/release/bin/llmprof")))
    parser.add_argument("--python", default=sys.executable, help="interpreter that has torch")
    parser.add_argument("--state", default=state, help="results so far: a second call goes on where the first stopped")
    parser.add_argument("--summary", metavar="FILE", help="write the machine and the summary there, without single runs")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--budget", type=float, default=540, metavar="SECONDS", help="start nothing new after this")
    parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="for one program")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the recordings there")
    return parser


class Budget:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()

    def spent(self, next_seconds=0.0):
        """True if something that takes `next_seconds` should not be started any more."""
        return self.left() < next_seconds


class State:
    """Results by name in a JSON file that is rewritten after every one."""

    def __init__(self, path, fresh=False):
        self.path = pathlib.Path(path)
        self.lock = threading.Lock()  # programs on several GPUs end when they like
        self.data = {}
        if not fresh and self.path.exists():
            self.data = json.loads(self.path.read_text())

    def __contains__(self, name):
        return name in self.data.get("results", {})

    def get(self, name):
        return self.data.get("results", {}).get(name)

    def put(self, name, value):
        with self.lock:
            self.data.setdefault("results", {})[name] = value
            self.write()

    def results(self):
        return self.data.get("results", {})

    def save(self, **values):
        with self.lock:
            self.data.update(values)
            self.write()

    def write(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.data, indent=1) + "\n")
        os.replace(temporary, self.path)


def write_summary(args, state):
    """The small file for docs/results: everything but the single runs."""
    if args.summary:
        kept = {key: value for key, value in state.data.items() if key != "results"}
        pathlib.Path(args.summary).write_text(json.dumps(kept, indent=1) + "\n")


def machine(python):
    """The GPU, driver and PyTorch, to stand beside the results."""
    found = {}
    try:
        query = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,power.limit", "--format=csv,noheader"],
                               capture_output=True, text=True, timeout=30)
        found["gpu"] = query.stdout.strip().splitlines()[0] if query.stdout.strip() else None
        versions = "import torch; print(torch.__version__, torch.version.cuda)"
        found["torch"] = subprocess.run([python, "-c", versions], capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        found["error"] = str(error)
    return found


def result_of(stdout):
    """What a program printed of itself: its RESULT line."""
    for line in reversed(stdout.splitlines()):
        if line.startswith("RESULT "):
            return json.loads(line[len("RESULT "):])
    return None


class Outcome:
    def __init__(self, returncode, stdout, stderr, seconds, report=None, session_bytes=None, session=None, report_s=None,
                 timed_out=False):
        self.returncode, self.stdout, self.stderr, self.seconds = returncode, stdout, stderr, seconds
        self.report, self.session_bytes, self.session, self.report_s = report, session_bytes, session, report_s
        self.timed_out = timed_out
        self.result = result_of(stdout)

    def failure(self):
        """What went wrong, in one line, or None."""
        if self.timed_out:
            return f"no end within {self.seconds:.0f} s"
        if self.returncode == 0:
            return None
        last = (self.stderr.strip().splitlines() or self.stdout.strip().splitlines() or [""])[-1]
        return f"exit code {self.returncode}: {last[:300]}"


def execute(command, timeout, env=None, stdin=None, signal_after=None):
    """Runs to the end or kills it with everything it started. `signal_after`: (seconds, signal) to send meanwhile."""
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **(env or {})}, text=True,
                                 stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                                 start_new_session=True)
        if stdin is not None:
            child.stdin.write(stdin)
            child.stdin.close()
        timed_out = False
        try:
            if signal_after is not None:
                try:
                    child.wait(min(timeout, signal_after[0]))
                except subprocess.TimeoutExpired:
                    child.send_signal(signal_after[1])
            child.wait(max(0.1, timeout - (time.monotonic() - begin)))
        except subprocess.TimeoutExpired:
            timed_out = True
            os.killpg(child.pid, signal.SIGKILL)  # the session that was made for it above
            child.wait()
        out.seek(0)
        err.seek(0)
        return Outcome(child.returncode, out.read(), err.read(), time.monotonic() - begin, timed_out=timed_out)


def folder_bytes(folder):
    return sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file())


# Writes the moment at which the program ended, so that the time to the report can be told.
STAMPED = 'stamp=$1; shift; "$@"; code=$?; date +%s%N >"$stamp"; exit $code'


def profile(args, options, command, name="session", quiet=True, env=None, stdin=None, signal_after=None, stamped=False):
    """`llmprof run OPTIONS -- COMMAND`, with the JSON report and the size of the recording."""
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="llmprof-gpu-test-"))
    session, report, stamp = scratch / "session", scratch / "report.json", scratch / "stamp"
    words = [args.llmprof, "run", "--no-html", "--format", "json", "--report", str(report), "-o", str(session)]
    words += ["--quiet"] if quiet else []
    target = ["sh", "-c", STAMPED, "sh", str(stamp), *command] if stamped else list(command)
    try:
        outcome = execute([*words, *options, "--", *target], args.timeout, env, stdin, signal_after)
        ended = time.time()
        if stamp.exists() and not outcome.timed_out:
            outcome.report_s = ended - int(stamp.read_text()) / 1e9
        if report.exists():
            try:
                outcome.report = json.loads(report.read_text())
            except ValueError as error:
                outcome.stderr += f"\nthe report is no JSON: {error}"
        if session.exists():
            outcome.session_bytes = folder_bytes(session)
            outcome.session = sorted(str(path.relative_to(session)) for path in session.rglob("*") if path.is_file())
        if args.keep:
            kept = pathlib.Path(args.keep) / name
            shutil.rmtree(kept, ignore_errors=True)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(str(scratch), kept)
        return outcome
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def run_cases(args, cases, run, problems_of, seconds):
    """A test of several programs: run(name) of each that has no result yet and may still take `seconds`, and what
    problems_of(name, result) finds. The exit status."""
    budget, state = Budget(args.budget), State(args.state, args.fresh)
    state.save(machine=state.data.get("machine") or machine(args.python))  # what was measured elsewhere stays of there
    for name in cases:
        if (name not in state or "error" in state.get(name)) and not budget.spent(seconds):
            state.put(name, run(name))
        print(name, state.get(name), flush=True)
    problems = [problem for name in cases for problem in
                (problems_of(name, state.get(name)) if name in state else [f"{name}: not run"])]
    state.save(summary={"passed": not problems, "problems": problems, "results": {name: state.get(name) for name in cases}})
    write_summary(args, state)
    print("\n".join(problems) or "all right")
    return 1 if problems else 0


def whole_cores():
    """The CPUs of this process, those that share a core together: programs side by side must not."""
    cores = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        try:
            siblings = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
        except OSError:
            siblings = str(cpu)
        cores.setdefault(siblings, []).append(cpu)
    return list(cores.values())


def places(gpus):
    """A queue of places to run a program at: its GPU and its CPUs, None for all of them where there is one."""
    out, cores = queue.SimpleQueue(), whole_cores()
    for i in range(gpus):
        out.put((None, None) if gpus == 1 else (i, [cpu for core in cores[i::gpus] for cpu in core]))
    return out


def stage_of(report, name):
    """The row of a stage, or None; the first device's if several have it."""
    for row in (report or {}).get("stages", []):
        if row["name"] == name:
            return row
    return None


def in_stages(rows):
    return [row for row in rows if row["stage"] != "[unattributed]"]


def nvcc():
    for folder in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if folder and os.access(pathlib.Path(folder) / "bin/nvcc", os.X_OK):
            return str(pathlib.Path(folder) / "bin/nvcc")
    return shutil.which("nvcc")


def cuda_program(args, source):
    """Path of a planted CUDA program: from the build, else compiled now; raises RuntimeError with the reason."""
    built = pathlib.Path(args.llmprof).resolve().parent / ("planted_" + source.stem)
    if built.exists() and built.stat().st_mtime >= source.stat().st_mtime:
        return str(built)
    compiler = nvcc()
    if compiler is None:
        raise RuntimeError("no nvcc: set CUDA_HOME to the CUDA toolkit")
    folder = pathlib.Path(tempfile.gettempdir()) / f"llmprof-planted-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    program = folder / source.stem
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        words = [compiler, "-std=c++17", "-O2", "-arch=native", "-cudart", "static", "-o", str(program), str(source)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"nvcc failed on {source.name}: {done.stderr.strip()[:500]}")
    return str(program)


def print_table(header, rows):
    text = [[("" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell)) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [header, *text]) for i in range(len(header))]
    for line in [header, *text]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip(), flush=True)
