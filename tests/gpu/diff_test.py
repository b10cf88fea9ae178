#!/usr/bin/env python3
"""What `llmprof diff` says of equal runs, and of runs with a change that was planted.

    python3 tests/gpu/diff_test.py --keep FOLDER [--gpus 4] [--equal 20] [--repeats 5]       records, then judges
    python3 tests/gpu/diff_test.py --keep FOLDER --program cpu --equal 20 [--busy 2]        on a CPU, equal runs alone
    python3 tests/gpu/diff_test.py --keep FOLDER --programs A.py,B.py [--gpus 2] --equal 4  equal runs of other programs, which take --steps
    python3 tests/gpu/diff_test.py --keep FOLDER --again                                    judges what is in FOLDER

Runs of tests/gpu/diff_target.py, one after the other on each GPU, the equal ones between the changed ones. With several GPUs
each has its own equal runs, and a change is compared with the equal runs of its GPU. From them:

  pairs    all pairs of equal runs: FASTER and SLOWER are false. Of each figure that is compared, by name
  threes   three equal runs against three, and
  fives    five against five, drawn a hundred times: the same with repeats
  planted  equal runs against --repeats of a change of 2, 3, 5 or 10 % of a step: a kernel that takes longer, Python code, more
           launches, waits, another batch. Right is SLOWER for the decode step's time, and the largest part that which
           was planted; of another batch, that nothing is decided and the shape named. With --modes products equal runs
           multiply zeros, the change random numbers, which draw power until the clock falls; right is SLOWER for the prompt,
           by the clock.

How many launches, waits or loops make so many % is found first, by steps with and without them in turns in one process.
"""
import concurrent.futures
import itertools
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import time

import harness

TARGET = harness.ROOT / "tests/gpu/diff_target.py"
SIZES = (0.02, 0.03, 0.05, 0.10)
# (mode, what is planted): the parts of a difference that are right.
PLANTED = {("graph", "kernel"): {"kernel-slower"}, ("eager", "host"): {"host"}, ("eager", "launches"): {"count", "launch"},
           ("eager", "waits"): {"wait"}, ("graph", "batch"): set(), ("products", "clock"): {"clock"}}
PROMPTS = {"products": ["--prompt", "4096", "--requests", "20"]}  # 65 ms each or so, and few tokens: power is capped over tenths of a second
TOKENS = {"products": 8}
BATCHES = {0.02: 5, 0.03: 6, 0.05: 8, 0.10: 16}
SPLITS = 100
QUANTILES = (50, 90, 95, 98)  # of the difference of the logarithms of equal runs
DIFFERENT = ("FASTER", "SLOWER")


def execute(words, place, timeout):
    gpu, cpus = place
    env = os.environ if gpu is None else {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)}
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=env,
                          preexec_fn=lambda: cpus and os.sched_setaffinity(0, cpus))


def target(args, mode, words=()):
    return [args.python, str(TARGET), "--mode", mode, "--steps", str(TOKENS.get(mode, args.steps)), *PROMPTS.get(mode, []), *words]


def is_clock(mode):
    return (mode, "clock") in PLANTED


def calibrated(args, place, mode):
    """ms of a step, and us that a launch, a wait and a loop more take."""
    done = execute(target(args, mode, ["--calibrate"]), place, args.timeout)
    found = harness.result_of(done.stdout)
    if found is None:
        raise RuntimeError(f"{mode}: {done.stderr.strip()[-300:]}")
    return found


def words_of(what, size, cost):
    us = 1e3 * size * cost["step_ms"]
    return {"kernel": lambda: ["--kernel-us", f"{us:.1f}"], "host": lambda: ["--host-loops", str(max(1, round(us / cost["loop_us"])))],
            "launches": lambda: ["--launches", str(max(1, round(us / cost["launch_us"])))],
            "waits": lambda: ["--waits", str(max(1, round(us / cost["wait_us"])))],
            "batch": lambda: ["--batch", str(BATCHES[size])]}[what]()


