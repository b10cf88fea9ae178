#!/usr/bin/env python3
"""Faults on the GPU: the target behaves as it would alone, what was recorded can be read, the message says what happened.

    python3 tests/gpu/faults_test.py [--only NAME,NAME] [--seconds 60] [--state faults.json]

Without permission for the counters cannot be tried here: these machines give it to root. tests/unit cover it.
"""
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import harness

TARGET = pathlib.Path(__file__).with_name("fault_target.py")
LOSS_SECONDS = 1.3          # at most the last second is lost, and some time for the write itself
RESIDENT_GROWTH_KIB = 65536  # a recorder that keeps what it should write grows by more within a minute

FOREIGN_SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
int InitializeInjection(void) {
  const char* path = getenv("FOREIGN_MARK");
  FILE* file = path ? fopen(path, "w") : NULL;
  if (file) fputs("loaded\n", file), fclose(file);
  return 1;
}
"""


class Case:
    def __init__(self, fault, exits=(0,), says=(), options=(), env=None, words=(), **more):
        self.fault, self.exits, self.says, self.options = fault, exits, says, list(options)
        self.env, self.words, self.more = env or {}, list(words), more


def died(number):
    """A program killed by a signal, or a shell's way of saying so."""
    return (-number, 128 + number)


# `says`: at least one of these stands in what llmprof prints or in the report's diagnostics.
CASES = {
    "plain": Case("none"),
    "stdin-and-exit-code": Case("stdin", exits=(42,), stdin="hello\n", prints="HELLO"),
    "segv": Case("segv", exits=died(signal.SIGSEGV), says=("SIGSEGV", "signal 11", "SEGV"), words=["--seconds", "2"]),
    "sigkill": Case("kill", exits=died(signal.SIGKILL), says=("SIGKILL", "signal 9", "KILL"), words=["--seconds", "3"]),
    "os-exit": Case("os-exit", exits=(7,), words=["--seconds", "2"]),
    "fork-then-exit": Case("fork-exit", prints="child ended with 3"),
    "fork-then-exec": Case("fork-exec", prints="child ended with 0", spools=2),
    "spawned-workers": Case("spawn", prints="workers ended with 0 0", spools=2, kernels=900, progress=False),
    "torch-profiler-inside": Case("torch-profiler", prints="torch.profiler saw 501 kernels", kernels=6003,
                                  says=("second-cupti-user", "cupti-held", "profiler")),
    "no-gpu": Case("no-gpu", exits=(6,), env={"CUDA_VISIBLE_DEVICES": ""}, prints="cuda available: False", kernels=0,
                   says=("GPU",), progress=False, report=False),
    "sigterm-to-llmprof": Case("sigterm", exits=(5,), words=["--seconds", "60"], signal_after=(14, signal.SIGTERM)),
    "light-mode-killed": Case("kill", exits=died(signal.SIGKILL), says=("SIGKILL", "signal 9", "KILL"),
                              options=["--mode", "light"], words=["--seconds", "2"], kernels=0),
    "long": Case("long", words=["--seconds", "{seconds}"], bounded=True),
    "unwritable-folder": None,
    "full-folder": None,
    "foreign-injection": None,
}


def recorded_kernels(report):
    return sum(row["calls"] for row in report["kernels_topk"] if not row["name"].startswith(("Memcpy", "Memset"))) if report else 0


def text_of(outcome):
    report = outcome.report or {}
    parts = [outcome.stderr, *[f"{d['key']} {d['text']}" for d in report.get("diagnostics", [])]]
    parts += [f"{entry['question']} {entry['why']}" for entry in report.get("cannot_tell", [])]
    return "\n".join(parts)


def launched(progress, until=None):
    """Kernels that had run by `until`, seconds since the epoch; all of them if None."""
    total = carried = previous = 0
    for line in pathlib.Path(progress).read_text().splitlines():
        when, count = line.split()
        if int(count) < previous:
            carried += previous  # another round of steps began to count
        previous = int(count)
        if until is None or float(when) <= until:
            total = carried + previous
    return total


