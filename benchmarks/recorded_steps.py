#!/usr/bin/env python3
"""What recording a step costs, beside what CUPTI itself costs: three states of CUPTI in turns in one process.

    python3 benchmarks/recorded_steps.py [--programs a,b] [--rounds 6] [--seconds 0.3] [--state recorded_steps.json]

Processes of one program differ by some percent, so one process changes its state, many times:
  nothing    llmprof's recording is stopped. CUPTI is out of the process; where it cannot leave (graphs before
             CUDA 13, or the GPU is busy all the time) it is silent: neither callbacks nor records are on
  alone      CUPTI subscribed, CONCURRENT_KERNEL on, and nothing else: what every tool of CUPTI pays
  recorded   llmprof records in its default mode
A round is a turn of each, so many --seconds of steps; every second round goes backwards, and the first is warm-up and
not counted. Every step ends with a wait for the GPU and is timed by itself. The cost of recording is, per round, the
step of the turn "recorded" less that of "alone", in percent of the step of "nothing": points; the figure is their median over
rounds with a 95 % interval by resampling.

Hosts that are virtual machines go from one pace to another within a turn, by up to half, whatever the program does: medians
say little there. So the same is given for undisturbed steps: of each state the tenth percentile of the steps of all rounds, that
is its pace while the host was quick, with an interval by resampling rounds. A program passes with at most two points of these.
The program's thread stays on one processor.

What a report makes of the recorded steps, their time without the recorder, is held against the steps of "nothing" likewise:
off by so many percent. What recording costs is measured on the machine first.

Recording has no windows of its own here (--unrecorded-windows off): what tells the program's steps apart, some tens of nanoseconds
a launch and wait, is not part of the cost. Hardware counters are left out: their sampler starts and stops with recording,
which takes longer than a turn.
benchmarks/counters_cost.py says what they cost. One program needs about 25 seconds on an H100. benchmarks/recorded_steps_target.py is the program;
build/release/lib/libcupti.so.alone, a target of the build (cupti_alone), switches CUPTI.
"""
import bisect
import json
import os
import pathlib
import queue
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

os.environ.setdefault("LLMPROF_STORE", "off")  # nothing of this among the runs of whoever calls it

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/gpu"))
sys.path.insert(0, str(ROOT / "benchmarks"))
import harness
import pace
from recorded_steps_target import MODES, PARTS

PROGRAMS = {
    "eager_decode": "eager decode of TinyLlama-1.1B, batch 1",
    "items": "eager decode of 8 layers of 4096, batch 8, `.item()` in each layer",
    "graph_waited": "the same layers, batch 1, one CUDA graph a step, waited for",
    "small_kernels": "1,000 elementwise kernels a step, waited for once",
    "eager_prefill": "eager prefill of Llama-3.1-8B, 512 tokens",
    "small_graphs": "25 graphs of 12 small kernels a step, an eager one behind each, waited for once",
}
LIMIT_POINTS = 2.0
SHARED_LEAST = 0.9  # of a step's time by the program and by the report
ROUNDS_LEAST = 3
START_S, SWITCHES_S = 15, 2  # of a program on an H100: up to its first turn, and in a round beside the turns


# ---- one program ---------------------------------------------------------------------------------------------------

class Failed(Exception):
    pass