def record(args, state, place, lane, name, command):
    """One run under llmprof, kept as FOLDER/LANE/NAME; what its own timers said stays in the results."""
    key, kept = f"{lane}/{name}", pathlib.Path(args.keep) / lane / name
    if kept.exists():
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    if args.program == "cpu":
        done = execute([args.llmprof, "workload", "--device", "cpu", "--size", "small", "--new", str(args.steps), "--record", str(kept), "--json"],
                       place, args.timeout)
        own = json.loads(done.stdout) if done.returncode == 0 else {}
        own = {figure: own.get(figure) for figure in ("ttft_ms", "tpot_ms")}
    else:
        words = [args.llmprof, "run", "--no-html", "--format", "json", "--report", os.devnull, "--quiet", "-o", str(kept)]
        done = execute([*words, "--", *command], place, args.timeout)
        own = harness.result_of(done.stdout) or {}
    found = {"own": own, "seconds": round(time.monotonic() - begin, 1)}
    if done.returncode != 0:
        found["error"] = done.stderr.strip()[-300:]
    state.put(key, found)
    print(key, found, flush=True)


def order_of(args, lane, lanes):
    """(name, mode, what, size) of the runs of one GPU: changes spread among equal runs. The changes are shared out."""
    modes = ["cpu"] if args.program == "cpu" else list(args.programs) or args.modes
    equal = [(f"{mode}_base_{i:02}", mode, None, 0) for i in range(args.equal) for mode in modes]
    cells = [] if args.program == "cpu" or args.programs else [(mode, what, size) for mode, what in PLANTED if mode in modes
                                              for size in ((0,) if is_clock(mode) else args.sizes)]
    changed = [(f"{mode}_{what}_{size * 100:.0f}_{i}", mode, what, size)
               for i in range(args.repeats) for mode, what, size in cells[lane::lanes]]
    out, taken = [], 0
    for i, one in enumerate(equal):
        out.append(one)
        until = len(changed) * (i + 1) // len(equal)
        out += changed[taken:until]
        taken = until
    return out


def record_all(args, state):
    budget, places = harness.Budget(args.budget), harness.places(args.gpus)
    burners = [subprocess.Popen([sys.executable, "-c", BURNER, str(i)]) for i in range(args.busy)]

    def work(lane):
        place, name = places.get(), f"gpu{lane}"
        costs = state.get(f"{name}/costs")
        if costs is None and args.program != "cpu" and not args.programs:
            costs = {mode: {} if is_clock(mode) else calibrated(args, place, mode) for mode in args.modes}
            state.put(f"{name}/costs", costs)
        for run, mode, what, size in order_of(args, lane, args.gpus):
            if budget.spent(20):
                return
            words = ["--zeros"] * (what is None) if is_clock(mode) else words_of(what, size, costs[mode]) if what else []
            command = target(args, mode, words) if costs else None
            if args.programs:
                command = [args.python, str(args.programs[mode]), "--steps", str(args.steps)]
            record(args, state, place, name, run, command)

    try:
        with concurrent.futures.ThreadPoolExecutor(args.gpus) as workers:
            list(workers.map(work, range(args.gpus)))
    finally:
        for burner in burners:
            burner.kill()


# A neighbour that comes and goes: busy and idle for 0.05 to 2 s each.
BURNER = """
import random, sys, time
random.seed(int(sys.argv[1]))
while True:
    until = time.monotonic() + random.uniform(0.05, 2)
    while time.monotonic() < until:
        pass
    time.sleep(random.uniform(0.05, 2))
"""


def diff(args, a, b):
    done = subprocess.run([args.llmprof, "diff", ",".join(map(str, a)), ",".join(map(str, b)), "--json", "--quiet"], capture_output=True,
                          text=True, timeout=args.timeout)
    if done.returncode not in (0, 3):
        return {"error": done.stderr.strip()[-300:], "stages": []}
    return json.loads(done.stdout)


def figure_of(row):
    return f"{row['kind']} {row['metric']}"


def count(table, mode, result):
    for row in result["stages"]:
        cell = table.setdefault(f"{mode} {figure_of(row)}", {"n": 0, "different": 0, "ambiguous": 0, "apart": []})
        cell["n"] += 1
        cell["apart"].append(abs(math.log1p(row["change_frac"] or 0)))
        cell["different"] += row["verdict"] in DIFFERENT
        cell["ambiguous"] += row["verdict"] == "AMBIGUOUS"