def last_time(progress):
    lines = pathlib.Path(progress).read_text().splitlines()
    return float(lines[-1].split()[0]) if lines else None


def check(case, outcome, progress):
    problems = []
    if outcome.timed_out:
        problems.append("did not end")
    if outcome.returncode not in case.exits:
        problems.append(f"expected exit code {' or '.join(map(str, case.exits))}, found {outcome.returncode}")
    if case.more.get("prints") and case.more["prints"] not in outcome.stdout:
        problems.append(f"expected the target to print {case.more['prints']!r}, found {outcome.stdout[-200:]!r}")
    if case.says and not any(word in text_of(outcome) for word in case.says):
        problems.append(f"expected a message with one of {case.says}")
    if case.more.get("report", True) and outcome.report is None:
        problems.append("no report")
    spools = [name for name in outcome.session or [] if name.endswith(".spool") and name.startswith("spool/")]
    if len(spools) < case.more.get("spools", 0):
        problems.append(f"expected recordings of {case.more['spools']} processes, found {spools}")
    kernels = recorded_kernels(outcome.report)
    least = case.more.get("kernels")
    if least is None:
        killed = any(code < 0 for code in case.exits) or case.fault == "os-exit"
        end = last_time(progress)
        least = launched(progress, end - LOSS_SECONDS if killed and end else None)
        if least == 0:
            problems.append("the target made no progress")
    if kernels < least:
        problems.append(f"expected at least {least} kernels, found {kernels}")
    if case.more.get("bounded") and outcome.result:
        growth = outcome.result["resident_kib_at_end"] - outcome.result["resident_kib_at_quarter"]
        if growth > RESIDENT_GROWTH_KIB:
            problems.append(f"the target grew by {growth} KiB in three quarters of its time")
    return {"problems": problems, "kernels": kernels, "kernels_expected": least, "exit_code": outcome.returncode,
            "seconds": round(outcome.seconds, 1), "session_bytes": outcome.session_bytes, "result": outcome.result,
            "message": outcome.stderr.strip()[-600:],
            "diagnostics": [d["key"] for d in (outcome.report or {}).get("diagnostics", [])]}


def run_case(args, name, case):
    with tempfile.TemporaryDirectory(prefix="llmprof-gpu-test-") as folder:
        progress = pathlib.Path(folder) / "progress"
        progress.touch()
        words = [word.format(seconds=args.seconds) for word in case.words]
        command = [args.python, str(TARGET), "--fault", case.fault, "--progress", str(progress), *words]
        outcome = harness.profile(args, ["--unrecorded-windows", "off", "--top", "0", *case.options], command, name, quiet=False,
                                  env=case.env, stdin=case.more.get("stdin"), signal_after=case.more.get("signal_after"))
        return check(case, outcome, progress)


def run_in_folder(args, session, extra_env=None):
    """The plain target with its session in a folder that the test chose. (outcome, kernels it ran)"""
    with tempfile.TemporaryDirectory(prefix="llmprof-gpu-test-") as folder:
        progress, report = pathlib.Path(folder) / "progress", pathlib.Path(folder) / "report.json"
        progress.touch()
        command = [args.llmprof, "run", "--json", "--report", str(report), "-o", str(session), "--unrecorded-windows", "off", "--top", "0", "--",
                   args.python, str(TARGET), "--fault", "os-exit", "--progress", str(progress), "--seconds", "3"]
        outcome = harness.execute(command, args.timeout, extra_env)
        if report.exists():
            outcome.report = json.loads(report.read_text())
        return outcome, launched(progress)


def unwritable_folder(args):
    """A folder that nobody can write to: said before the program starts, or the program runs as ever."""
    outcome, ran = run_in_folder(args, "/proc/llmprof-cannot-be-made")
    problems = []
    if "/proc/llmprof-cannot-be-made" not in outcome.stderr:
        problems.append("the message does not name the folder")
    if ran and outcome.returncode != 7:
        problems.append(f"the target ran and the exit code is {outcome.returncode}, not its own 7")
    if not ran and outcome.returncode == 0:
        problems.append("nothing ran and the exit code is 0")
    return {"problems": problems, "exit_code": outcome.returncode, "target_ran": ran > 0, "message": outcome.stderr.strip()[-600:]}