class Watched:
    """The target under `llmprof run`, and the lines that it prints."""

    def __init__(self, args, name):
        self.args, self.name = args, name
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="llmprof-recorded-steps-"))
        self.session = str(self.scratch / "session")
        target = [args.python, "-B", args.target, name, "--library", args.library, "--rounds", str(args.rounds),
                  "--seconds", str(args.seconds), "--seconds-most", str(args.timeout)]
        target += ["--parts"] if args.parts else []
        command = [args.llmprof, "run", "--quiet", "--no-report", "--armed", "--unrecorded-windows", "off", "--counters",
                   args.counters, "-o", self.session, "--", *target]
        self.log = open(self.scratch / "log", "w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        bufsize=1, start_new_session=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def line(self, seconds):
        """The next line; None at the end."""
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            raise Failed(f"no word of the program for {seconds:.0f} s") from None

    def control(self, what):
        done = subprocess.run([self.args.llmprof, "ctl", what, "--session", self.session], capture_output=True, text=True,
                              timeout=30)
        answer = "OK" if done.returncode == 0 else " ".join((done.stderr or done.stdout).split()) or str(done.returncode)
        self.process.stdin.write(answer + "\n")
        self.process.stdin.flush()

    def trouble(self):
        """What else is known when something went wrong."""
        try:
            status = subprocess.run([self.args.llmprof, "ctl", "status", "--session", self.session], capture_output=True,
                                    text=True, timeout=30)
            said = " ".join((status.stdout or status.stderr).split())
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
        self.log.flush()
        self.log.seek(0)
        last = [line.strip() for line in self.log.read().splitlines() if line.strip()][-4:]
        return f"it said: {' | '.join(last)[-800:] or 'nothing'}; ctl status: {said[-300:]}"

    def report(self):
        """What llmprof makes of the recording; None without one."""
        done = subprocess.run([self.args.llmprof, "analyze", "--json", "--quiet", self.session], capture_output=True, text=True,
                              timeout=300)
        return json.loads(done.stdout) if done.returncode in (0, 3) else None  # 3: answered, of what could be read

    def end(self):
        """The exit code, and the report of the recording."""
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)  # the session that was made for it above
            self.process.wait()
        self.log.close()
        try:
            report = self.report()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            report = None
            print(f"   {self.name}: no report of the recording: {error}", flush=True)
        if self.args.keep:
            kept = pathlib.Path(self.args.keep) / self.name
            shutil.rmtree(kept, ignore_errors=True)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(str(self.scratch), kept)
        else:
            shutil.rmtree(self.scratch, ignore_errors=True)
        return self.process.returncode, report


def add_corrected(turns, report):
    """To each recorded turn, what its steps take by the program's timer, less what recording cost them as the report has it:
    the program's begins some microseconds before the report's. How many steps were found: none where the report knows no
    costs, or could not run a step again."""
    known = lambda row: row["undisturbed_ms"] is not None and abs(row["undisturbed_ms"] * 1e6 - row["duration_ns"]) > 1
    steps = sorted((row["start_unix_ns"], row["duration_ns"], row["undisturbed_ms"]) for row in (report or {}).get("steps", [])
                   if row["recording"] == "recorded" and not row["warm_up"] and known(row))
    middles, found = [start + length / 2 for start, length, _ in steps], 0
    for turn in turns:
        turn["corrected_ms"] = [None] * len(turn.get("began_unix_ns", []))
        for i, (began, ms) in enumerate(zip(turn.get("began_unix_ns", []), turn["ms"])):
            at = bisect.bisect_left(middles, began)
            if at == len(steps):
                continue
            start, length, without_ms = steps[at]
            shared = min(start + length, began + ms * 1e6) - max(start, began)
            if shared >= SHARED_LEAST * max(length, ms * 1e6):  # the same step, and all of it
                turn["corrected_ms"][i] = round(ms - (length / 1e6 - without_ms), 5)
                found += 1
    return found


def run_program(args, name):
    """{turns, notes, ready, end} and, if something went wrong, error; never raises."""
    out = {"counters": args.counters, "turns": [], "notes": []}
    begin = time.monotonic()
    watched = Watched(args, name)
    try:
        while (line := watched.line(args.timeout)) is not None:
            word, _, value = line.partition(" ")
            if word == "CTL":
                watched.control(value)
            elif word == "TURN":
                out["turns"].append(json.loads(value))
            elif word in ("READY", "END"):
                out[word.lower()] = json.loads(value)
            else:
                out["notes"].append(value if word == "NOTE" else line)
                print(f"   {name}: {out['notes'][-1]}", flush=True)
        if "end" not in out:
            raise Failed("the program ended early")
    except (Failed, OSError, ValueError, subprocess.SubprocessError) as error:
        out["error"] = f"{error}; {watched.trouble()}"
    code, report = watched.end()
    out["corrected_steps"] = add_corrected(out["turns"], report)
    if code != 0 and "error" not in out:
        out["error"] = f"exit code {code} of llmprof run"
    out["seconds"] = round(time.monotonic() - begin, 1)
    return out


# ---- figures -------------------------------------------------------------------------------------------------------