def judge_equal(args, lane, workers):
    """Tables of pairs, threes and fives by figure, and how many diffs failed."""
    tables, failed = {"pairs": {}, "threes": {}, "fives": {}}, 0
    modes = sorted({path.name.split("_base_")[0] for path in lane.glob("*_base_*")})
    for mode in modes:
        runs = sorted(lane.glob(f"{mode}_base_*"))
        sides_of = {"pairs": [([a], [b]) for a, b in itertools.combinations(runs, 2)]}
        draw = random.Random(1)
        for name, size in (("threes", 3), ("fives", 5)):
            drawn = [draw.sample(runs, 2 * size) for _ in range(SPLITS if len(runs) >= 2 * size else 0)]
            sides_of[name] = [(some[:size], some[size:]) for some in drawn]
        for name, sides in sides_of.items():
            for result in workers.map(lambda both: diff(args, *both), sides):
                failed += "error" in result
                count(tables[name], mode, result)
    for table in tables.values():
        for cell in table.values():
            apart = sorted(cell["apart"])
            cell["apart"] = {f"p{share}": round(apart[min(len(apart) - 1, len(apart) * share // 100)], 4) for share in QUANTILES}
    return tables, failed


def figures_of(args, run):
    """What the report says of one run: the headlines, and how its CPU was."""
    done = subprocess.run([args.llmprof, "analyze", str(run), "--json", "--quiet"], capture_output=True, text=True, timeout=args.timeout)
    if done.returncode not in (0, 3):
        return {"error": done.stderr.strip()[-300:]}
    report = json.loads(done.stdout)
    headline = (report.get("latency") or {}).get("headline") or {}
    pace = max(report.get("host_pace", []), key=lambda row: row["probes"], default={})
    return {**{key: headline.get(key) for key in ("itl_ms", "itl_full_pace_ms", "itl_full_pace_n", "ttft_ms", "ttft_full_pace_ms")},
            **{key: pace.get(key) for key in ("slow_frac", "waited_frac")}}


def judge_planted(args, lane, workers):
    cells = {}
    for path in sorted(lane.glob("*_*_*_0")):
        mode, what, size, _ = path.name.split("_")
        if what != "base":
            cells[f"{mode} {what} {size}"] = (sorted(lane.glob(f"{mode}_base_*")), sorted(lane.glob(f"{mode}_{what}_{size}_*")))
    results = workers.map(lambda both: diff(args, *both), cells.values())
    return {key: verdict_of(key, result) for key, result in zip(cells, results)}


def verdict_of(key, result):
    mode, what, _ = key.split()
    rows = [row for row in result["stages"] if row["kind"] == ("prefill" if is_clock(mode) else "decode")]
    # What the program does, whatever the pace of its host was; else what was measured.
    step = next((row for metric in ("step-at-pace", "tpot", "ttft", "step") for row in rows if row["metric"] == metric), None)
    if step is None:
        return {"verdict": None, "right": False, "cause_right": False, "error": result.get("error", "no such step in it")}
    why = next((row["attribution"] for row in rows if row["attribution"]), [])
    parts = {}
    for share in why:
        if step["metric"] == "step-at-pace" and share["part"] == "pace":
            continue
        parts[share["part"]] = parts.get(share["part"], 0) + share["delta_ms"]
    first = max(parts, key=lambda part: parts[part], default=None)
    out = {"verdict": step["verdict"], "change": step["change_frac"], "ci95": step["ci95"], "first_part": first,
           "parts_ms": {part: round(ms, 4) for part, ms in parts.items()}}
    if what == "batch":
        named = any(" and " in row["shape"] or "other requests" in row["reason"] for row in rows) or len(rows) > 1
        out |= {"right": step["verdict"] == "AMBIGUOUS", "cause_right": named}
    else:
        out |= {"right": step["verdict"] == "SLOWER", "cause_right": first in PLANTED[(mode, what)]}
    return out


def judge(args, state):
    equal, planted, figures, failed = {}, {}, {}, 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
        for lane in sorted(path for path in pathlib.Path(args.keep).iterdir() if path.is_dir()):
            equal[lane.name], errors = judge_equal(args, lane, workers)
            failed += errors
            runs = sorted(lane.glob("*_base_*"))
            figures[lane.name] = dict(zip((run.name for run in runs), workers.map(lambda run: figures_of(args, run), runs)))
            planted |= {f"{lane.name} {key}": found for key, found in judge_planted(args, lane, workers).items()}
    summary = {"failed": failed, "equal": equal, "planted": planted, "figures": figures}
    for size in ("2", "3", "5", "10"):
        of_size = [found for key, found in planted.items() if key.endswith(f" {size}")]
        summary[f"planted_{size}_percent"] = {"n": len(of_size), "right": sum(one["right"] for one in of_size)}
    clock = [found for key, found in planted.items() if is_clock(key.split()[1])]
    summary["planted_clock"] = {"n": len(clock), "right": sum(one["right"] for one in clock)}
    summary["cause_right"] = [sum(one["cause_right"] for one in planted.values()), len(planted)]
    state.save(summary=summary)
    harness.write_summary(args, state)
    for lane, tables in equal.items():
        for name, table in tables.items():
            if not table:
                continue
            print(f"{lane}, {name} of equal runs")
            harness.print_table(["figure", "compared", "called different", "ambiguous", *(f"{share} of 100 apart by" for share in QUANTILES)],
                                [[figure, cell["n"], cell["different"], cell["ambiguous"], *cell["apart"].values()] for figure, cell in table.items()])
    if planted:
        harness.print_table(["planted", "verdict", "change", "right", "largest part", "right"],
                            [[key, one["verdict"], one.get("change"), one["right"], one.get("first_part"), one["cause_right"]]
                             for key, one in planted.items()])
    return summary


def total(tables, name, column):
    return sum(cell[column] for lane in tables.values() for cell in lane[name].values())


def main():
    parser = harness.arguments(__doc__, "diff_results.json")
    parser.add_argument("--program", choices=("gpu", "cpu"), default="gpu", help="cpu: the reference workload, equal runs alone")
    parser.add_argument("--programs", type=lambda text: {path.stem: path for path in map(pathlib.Path, text.split(","))}, default={})
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--modes", type=lambda text: text.split(","), default=["eager", "graph"], help="eager, graph, products, or several")
    parser.add_argument("--sizes", type=lambda text: [float(size) / 100 for size in text.split(",")], default=SIZES,
                        help="of changes, percent of a step, of 2, 3, 5 and 10")
    parser.add_argument("--equal", type=int, default=20, help="equal runs of each program and GPU")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each change")
    parser.add_argument("--steps", type=int, default=120, help="tokens of a request")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="so many busy neighbours meanwhile")
    parser.add_argument("--record-only", action="store_true")
    parser.add_argument("--again", action="store_true", help="judge what is in --keep, and run nothing")
    args = parser.parse_args()
    if not args.keep:
        parser.error("--keep FOLDER says where the recordings are to be")
    state = harness.State(args.state, args.fresh)
    if not args.again:
        state.save(machine=state.data.get("machine") or harness.machine(args.python))
        record_all(args, state)
    if args.record_only:
        return 0
    summary = judge(args, state)
    n = total(summary["equal"], "pairs", "n")
    different, ambiguous = (total(summary["equal"], "pairs", column) for column in ("different", "ambiguous"))
    print(f"pairs: {different} of {n} called different, {ambiguous} ambiguous; planted: "
          + ", ".join(f"{size} %: {row['right']} of {row['n']}" for size in (2, 3, 5, 10)
                      for row in [summary[f"planted_{size}_percent"]])
          + f", clock: {summary['planted_clock']['right']} of {summary['planted_clock']['n']}")
    five = [summary[f"planted_{size}_percent"] for size in (5, 10)]
    three = summary["planted_3_percent"]
    met = (n > 0 and different <= 0.02 * n and ambiguous <= 0.2 * n and not summary["failed"]
           and all(row["right"] == row["n"] for row in (*five, summary["planted_clock"])) and three["right"] >= 0.8 * three["n"]
           and summary["cause_right"][0] >= 0.9 * summary["cause_right"][1])
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
