#!/usr/bin/env python3
"""A run of ten minutes: the recorder's memory is bounded, the recording is complete and the report comes.

    python3 tests/gpu/long_run_test.py [--seconds 600] [--state long_run.json]
    python3 tests/gpu/long_run_test.py --detach-to FOLDER      # starts it in the background and returns at once
    python3 tests/gpu/long_run_test.py --collect FOLDER        # waits for it, up to --budget, and judges

Eager TinyLlama-1.1B (the most launches per second) decodes under `llmprof run` until its process is --seconds old.
Meanwhile the resident memory of the program, of the launcher and of the counter sampler and the size of the session
folder are read every --every seconds. The median of the last third of the time may exceed that of the second third by
less than 5 %, and by no more than 64 MiB for the program, which is large; growth below 1 MiB is that of an allocator and
always allowed. Also: the program ends as it would alone, the report is readable, covers the run to its end and has the
program's steps and kernels. Growth of the folder, the launcher's memory while it reports and the time from the program's
end to the report are measured and not judged.
"""
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import harness
from faults_test import recorded_kernels

WORKLOAD = harness.WORKLOADS / "llm_eager.py"
WORDS = ["--model", "tinyllama-1.1b", "--prompt", "128", "--new", "64", "--iters", "1"]
COUNTERS_COMMAND = "__counters"  # the hidden command of the sampler process
ROLES = ("target", "launcher", "counters")
GROWTH_FRAC_MAX, GROWTH_ALLOWED_KIB = 0.05, 1024
GROWTH_MAX_KIB = {"target": 65536}
SAMPLES_PER_THIRD = 3
SPAN_MIN = 0.9           # share of the program's life that the recording must span
REPORT_SECONDS = 45      # start of the program, and the report of what it did
REPORTING_INTERVAL_S = 0.2