def interval(values):
    """95 % confidence interval of the median, by resampling; None of fewer than four."""
    if len(values) < 4:
        return None
    generator = random.Random(1)
    medians = sorted(statistics.median(generator.choices(values, k=len(values))) for _ in range(2000))
    return [medians[50], medians[1949]]


def quick(turns):
    """The tenth percentile of the steps of all of these turns: their pace while the host was quick."""
    steps = sorted(ms for turn in turns for ms in turn)
    return steps[len(steps) // 10]


def resampled(rounds, value):
    """95 % confidence interval of value(rounds), by resampling rounds; None of fewer than four."""
    if len(rounds) < 4:
        return None
    generator = random.Random(1)
    values = sorted(value(generator.choices(rounds, k=len(rounds))) for _ in range(400))
    return [values[10], values[389]]


FULL_LEAST = 5


def at_full_pace(turns):
    """The turns with those steps alone that ran at the full pace of the CPU, by the probes of the program beside each; whole
    where they are too few, or there are no probes."""
    took = sorted(ns for turn in turns for ns in turn.get("pace_ns", []))
    best = took[len(took) // 20] if took else None
    out = []
    for turn in turns:
        chosen = [i for i, ns in enumerate(turn.get("pace_ns", [])) if pace.full(ns, best)]
        if len(chosen) >= FULL_LEAST:
            pick = lambda values: [values[i] for i in chosen] if len(values) == len(turn["pace_ns"]) else values
            turn = {**turn, **{key: pick(turn[key]) for key in ("ms", "began_unix_ns", "corrected_ms") if key in turn}}
        out.append(turn)
    return out


def rounds_of(turns):
    """Complete rounds, without the warm-up: {mode: turn} each."""
    found = {}
    for turn in at_full_pace(turns):
        if turn["round"] > 0 and turn["ms"]:
            found.setdefault(turn["round"], {})[turn["mode"]] = turn
    modes = modes_of(turns)
    return [found[number] for number in sorted(found) if len(found[number]) == len(modes)]


def modes_of(turns):
    seen = {turn["mode"] for turn in turns}
    return PARTS if seen - set(MODES) else MODES


def points(rounds, mode, floor, middle):
    """Per round, `mode` less `floor` in percent of "nothing"; `middle` makes one time of a turn's."""
    values = [100 * (middle(one[mode]["ms"]) - middle(one[floor]["ms"])) / middle(one["nothing"]["ms"]) for one in rounds]
    return {"median": statistics.median(values), "ci95": interval(values)}


def undisturbed(rounds, mode, floor):
    """`mode` less `floor` in percent of "nothing", of steps that nothing disturbed."""
    def value(chosen):
        ms = {which: quick([one[which]["ms"] for one in chosen]) for which in (mode, floor, "nothing")}
        return 100 * (ms[mode] - ms[floor]) / ms["nothing"]

    return {"median": value(rounds), "ci95": resampled(rounds, value)}


def corrected(rounds):
    """The recorded steps as the report corrects them, against "nothing": percent, likewise by quick steps and by medians."""
    found = lambda turn: {**turn, "corrected_ms": [ms for ms in turn.get("corrected_ms", []) if ms is not None]}
    rounds = [{**one, "recorded": found(one["recorded"])} for one in rounds]
    rounds = [one for one in rounds if len(one["recorded"]["corrected_ms"]) >= len(one["recorded"]["ms"]) / 2]
    if len(rounds) < ROUNDS_LEAST:
        return None

    def percent(middle):
        def value(chosen):
            return 100 * (middle([one["recorded"]["corrected_ms"] for one in chosen])
                          / middle([one["nothing"]["ms"] for one in chosen]) - 1)
        return {"median": value(rounds), "ci95": resampled(rounds, value)}

    medians = lambda turns: statistics.median(statistics.median(turn) for turn in turns)
    return {"steps": sum(len(one["recorded"]["corrected_ms"]) for one in rounds),
            "quick_ms": quick([one["recorded"]["corrected_ms"] for one in rounds]), "undisturbed": percent(quick),
            "medians": percent(medians)}


def is_right(found):
    """Of what corrected() gives."""
    return found is not None and abs(found["undisturbed"]["median"]) <= LIMIT_POINTS


def summarize(name, result):
    rounds = rounds_of(result["turns"])
    modes = modes_of(result["turns"])
    out = {"title": PROGRAMS.get(name, name), "counters": result.get("counters"), "rounds": len(rounds)}
    if result.get("error"):
        out["error"] = result["error"]
    if result.get("notes"):
        out["notes"] = len(result["notes"])
    if len(rounds) < ROUNDS_LEAST:
        return out
    out["step_ms"] = {mode: statistics.median(statistics.median(one[mode]["ms"]) for one in rounds) for mode in modes}
    out["steps"] = {mode: sum(len(one[mode]["ms"]) for one in rounds) for mode in modes}
    # CUPTI's states, and in how many turns.
    out["cupti"] = {mode: {} for mode in modes}
    for one in rounds:
        for mode in modes:
            seen = out["cupti"][mode]
            seen[one[mode]["cupti"]] = seen.get(one[mode]["cupti"], 0) + 1
    out["points"] = {"alone": points(rounds, "alone", "nothing", statistics.median),
                     "recorded": points(rounds, "recorded", "nothing", statistics.median),
                     "recorded_over_alone": points(rounds, "recorded", "alone", statistics.median)}
    out["undisturbed_ms"] = {mode: quick([one[mode]["ms"] for one in rounds]) for mode in modes}
    found = out["points"]["undisturbed"] = undisturbed(rounds, "recorded", "alone")
    if modes is PARTS:
        out["parts"] = {mode: undisturbed(rounds, mode, before) for before, mode in zip(PARTS, PARTS[1:])}
    out["corrected"] = corrected(rounds)
    out["limit_points"] = LIMIT_POINTS
    out["within_limit"] = found["median"] <= LIMIT_POINTS
    # Whether the interval leaves a doubt about that.
    out["certain"] = found["ci95"] is not None and (found["ci95"][1] <= LIMIT_POINTS or found["ci95"][0] > LIMIT_POINTS)
    return out


def with_interval(found):
    ci = found["ci95"]
    return f"{found['median']:+.2f}" + (f" ({ci[0]:+.2f} .. {ci[1]:+.2f})" if ci else "")


def show(summary):
    rows = []
    for name, out in summary.items():
        if "points" not in out:
            rows.append([name, *([None] * 9), f"{out['rounds']} rounds are too few", None])
            continue
        found = out["points"]
        rows.append([name, *(out["undisturbed_ms"][mode] for mode in MODES), with_interval(found["undisturbed"]),
                     *(out["step_ms"][mode] for mode in MODES), with_interval(found["alone"]),
                     with_interval(found["recorded_over_alone"]),
                     ("yes" if out["within_limit"] else "NO") + ("" if out["certain"] else ", uncertain"),
                     "; ".join(f"{mode}: {state} {count}x" for mode in ("nothing", "alone")
                               for state, count in out["cupti"][mode].items())])
    harness.print_table(["program", "nothing, quick ms", "alone", "recorded", "recorded - alone, points", "nothing, median ms",
                         "alone", "recorded", "alone - nothing, points", "recorded - alone", f"within {LIMIT_POINTS:g}", "CUPTI"], rows)
    rows = [[name, out["undisturbed_ms"]["nothing"], out["corrected"]["quick_ms"], with_interval(out["corrected"]["undisturbed"]),
             with_interval(out["corrected"]["medians"]), f"{out['corrected']['steps']} of {out['steps']['recorded']}",
             "yes" if is_right(out["corrected"]) else "NO"]
            for name, out in summary.items() if out.get("corrected")]
    if rows:
        harness.print_table(["program", "nothing, quick ms", "recorded, corrected", "off, percent", "by medians",
                             "steps", f"within {LIMIT_POINTS:g}"], rows)
    for name, out in summary.items():
        if "points" in out and not out.get("corrected"):
            print(f"{name}: the report gave too few steps without the recorder to hold against the program's own")
        if "parts" in out:
            print(f"{name}, each beyond the one before it: "
                  + ", ".join(f"{mode} {with_interval(part)}" for mode, part in out["parts"].items()))
        if "error" in out:
            print(f"{name}: {out['error']}")


def arguments():
    parser = harness.arguments(__doc__, "recorded_steps.json")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="of " + ",".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=6, help="beside the one that warms up")
    parser.add_argument("--seconds", type=float, default=0.3, help="of steps in one turn")
    parser.add_argument("--counters", default="off", choices=("auto", "on", "off"),
                        help="of llmprof run; a turn is over before the sampler has started (benchmarks/counters_cost.py)")
    parser.add_argument("--parts", action="store_true",
                        help="turns for what the recorder switches on beside kernel records as well, one after the other: records "
                             "of copies, callbacks of launches, callbacks of all calls that it wants; not of graphs")
    parser.add_argument("--no-costs", dest="costs", action="store_false",
                        help="do not measure what recording costs on this machine first: `llmprof peaks` has")
    parser.add_argument("--library", metavar="FILE", help="libcupti.so.alone (default: in lib beside llmprof's folder)")
    parser.add_argument("--target", default=str(ROOT / "benchmarks/recorded_steps_target.py"), help="the program (for tests)")
    return parser


def checked(parser, words=None):
    args = parser.parse_args(words)
    args.names = [name for name in args.programs.split(",") if name]
    unknown = [name for name in args.names if name not in PROGRAMS]
    if unknown:
        parser.error(f"no program {', '.join(unknown)}: expected of {', '.join(PROGRAMS)}")
    if args.rounds < ROUNDS_LEAST:
        parser.error(f"--rounds {args.rounds}: expected {ROUNDS_LEAST} at least")
    if args.seconds <= 0:
        parser.error(f"--seconds {args.seconds:g}: expected more than 0")
    if args.library is None:
        args.library = str(pathlib.Path(args.llmprof).resolve().parent / "../lib/libcupti.so.alone")
    if not os.access(args.llmprof, os.X_OK):
        parser.error(f"no program {args.llmprof}: cmake --build build/release --target llmprof cupti_alone")
    if not os.path.exists(args.library):
        parser.error(f"no library {args.library}: cmake --build build/release --target cupti_alone; on another machine, "
                     "copy it as well")
    args.library = os.path.abspath(args.library)
    return args


def is_done(result, args):
    return (result is not None and "error" not in result and result["counters"] == args.counters
            and ("corrected_steps" in result or not args.costs)
            and len(rounds_of(result["turns"])) >= ROUNDS_LEAST)


def main():
    args = checked(arguments())
    state = harness.State(args.state, args.fresh)
    budget = harness.Budget(args.budget)
    state.save(machine=harness.machine(args.python))
    if args.costs:
        done = subprocess.run([args.llmprof, "peaks", "--recorder-only", "--quick", "--quiet", "--json", "--device", "cuda:0"],
                              capture_output=True, text=True, timeout=args.timeout)
        found = json.loads(done.stdout) if done.returncode == 0 else {}
        state.put("costs", found.get("recorder") or done.stderr[-300:])
        if not found.get("recorder"):
            print(f"what recording costs is not known: {done.stderr.strip()[-300:]}")
    for name in args.names:
        before = state.get(name)
        if is_done(before, args):
            print(f"{name}: measured before")
            continue
        needs = START_S + (args.rounds + 1) * (3 * args.seconds + SWITCHES_S) * (2 if args.parts else 1)
        if budget.spent(needs):
            print(f"{name}: not started, {needs:.0f} s are more than is left of --budget")
            continue
        result = run_program(args, name)
        state.put(name, result)
        print(f"{name}: {len(rounds_of(result['turns']))} rounds in {result['seconds']:.0f} s", flush=True)
    summary = {name: summarize(name, result) for name, result in state.results().items() if name != "costs"}
    state.save(summary=summary)
    harness.write_summary(args, state)
    show(summary)
    missing = [name for name in args.names if "points" not in summary.get(name, {})]
    if missing:
        print(f"not measured: {', '.join(missing)}")
    bad = [name for name in args.names if name in summary and ("error" in summary[name] or not summary[name].get("within_limit")
                                                               or (args.costs and not is_right(summary[name].get("corrected"))))]
    return 1 if missing or bad else 0


if __name__ == "__main__":
    sys.exit(main())
