#!/usr/bin/env python3
"""What `llmprof bench --compare` says of the same program measured twice, on this CPU as busy as it is.

    python3 tests/bench/compare_noise.py --binary build/release/bin/llmprof [--rounds 4] [--load 3] [--short] [--out noise.json]

Each round measures the same 32 rows (16 operations, isolated and in a loop) in a process of its own; with --short ten rows of
operations of 2 to 150 us, which the turn of another program makes a thousand times as long. --load starts so many processes
that want a core for a second and rest for one, at random, on top of what there is. Neighbouring rounds are compared: every
SLOW or FAST there is false. Then slowdowns are put in, which must be found where the machine is quiet
enough to tell: the later round with all of its times multiplied (--factors), and, measured, products with more terms than
their row says. Nothing is changed that the load could not also do, so what counts is false verdicts against found ones.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

TIMES = ("mean_us", "stddev_us", "median_us", "min_us", "q1_us", "q3_us", "max_us", "p90_us", "p99_us",
         "unwaited_us")
SHORT = [["softmax", "--rows", "16"], ["rmsnorm", "--tokens", "16", "--hidden", "1024"], ["swiglu", "--tokens", "4", "--ffn", "4096"],
         ["gemm", "--m", "16", "--n", "256", "--k", "256", "--dtype", "fp32"], ["memory", "--bytes", str(4 << 20)]]
NAMED = ["softmax", "rope", "embedding", "kv_append", "layernorm_gelu"]  # beside the quick suite
PRODUCT = ["gemm", "--m", "64", "--n", "1024", "--dtype", "fp32"]
TERMS = 1024


def bench(args, path, *options):
    done = subprocess.run([args.binary, "bench", "--device", "cpu", "--quick", "--busy-ok", "--quiet", "-o", str(path), *options],
                          capture_output=True, text=True, timeout=1200)
    if not path.exists():
        raise SystemExit(f"llmprof bench {' '.join(options)} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(path.read_text())


def come_and_go(seed):
    chance = random.Random(seed)
    while True:
        until = time.monotonic() + chance.expovariate(1)
        while time.monotonic() < until:
            pass
        time.sleep(chance.expovariate(1))


def measure(args, folder, number):
    if args.short:
        parts = [bench(args, folder / f"short{number}-{index}.json", *options) for index, options in enumerate(SHORT)]
        parts[0]["cases"] = [case for part in parts for case in part["cases"]]
        path = folder / f"round{number}.json"
        path.write_text(json.dumps(parts[0]))
        return path
    whole = bench(args, folder / f"suite{number}.json")
    whole["cases"] += bench(args, folder / f"named{number}.json", *NAMED)["cases"]
    path = folder / f"round{number}.json"
    path.write_text(json.dumps(whole))
    return path


def compare(args, before, now):
    done = subprocess.run([args.binary, "bench", "--compare", str(before), str(now), "--json"], capture_output=True,
                          text=True, timeout=300)
    return json.loads(done.stdout)["rows"]


def slower(path, factor):
    data = json.loads(path.read_text())
    for case in data["cases"]:
        for name in TIMES:
            if case.get(name) is not None:
                case[name] *= factor
        case["samples_us"] = [us * factor for us in case["samples_us"]]
    out = path.with_name(f"{path.stem}-x{factor}.json")
    out.write_text(json.dumps(data))
    return out


def with_more_terms(args, folder, factor):
    """A product of TERMS, and one of more that says TERMS."""
    before, now = folder / "terms.json", folder / f"terms-x{factor}.json"
    if not before.exists():
        bench(args, before, *PRODUCT, "--k", str(TERMS))
    data = bench(args, now, *PRODUCT, "--k", str(int(TERMS * factor)))
    for case in data["cases"]:
        case["shape"] = case["shape"].replace(f"k={int(TERMS * factor)}", f"k={TERMS}")
    now.write_text(json.dumps(data))
    return compare(args, before, now)


def counts(rows):
    return dict(sorted(collections.Counter(row["verdict"] for row in rows).items()))


def total(all_counts):
    out = collections.Counter()
    for some in all_counts:
        out.update(some)
    return dict(sorted(out.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--come-and-go", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--factors", type=float, nargs="*", default=[1.1, 1.5, 3.0])
    parser.add_argument("--folder", type=pathlib.Path, help="keep the results there")
    parser.add_argument("--out", type=pathlib.Path, help="write the counts as JSON")
    args = parser.parse_args()
    if args.come_and_go is not None:
        come_and_go(args.come_and_go)
    if not args.binary:
        parser.error("--binary is needed")
    others = [subprocess.Popen([sys.executable, __file__, "--come-and-go", str(seed)]) for seed in range(args.load)]
    try:
        look(args)
    finally:
        for other in others:
            other.kill()


def look(args):
    temporary = None if args.folder else tempfile.TemporaryDirectory()
    folder = args.folder or pathlib.Path(temporary.name)
    folder.mkdir(parents=True, exist_ok=True)

    loads, rounds, same, false = [], [], [], []
    for number in range(args.rounds):
        rounds.append(measure(args, folder, number))
        loads.append(round(os.getloadavg()[0], 1))
        if number > 0:
            rows = compare(args, rounds[-2], rounds[-1])
            same.append(counts(rows))
            false += [f"{row['verdict']} {row['name']} {row['shape']} {row['dtype']} {row['regime']}: {row['reason']}"
                      for row in rows if row["verdict"] in ("SLOW", "FAST")]
            print(f"round {number}: {same[-1]}, load {loads[-1]}", flush=True)
    found = {}
    for factor in args.factors:
        found[str(factor)] = total(counts(compare(args, a, slower(b, factor))) for a, b in zip(rounds, rounds[1:]))
        print(f"all times x {factor}: {found[str(factor)]}")
    terms = {}
    for factor in args.factors:
        terms[str(factor)] = counts(with_more_terms(args, folder, factor))
        print(f"a product of {factor} times the terms: {terms[str(factor)]}")
    result = {"cores": os.cpu_count(), "load": args.load, "short": args.short, "load_average": loads, "rounds": args.rounds, "same_against_same": total(same),
              "false_verdicts": false, "times_multiplied": found, "more_terms": terms}
    print(json.dumps(result["same_against_same"]), *false, sep="\n")
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