def process_status(pid):
    """{VmRSS, RssAnon, ... in KiB} and State of a process, or None if it is gone."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    status = {key: int(value.split()[0]) for key, value in found.items() if value.strip().endswith(" kB")}
    status["State"], status["PPid"] = found["State"].strip()[:1], int(found["PPid"])
    return status


def words_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def descendants(root):
    children = {}
    for entry in os.listdir("/proc"):
        status = process_status(entry) if entry.isdigit() else None
        if status is not None:
            children.setdefault(status["PPid"], []).append(int(entry))
    found, open_ends = [], [root]
    while open_ends:
        more = children.get(open_ends.pop(), [])
        found += more
        open_ends += more
    return found


def find_roles(launcher, known):
    """PIDs by role. A fork of the launcher that has not become another program yet has its words, and is none."""
    roles = {"launcher": launcher, **known}
    if "target" in roles and "counters" in roles:
        return roles
    for pid in descendants(launcher):
        words = words_of(pid)
        if len(words) > 1 and words[1] == COUNTERS_COMMAND:
            roles.setdefault("counters", pid)
        elif len(words) > 1 and words[1] == str(WORKLOAD):
            roles.setdefault("target", pid)
    return roles


def size_of(folder):
    """Like folder_bytes, of a folder that is being written."""
    total = 0
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def take_sample(roles, session, at_s):
    sample = {"at_s": round(at_s, 2), "session_bytes": size_of(session) if session.exists() else 0}
    for role, pid in roles.items():
        status = process_status(pid)
        if status is not None and "VmRSS" in status:
            sample[role + "_kib"], sample[role + "_anonymous_kib"] = status["VmRSS"], status.get("RssAnon")
    return sample


def wait_for(process, seconds):
    try:
        process.wait(max(0.01, seconds))
        return True
    except subprocess.TimeoutExpired:
        return False


def watch(process, session, stamp, every_s, limit_s, told):
    """Samples while the program lives, then the most memory that the launcher ever had, which it needs for the report.
    `told` gets each sample. Gives (samples, PIDs by role, KiB or None, whether the time ran out)."""
    begin, samples, roles, peak = time.monotonic(), [], {}, None
    while process.poll() is None:
        now = time.monotonic() - begin
        if now > limit_s:
            os.killpg(process.pid, signal.SIGKILL)  # the session that was made for it
            process.wait()
            return samples, roles, peak, True
        if stamp.exists():
            status = process_status(process.pid) or {}
            peak = status.get("VmHWM", peak)
            wait_for(process, REPORTING_INTERVAL_S)
            continue
        roles = find_roles(process.pid, roles)
        samples.append(take_sample(roles, session, now))
        told(samples[-1])
        next_s = now + every_s
        while time.monotonic() - begin < next_s and not stamp.exists():
            if wait_for(process, min(REPORTING_INTERVAL_S, next_s - (time.monotonic() - begin))):
                break
    return samples, roles, peak, False


def read_report(path):
    """(what the judgement needs of the report, None) or (None, the reason)."""
    if not path.exists():
        return None, "llmprof wrote no report"
    try:
        report = json.loads(path.read_text())
    except ValueError as error:
        return None, f"the report is no JSON: {error}"
    stages = {row["name"]: {"count": row["count"], "kernels": row["kernels"]} for row in report["stages"]}
    return {"stages": stages, "kernels": recorded_kernels(report),
            "duration_ms": report["source"]["duration_ms"], "latency": report["latency"], "overhead": report["overhead"],
            "diagnostics": {entry["key"]: entry["count"] for entry in report["diagnostics"]}}, None


def record(args, told):
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="llmprof-gpu-test-"))
    session, report, stamp = scratch / "session", scratch / "report.json", scratch / "stamp"
    target = ["sh", "-c", harness.STAMPED, "sh", str(stamp), args.python, str(WORKLOAD), *WORDS, "--seconds", str(args.seconds)]
    command = [args.llmprof, "run", "--no-html", "--format", "json", "--report", str(report), "-o", str(session), "--top", "0",
               *args.options.split(), "--", *target]
    process = None
    try:
        with open(scratch / "out", "w+") as out, open(scratch / "err", "w+") as err:
            begin = time.time()
            process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, start_new_session=True)
            limit_s = args.seconds + max(args.timeout, 240)
            samples, roles, peak, timed_out = watch(process, session, stamp, args.every, limit_s, told)
            ended = time.time()
            out.seek(0)
            err.seek(0)
            result, message = harness.result_of(out.read()), err.read().strip()[-600:]
        run = {"seconds": args.seconds, "options": args.options, "returncode": process.returncode,
               "timed_out": timed_out, "result": result, "message": message, "samples": samples, "seen": sorted(roles), "launcher_while_reporting_kib": peak,
               "session_bytes": harness.folder_bytes(session) if session.exists() else None}
        if stamp.exists() and not timed_out:
            target_end = int(stamp.read_text()) / 1e9
            run["target_s"], run["report_s"] = target_end - begin, ended - target_end
        run["report"], run["no_report"] = read_report(report)
        if args.keep:
            kept = pathlib.Path(args.keep) / "long-run"
            shutil.rmtree(kept, ignore_errors=True)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(str(scratch), kept)
        return run
    finally:
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def thirds(samples, key):
    """Values of the second and of the last third of the time."""
    end_s = samples[-1]["at_s"] if samples else 0
    known = [(sample["at_s"], sample[key]) for sample in samples if sample.get(key) is not None]
    return ([value for at_s, value in known if end_s / 3 <= at_s < 2 * end_s / 3],
            [value for at_s, value in known if at_s >= 2 * end_s / 3])


def judge_memory(samples, role):
    second, last = thirds(samples, role + "_kib")
    if min(len(second), len(last)) < SAMPLES_PER_THIRD:
        return {"problem": f"expected at least {SAMPLES_PER_THIRD} samples of the {role} in each third of the time, found "
                           f"{len(second)} and {len(last)}"}
    before, after = statistics.median(second), statistics.median(last)
    limit = min(GROWTH_MAX_KIB.get(role, float("inf")), max(GROWTH_ALLOWED_KIB, GROWTH_FRAC_MAX * before))
    out = {"second_third_kib": before, "last_third_kib": after, "growth_kib": after - before,
           "growth_frac": after / before - 1, "limit_kib": limit, "most_kib": max(second + last)}
    anonymous = [statistics.median(values) for values in thirds(samples, role + "_anonymous_kib") if values]
    if len(anonymous) == 2:
        out["anonymous_growth_kib"] = anonymous[1] - anonymous[0]
    if after - before >= limit:
        out["problem"] = f"the {role} grew by {after - before:.0f} KiB ({after / before - 1:.1%}), allowed are {limit:.0f} KiB"
    return out


def folder_growth(samples):
    """Bytes per second over the last two thirds of the time."""
    late = [sample for sample in samples if sample["at_s"] >= samples[-1]["at_s"] / 3] if samples else []
    if len(late) < 2 or late[-1]["at_s"] <= late[0]["at_s"]:
        return None
    return (late[-1]["session_bytes"] - late[0]["session_bytes"]) / (late[-1]["at_s"] - late[0]["at_s"])


def judge_report(run):
    """(problems, figures)"""
    report, result = run["report"], run["result"] or {}
    if report is None:
        return [run["no_report"]], {}
    problems, steps = [], report["stages"].get("decode_step", {"count": 0, "kernels": 0})
    if steps["count"] == 0 or steps["kernels"] == 0:
        problems.append(f"expected decode steps with kernels in the report, found {steps['count']} with {steps['kernels']}")
    if result and steps["count"] > result["steps"]:
        problems.append(f"the report has {steps['count']} decode steps, the program did {result['steps']}")
    if report["stages"].get("prefill", {"count": 0})["count"] == 0:
        problems.append("no prefill in the report")
    measured_ms = result["steps"] * result["tpot_mean_ms"] if result else None
    if measured_ms and report["duration_ms"] < SPAN_MIN * measured_ms:
        problems.append(f"the recording spans {report['duration_ms'] / 1e3:.0f} s, the program's steps took "
                        f"{measured_ms / 1e3:.0f} s")
    kernels = report["kernels"]
    return problems, {"steps_of_program": result.get("steps"), "steps_in_report": steps["count"], "kernels": kernels,
                      "recorded_s": report["duration_ms"] / 1e3, "overhead": report["overhead"],
                      "bytes_per_kernel": run["session_bytes"] / kernels if kernels and run["session_bytes"] else None,
                      "diagnostics": report["diagnostics"]}


def judge(run):
    """The summary of a run; pure."""
    problems = ["did not end"] if run["timed_out"] else []
    if run["returncode"] != 0:
        problems.append(f"expected exit code 0, found {run['returncode']}: {run['message'][-300:]}")
    if run["result"] is None:
        problems.append("the program printed no RESULT line")
    if run.get("target_s") is None:
        problems.append("the end of the program was not seen")
    elif run["target_s"] < run["seconds"]:
        problems.append(f"expected the program to run for {run['seconds']:.0f} s, found {run['target_s']:.0f} s")
    roles = [role for role in ROLES if role != "counters" or "--counters off" not in run["options"]]
    memory = {role: judge_memory(run["samples"], role) for role in roles}
    problems += [one["problem"] for one in memory.values() if "problem" in one]
    found, figures = judge_report(run)
    return {"passed": not problems and not found, "problems": problems + found, "seconds": run["seconds"],
            "target_s": run.get("target_s"), "samples": len(run["samples"]), "memory": memory,
            "session_bytes": run["session_bytes"], "session_bytes_per_s": folder_growth(run["samples"]),
            "report_s": run.get("report_s"), "launcher_while_reporting_kib": run["launcher_while_reporting_kib"], **figures}


def show(summary):
    rows = [[role, one.get("second_third_kib"), one.get("last_third_kib"), one.get("growth_kib"), one.get("growth_frac"),
             one.get("limit_kib"), "FAIL" if "problem" in one else "ok"] for role, one in summary["memory"].items()]
    header = ["resident memory", "second third KiB", "last third KiB", "growth KiB", "growth", "allowed KiB", ""]
    harness.print_table(header, rows)
    for key in ("target_s", "samples", "session_bytes", "session_bytes_per_s", "report_s", "launcher_while_reporting_kib",
                "kernels", "bytes_per_kernel", "steps_of_program", "steps_in_report", "recorded_s", "diagnostics"):
        if summary.get(key) is not None:
            value = summary[key]
            print(f"{key}: {value:,.2f}" if isinstance(value, float) else f"{key}: {value}")
    for problem in summary["problems"]:
        print("FAIL", problem)


def finish(args, state, run):
    summary = judge(run)
    show(summary)
    state.data.pop("progress", None)
    state.save(summary=summary)
    harness.write_summary(args, state)
    return 0 if summary["passed"] else 1


def detach(args, words):
    folder = pathlib.Path(args.detach_to).resolve()
    if (folder / "pid").exists():
        print(f"expected a new folder, found a run in {folder}: --collect {folder} gets its result")
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(pathlib.Path(__file__).resolve()), *words, "--state", str(folder / "state.json"),
               "--budget", "1e9"]
    with open(folder / "log", "w") as log:
        worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    (folder / "pid").write_text(f"{worker.pid}\n")
    print(f"process {worker.pid} runs for about {args.seconds + REPORT_SECONDS:.0f} s; then, or meanwhile: --collect {folder}")
    return 0


def at_work(folder):
    """True while the process of --detach-to runs; its number may belong to another one by now."""
    try:
        pid = int((folder / "pid").read_text())
    except (OSError, ValueError):
        return False
    status = process_status(pid)
    return status is not None and status["State"] != "Z" and str(pathlib.Path(__file__).resolve()) in words_of(pid)


def collect(args):
    folder, budget = pathlib.Path(args.collect).resolve(), harness.Budget(args.budget)
    if not (folder / "pid").exists():
        print(f"expected a folder of --detach-to, found no run in {folder}")
        return 2
    while at_work(folder) and not budget.spent(1):
        time.sleep(1)
    running = at_work(folder)  # before the state is read: who is gone has written it
    state = harness.State(folder / "state.json")
    name = next((key for key in state.results() if key.startswith("run/")), None)
    if name is None:
        progress = state.data.get("progress")
        log = (folder / "log").read_text()[-500:] if (folder / "log").exists() else ""
        print(f"the run is not over; last sample: {progress}" if running else f"the run ended without a result: {log}")
        return 1
    return finish(args, state, state.get(name))


def main():
    parser = harness.arguments(__doc__, "long_run_results.json")
    parser.set_defaults(budget=900)
    parser.add_argument("--seconds", type=float, default=600, help="age at which the program ends")
    parser.add_argument("--every", type=float, default=5, metavar="SECONDS", help="between two samples")
    parser.add_argument("--options", default="", help="further options of llmprof run, in one word")
    parser.add_argument("--detach-to", metavar="FOLDER", help="run in the background, with state and log in that folder")
    parser.add_argument("--collect", metavar="FOLDER", help="the result of a run that was started by --detach-to")
    args = parser.parse_args()
    if args.detach_to and args.collect:
        parser.error("--detach-to starts a run and --collect waits for one: expected one of them, found both")
    least = 3 * SAMPLES_PER_THIRD * args.every
    if args.every <= 0 or args.seconds < least:
        parser.error(f"expected at least {SAMPLES_PER_THIRD} samples in each third of the time: --seconds of {least:.0f} "
                     f"or more with --every {args.every:g}, found {args.seconds:g}")
    if args.collect:
        return collect(args)
    if args.detach_to:
        words = ["--llmprof", args.llmprof, "--python", args.python, "--seconds", str(args.seconds), "--every", str(args.every),
                 f"--options={args.options}", "--timeout", str(args.timeout), *(["--keep", args.keep] if args.keep else [])]
        return detach(args, words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is ended on the way out
    state = harness.State(args.state, args.fresh)
    state.save(machine=harness.machine(args.python))
    name = f"run/{args.seconds:g}"
    if name not in state:
        if harness.Budget(args.budget).spent(args.seconds + REPORT_SECONDS):
            print(f"{args.seconds:.0f} s and a report do not fit into --budget {args.budget:.0f}: fewer --seconds, or "
                  "--detach-to FOLDER")
            return 1
        try:
            state.put(name, record(args, lambda sample: state.save(progress=sample)))
        except OSError as error:
            print(f"the run could not be made: {error}")
            return 1
    return finish(args, state, state.get(name))


if __name__ == "__main__":
    sys.exit(main())