def full_folder(args):
    """A file system of 256 KiB: the program is unharmed, the beginning can be read, the message says that it ended."""
    with tempfile.TemporaryDirectory(prefix="llmprof-gpu-test-") as folder:
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True, text=True)
        if mount.returncode != 0:
            return {"problems": [], "skipped": "no right to mount a small file system here: " + mount.stderr.strip()}
        try:
            outcome, ran = run_in_folder(args, pathlib.Path(folder) / "session")
        finally:
            subprocess.run(["umount", folder], check=False)
        problems = []
        if outcome.returncode != 7:
            problems.append(f"expected the target's exit code 7, found {outcome.returncode}")
        if not any(word in text_of(outcome) for word in ("spool-unwritable", "full", "No space", "lost-records")):
            problems.append("no message says that the folder was full")
        return {"problems": problems, "exit_code": outcome.returncode, "kernels": recorded_kernels(outcome.report),
                "kernels_run": ran, "message": outcome.stderr.strip()[-600:]}


def foreign_injection(args):
    """CUDA_INJECTION64_PATH names another tool already: both are loaded."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("g++")
    if compiler is None:
        return {"problems": [], "skipped": "no C compiler"}
    with tempfile.TemporaryDirectory(prefix="llmprof-gpu-test-") as folder:
        source, library, mark = (pathlib.Path(folder) / name for name in ("foreign.c", "libforeign.so", "mark"))
        source.write_text(FOREIGN_SOURCE)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        case = Case("none", says=("foreign-injection", "CUDA_INJECTION64_PATH", "libforeign"),
                    env={"CUDA_INJECTION64_PATH": str(library), "FOREIGN_MARK": str(mark)})
        out = run_case(args, "foreign-injection", case)
        if not mark.exists():
            out["problems"].append("the other tool's library was not loaded")
        return out


SPECIAL = {"unwritable-folder": unwritable_folder, "full-folder": full_folder, "foreign-injection": foreign_injection}


def main():
    parser = harness.arguments(__doc__, "faults_results.json")
    parser.add_argument("--only", default="", help="cases, comma between them: " + ", ".join(CASES))
    parser.add_argument("--seconds", type=float, default=60, help="length of the long run; 600 for ten minutes")
    args = parser.parse_args()
    names = [name for name in CASES if not args.only or name in args.only.split(",")]
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    for name in names:
        expected_s = args.seconds + 30 if name == "long" else 30
        if (name in state and not args.only) or budget.spent(expected_s):
            continue
        args.timeout = max(args.timeout, expected_s + 60)
        try:
            done = SPECIAL[name](args) if name in SPECIAL else run_case(args, name, CASES[name])
        except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            done = {"problems": [f"{type(error).__name__}: {error}"]}
        done["passed"] = not done["problems"] and "skipped" not in done
        done["at"] = round(time.time())
        state.put(name, done)
        print(f"{'ok  ' if done['passed'] else 'skip' if 'skipped' in done else 'FAIL'} {name}: "
              f"{done.get('skipped') or '; '.join(done['problems']) or done.get('kernels', '')}", flush=True)
    done = [state.get(name) for name in names if name in state]
    failed = [name for name in names if name in state and state.get(name)["problems"]]
    cases = {name: {key: state.get(name).get(key) for key in ("passed", "problems", "skipped", "exit_code", "kernels", "message")}
             for name in names if name in state}
    state.save(summary={"cases": cases, "passed": sum(case["passed"] for case in done), "failed": failed,
                        "skipped": [name for name in names if name in state and "skipped" in state.get(name)],
                        "not_run": [name for name in names if name not in state]})
    harness.write_summary(args, state)
    print({key: value for key, value in state.data["summary"].items() if key != "cases"})
    return 0 if len(done) == len(names) and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
