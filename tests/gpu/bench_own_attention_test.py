#!/usr/bin/env python3
"""Own attention kernels against cuDNN's, each alone: the same cases once with cuDNN hidden, once with the compiler hidden.

    python3 tests/gpu/bench_own_attention_test.py [--only prefill,decode,paged] [--state bench_own_attention.json]

A share is cuDNN's time over ours: 1 is as fast, more is faster. Decode is bound by memory and must reach 0.95; a prompt is
bound by the matrix units, which the own kernel drives by mma.sync, and must reach 0.5. One sequence
alone takes two short kernels here and one there: 0.7. All must agree with the reference. Where cuDNN refuses a case (caches of pages before 9.5), that is said and is no failure.
"""
import json
import sys

import bench_torch_test
import harness

# Of cuDNN's speed, by group.
GOALS = {"prefill": 0.5, "decode": 0.95, "paged": 0.95}
SHORT_GOALS = {"decode-1x8192": 0.7, "paged-1x8192": 0.7}
NOWHERE = "/nowhere/none.so"


def options_of(name):
    return next(options for case, _, _, options, _ in bench_torch_test.cases() if case == name)


def cases():
    """Name, group, options of llmprof bench."""
    for name, *_ in bench_torch_test.PREFILL:
        yield name, "prefill", options_of(name)
    for size, heads in ((64, 64), (256, 16)):
        yield (f"prefill-{size}", "prefill",
               ["attention", "--variant", "causal", "--batch", "1", "--heads", str(heads), "--kv-heads", str(heads // 4),
                "--head-dim", str(size), "--prompt", "4096", "--dtype", "bf16"])
    yield ("prefill-full-fp16", "prefill",
           ["attention", "--variant", "full", "--batch", "2", "--heads", "32", "--kv-heads", "32", "--head-dim", "128",
            "--prompt", "2048", "--dtype", "fp16"])
    for name, *_ in bench_torch_test.DECODE:
        yield name, "decode", options_of(name)
        yield name.replace("decode", "paged"), "paged", [*options_of(name), "--variant", "paged"]


def time_of(args, options, environment):
    outcome = harness.execute([args.llmprof, "bench", *options, "--device", "cuda:0", "--regime", "sustained",
                               "--min-time", str(args.seconds), "--busy-ok", "--json"], args.timeout, environment)
    try:
        row = next(row for row in json.loads(outcome.stdout)["cases"] if row["regime"] == "sustained")
    except (ValueError, KeyError, StopIteration):
        return {"error": outcome.failure() or outcome.stdout[:200]}
    if row.get("median_us") is None:
        return {"error": row.get("note") or row["status"]}
    return {"us": row["median_us"], "backend": row["backend"], "check": row["check_status"], "tflops": row["tflops"],
            "gbs": row["gbs"], "sm_clock_mhz": row["sm_clock_mhz"]}


def problem_of(name, group, result):
    goal = SHORT_GOALS.get(name, GOALS[group])
    own, library = result["own"], result["cudnn"]
    for who, row in (("own", own), ("cuDNN", library)):
        if "us" in row and (row["check"] != "passed" or who.lower() not in row["backend"].lower()):
            return f"{who}: {row['backend']}, check {row['check']}"
    if "us" not in own:
        return "own: " + own["error"]
    if "us" not in library:
        return None
    return None if result["share"] >= goal else f"{result['share']:.3f} of cuDNN, goal {goal}"


def main():
    parser = harness.arguments(__doc__, "bench_own_attention.json")
    parser.add_argument("--only", default="", help="groups: " + ",".join(GOALS))
    parser.add_argument("--seconds", type=float, default=0.3, help="of measuring for each time")
    args = parser.parse_args()
    groups = [group for group in args.only.split(",") if group] or list(GOALS)
    if set(groups) - set(GOALS):
        parser.error("no such group")
    budget, state = harness.Budget(args.budget), harness.State(args.state, args.fresh)
    wanted = [case for case in cases() if case[1] in groups]
    for name, group, options in wanted:
        if state.get(name) is None and not budget.spent(20):
            own = time_of(args, options, {"LLMPROF_CUDNN": NOWHERE})
            library = time_of(args, options, {"LLMPROF_NVRTC": NOWHERE})
            share = library["us"] / own["us"] if "us" in own and "us" in library else None
            state.put(name, {"own": own, "cudnn": library, "share": share})
        result = state.get(name)
        if result is not None:
            problem = problem_of(name, group, result)
            text = f"{'FAIL' if problem else 'ok  '} {name:22} "
            text += f"{result['share']:.3f} of cuDNN" if result["share"] else json.dumps(result["cudnn"])[:120]
            print(text + f"  own {result['own'].get('us', 0):.2f} us [{result['own'].get('backend')}]" +
                  (f"  {problem}" if problem else ""), flush=True)
    results = state.results()
    missing = [name for name, *_ in wanted if name not in results]
    failures = [name for name, group, _ in wanted if name in results and problem_of(name, group, results[name])]
    state.save(machine=harness.machine(args.python), summary={name: results[name] for name, *_ in wanted if name in results},
               missing=missing, failures=failures, passed=not missing and not failures)
    harness.write_summary(args, state)
    print(json.dumps({"cases": len(wanted), "failures": failures, "missing": missing}))
    return 0 if not missing and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
