#!/usr/bin/env python3
"""Runs fuzz targets, some side by side, and says for each what it did and what it found.

    python3 tests/fuzz/run.py [TARGET ...] [--seconds 60] [--jobs 2] [--bin build/fuzz/bin] [--work build/fuzz] [--result FILE]

A target starts from its corpus in tests/fuzz/corpus and from what earlier runs added under WORK/corpus; inputs that crash,
hang for 20 s or need 3 GB, and the whole output, go to WORK/findings. Exit status: 0 where nothing was found, 1 otherwise,
2 for wrong arguments or a target that is not built.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGETS = sorted(path.name[: -len("_fuzz.cc")] for path in HERE.glob("*_fuzz.cc"))


def fuzz(args, name):
    found, findings = args.work / "corpus" / name, args.work / "findings"
    found.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    before = set(findings.glob(f"{name}-*"))
    words = [str(args.bin / f"{name}_fuzz"), f"-max_total_time={args.seconds}", "-timeout=20", "-report_slow_units=20",
             "-rss_limit_mb=3000", "-print_final_stats=1", f"-artifact_prefix={findings}/{name}-"]
    if (HERE / f"{name}.dict").is_file():
        words.append(f"-dict={HERE / name}.dict")
    log = findings / f"{name}.log"
    with open(log, "w") as output:
        status = subprocess.run([*words, str(found), str(HERE / "corpus" / name)], stdout=output, stderr=subprocess.STDOUT).returncode
    text = log.read_text(errors="replace")
    figure = lambda pattern: int(match[-1]) if (match := re.findall(pattern, text)) else None
    return {"exit": status, "seconds": figure(r"in (\d+) second"), "executions": figure(r"number_of_executed_units:\s+(\d+)"),
            "new_inputs": figure(r"new_units_added:\s+(\d+)"), "edges": figure(r"cov: (\d+)"),
            "peak_rss_mb": figure(r"peak_rss_mb:\s+(\d+)"), "slowest_s": figure(r"slowest_unit_time_sec:\s+(\d+)"),
            "findings": sorted(path.name for path in set(findings.glob(f"{name}-*")) - before)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all of them where none is named")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="targets at a time")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/fuzz/bin")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/fuzz")
    parser.add_argument("--result", type=pathlib.Path, help="a JSON file of what each did")
    parser.add_argument("--list", action="store_true", help="print the programs that would run, and run nothing")
    args = parser.parse_args()
    names = [name.removesuffix("_fuzz") for name in args.targets] or TARGETS
    if unknown := sorted(set(names) - set(TARGETS)):
        parser.error(f"no fuzz target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    if args.list:
        print("\n".join(name + "_fuzz" for name in names))
        return 0
    if missing := [name for name in names if not (args.bin / f"{name}_fuzz").is_file()]:
        parser.error(f"not in {args.bin}: {', '.join(name + '_fuzz' for name in missing)}; './dev build fuzz' builds them")
    results = {}
    with concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool:
        running = {pool.submit(fuzz, args, name): name for name in names}
        for done in concurrent.futures.as_completed(running):
            name, one = running[done], done.result()
            results[name] = one
            verdict = f"found {', '.join(one['findings']) or 'an error'}" if one["exit"] or one["findings"] else "found nothing"
            print(f"{name}: {verdict}; {one['executions']} executions in {one['seconds']} s, {one['new_inputs']} new inputs, "
                  f"at most {one['peak_rss_mb']} MB; output in {args.work / 'findings' / name}.log", flush=True)
    if args.result:
        rows = [f"  {json.dumps(name)}: {json.dumps(results[name])}" for name in sorted(results)]
        args.result.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    return 1 if any(one["exit"] or one["findings"] for one in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
