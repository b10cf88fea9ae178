#!/usr/bin/env python3
"""What a client waited for, as llmprof splits it by what the GPU did, against the log of the server.

    python3 tests/gpu/client_test.py [--requests 40] [--state client.json] [--keep FOLDER] [--again]

The server (client_target.py) runs under `llmprof run`; a client in this process sends requests at random times, so that the
server is busy about 60 % of the time and many wait behind others, and writes what it measured as AIPerf's profile_export.jsonl.
`llmprof analyze SESSION profile_export.jsonl` must then say
  runs      of TTFT, TPOT, ITL and latency what the client's own numbers give
  sums      parts that add up to each TTFT and each latency - TTFT, to the nanosecond, and every request split
  parts     queue, prefill and decode as the log has them: what was under way when the request was sent, and what began since.
            Totals within 5 %, each request within 5 % and 2 ms. The log's steps hold what little the GPU is idle in them
  waiting   all three without the request's own steps against the steps of others between sending it and the server's taking
            it from its queue, likewise
  prefill   of requests with no other's prefill in their wait: the median within 5 % of the log's, end less begin
  gap       the time in which the log has no step, within 5 % and 0.2 ms a request; with a planted pause of 3 ms before each
            prefill that is the pauses in which requests waited and what the run without them has

A request sent within 0.3 ms of a step's begin is left out of `parts`: whether that step is `queue` nobody can say so exactly.

--stand-in: the server has a model that sleeps and is not recorded; only `runs`, and that its log and the client agree.
--again runs nothing: this llmprof analyses the recordings in --keep once more.
"""
import csv
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import harness
from client_target import PROMPTS, TOKENS

CASES = {"plain": 0.0, "pause": 3.0}  # ms
TOLERANCE, EACH_NS = 0.05, 2_000_000
GAP_NS = 200_000  # of the gap of a request: about two changes from one request to another, each right to 0.1 ms
NEAR_NS = 300_000
BUSY = 0.6
PARTS = ("queue", "prefill", "mixed", "decode", "other", "host", "gap")


def ask(port, at, request, rows):
    time.sleep(max(0.0, at - time.monotonic()))
    start, came = time.time_ns(), []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as lines:
            for _ in lines:
                came.append(time.time_ns())
    rows[request["id"]] = (start, came)


def send_all(args, port, prefill_s, token_s, pause_ms):
    """AIPerf's records of the requests, those that were answered in full."""
    made, rows = random.Random(args.seed), {}
    service_s = prefill_s + (sum(TOKENS) / 2 - 1) * token_s + pause_ms / 1e3
    at, threads, requests = time.monotonic() + 0.2, [], []
    for i in range(args.requests):
        requests.append({"id": i, "prompt": made.choice(PROMPTS), "new": made.randint(*TOKENS)})
        at += made.expovariate(1.0) * service_s / BUSY
        threads.append(threading.Thread(target=ask, args=(port, at, requests[-1], rows), daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [aiperf(request, *rows[request["id"]]) for request in requests if len(rows.get(request["id"], ((), ()))[1]) == request["new"]]


def aiperf(request, start, came):
    times = {"time_to_first_token": came[0] - start, "request_latency": came[-1] - start}
    metrics = {name: {"value": ns / 1e6, "unit": "ms"} for name, ns in times.items()}
    metrics["inter_chunk_latency"] = {"value": [(b - a) / 1e6 for a, b in zip(came, came[1:])], "unit": "ms"}
    metrics["input_sequence_length"] = {"value": request["prompt"], "unit": "tokens"}
    metrics["output_sequence_length"] = {"value": len(came), "unit": "tokens"}
    return {"metadata": {"session_num": request["id"], "request_start_ns": start, "request_end_ns": came[-1],
                         "benchmark_phase": "profiling"}, "metrics": metrics, "error": None}


def record(args, folder, pause_ms):
    """Server and client, into the folder; what went wrong, or None."""
    command = [args.python, str(pathlib.Path(__file__).with_name("client_target.py")), "--requests", str(args.requests),
               "--pause-ms", str(pause_ms), "--log", str(folder / "truth.jsonl")]
    if args.stand_in:
        command.append("--stand-in")
    else:
        command = [args.llmprof, "run", "--unrecorded-windows", "off", "--no-adapt", "--no-html", "--no-report", "--quiet",
                   "-o", str(folder / "session"), "--", *command]
    with open(folder / "stderr.txt", "w", encoding="utf-8") as err:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True, start_new_session=True)
        # It holds the client too: its connections end with the server.
        watchdog = threading.Timer(args.timeout, os.killpg, (server.pid, signal.SIGKILL))
        watchdog.start()
        try:
            ready = next((line.split() for line in server.stdout if line.startswith("READY ")), None)
            records = send_all(args, int(ready[1]), float(ready[2]), float(ready[3]), pause_ms) if ready else []
            server.stdout.read()
            code = server.wait()
        finally:
            watchdog.cancel()
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)  # the session that was made for it above
    if code != 0 or len(records) != args.requests:
        last = ((folder / "stderr.txt").read_text(encoding="utf-8").strip().splitlines() or [""])[-1]
        return f"exit code {code}, {len(records)} of {args.requests} requests answered: {last[:300]}"
    (folder / "profile_export.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    return None


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Run:
    """What the client and the server's log say of a run, and the checks of what llmprof says."""

    def __init__(self, folder):
        self.requests, self.log = [], sorted(lines_of(folder / "truth.jsonl"), key=lambda row: row["id"])
        for one in lines_of(folder / "profile_export.jsonl"):  # in the order of their ids
            sent, metrics = one["metadata"]["request_start_ns"], one["metrics"]
            ttft, latency = (round(1e6 * metrics[name]["value"]) for name in ("time_to_first_token", "request_latency"))
            self.requests.append({"sent": sent, "first": sent + ttft, "end": sent + latency, "ttft": ttft, "latency": latency,
                                  "itl": [round(1e6 * value) for value in metrics["inter_chunk_latency"]["value"]],
                                  "tokens": metrics["output_sequence_length"]["value"], "prompt": metrics["input_sequence_length"]["value"]})
        self.steps = [("decode" if i else "prefill", begun, sent) for row in self.log
                      for i, (begun, sent) in enumerate(zip(row["begun"], row["sent"]))]
        self.served = [(row["begun"][0], row["sent"][-1]) for row in self.log]
        self.pauses = [(row["taken"], row["taken"] + round(1e6 * row["host_ms"])) for row in self.log]
        self.problems, self.table = [], []

    def expect(self, holds, text):
        if not holds and len(self.problems) < 20:
            self.problems.append(text)

    def compare(self, what, got, want, more_ns=0):
        """Totals, and each by itself: ns of requests."""
        total, wanted = sum(got), sum(want)
        worst = max((a - b for a, b in zip(got, want)), key=abs, default=0)
        over = [a - b for a, b in zip(got, want) if abs(a - b) > TOLERANCE * b + EACH_NS]
        holds = abs(total - wanted) <= TOLERANCE * wanted + more_ns and not over
        self.table.append([what, len(got), total / 1e6, wanted / 1e6, total / wanted - 1 if wanted else None, worst / 1e6, "ok" if holds else "WRONG"])
        self.expect(holds, f"{what}: {total / 1e6:.3f} ms, by the log {wanted / 1e6:.3f}; {len(over)} of {len(got)} too far off, "
                           f"worst {worst / 1e6:.3f} ms")

    def by_log(self, start, end, queue=True):
        out = dict.fromkeys(("queue", "prefill", "decode"), 0)
        for kind, begun, sent in self.steps:
            out["queue" if queue and begun < start else kind] += within((begun, sent), start, end)
        return out | {"gap": end - start - sum(within(span, start, end) for span in self.served)}

    def check_client(self):
        """The log and the client, without llmprof: one clock, and a token is sent before it comes."""
        for one, row in zip(self.requests, self.log):
            self.expect(len(row["sent"]) == one["tokens"], f"request {row['id']}: {one['tokens']} tokens came, {len(row['sent'])} were sent")
            in_order = one["sent"] <= row["received"] <= row["taken"] <= row["begun"][0] <= row["sent"][0] <= one["first"]
            self.expect(in_order and row["sent"][-1] <= one["end"], f"request {row['id']}: times of server and client are not in order")
        busy = sum(row["sent"][-1] - row["taken"] for row in self.log)
        queued = [row["taken"] - one["sent"] for one, row in zip(self.requests, self.log)]
        return {"busy_frac": busy / (max(row["sent"][-1] for row in self.log) - self.requests[0]["sent"]),
                "queued": sum(ns > 5_000_000 for ns in queued), "queued_ms": sum(queued) / 1e6}

    def check_runs(self, report):
        [row] = report["client_runs"]
        many = [one for one in self.requests if one["tokens"] > 1]
        for name, values in {"ttft": [one["ttft"] for one in self.requests], "e2e": [one["latency"] for one in self.requests],
                             "tpot": [(one["latency"] - one["ttft"]) / (one["tokens"] - 1) for one in many],
                             "itl": [ns for one in self.requests for ns in one["itl"]]}.items():
            for key, ns in ((f"{name}_median_ms", statistics.median(values)),
                            (f"{name}_p99_ms", statistics.quantiles(values, n=100, method="inclusive")[98])):
                self.expect(abs(row[key] - ns / 1e6) <= 1e-6, f"client_runs: {key} {row[key]}, by the client {ns / 1e6}")
        for key, count in (("completed", len(self.requests)), ("failed", 0), ("input_tokens", sum(one["prompt"] for one in self.requests)),
                           ("output_tokens", sum(one["tokens"] for one in self.requests))):
            self.expect(row[key] == count, f"client_runs: {key} {row[key]}, by the client {count}")
        return {key: row[key] for key in ("ttft_median_ms", "ttft_p99_ms", "tpot_median_ms", "tpot_p99_ms")}

    def check_clock(self, clock):
        count = len(self.requests)
        alone = sum(not any(other is not one and other["sent"] < one["first"] and other["end"] > one["sent"] for other in self.requests)
                    for one in self.requests)
        want = {"timed": count, "waits": count, "outputs": count, "alone": alone, "outside": 0, "not_recorded": 0, "failed": 0, "apart_ms": None}
        self.expect(all(clock[key] == value for key, value in want.items()), f"client_clocks: {clock}, expected {want}")

    def check_splits(self, report, splits):
        self.expect([int(row["request"]) for row in splits] == list(range(len(self.requests))), f"{len(splits)} rows of client_splits")
        waits, outs = ([{part: int(row.get(f"{key}_{part}_ns") or 0) for part in PARTS} for row in splits] for key in ("wait", "out"))
        for i, (one, wait, out) in enumerate(zip(self.requests, waits, outs)):
            self.expect(sum(wait.values()) == one["ttft"] and min(wait.values()) >= 0, f"request {i}: parts {wait} of TTFT {one['ttft']}")
            behind = one["latency"] - one["ttft"]
            self.expect(sum(out.values()) == behind and min(out.values()) >= 0, f"request {i}: parts {out} of {behind} behind TTFT")
        for row in report["client_stages"]:
            rows, per = (waits, [1] * len(waits)) if row["figure"] == "ttft" else (outs, [one["tokens"] - 1 for one in self.requests])
            mean = statistics.fmean((sum(parts.values()) if row["part"] == "all" else parts[row["part"]]) / count for parts, count in zip(rows, per))
            self.expect(abs(row["mean_ms"] - mean / 1e6) <= 1e-6, f"client_stages: {row}, by its requests {mean / 1e6}")
        return waits, outs

    def check_parts(self, waits, outs):
        logged = [self.by_log(one["sent"], one["first"]) for one in self.requests]
        sure = [i for i, one in enumerate(self.requests) if all(abs(begun - one["sent"]) > NEAR_NS for _, begun, _ in self.steps)]
        for part in ("queue", "prefill", "decode"):
            self.compare(f"ttft {part}", [waits[i][part] for i in sure], [logged[i][part] for i in sure])
        own = [row["sent"][0] - row["begun"][0] for row in self.log]
        of_own = [sum(within(step, one["sent"], one["first"]) for step in zip(row["begun"], row["sent"])) for one, row in zip(self.requests, self.log)]
        self.compare("ttft waiting for others", [wait["queue"] + wait["prefill"] + wait["decode"] - ns for wait, ns in zip(waits, of_own)],
                     [sum(within(step, one["sent"], row["taken"]) for _, *step in self.steps) for one, row in zip(self.requests, self.log)])
        single = [i for i in sure if abs(logged[i]["prefill"] - own[i]) < NEAR_NS]
        self.expect(len(single) >= 3, f"{len(single)} requests with no other prefill while they waited: too few for a median")
        if single:
            self.compare("own prefill, median", [statistics.median(waits[i]["prefill"] for i in single)], [statistics.median(own[i] for i in single)])
        self.compare("ttft gap", [wait["gap"] for wait in waits], [parts["gap"] for parts in logged], GAP_NS * len(waits))
        since = [self.by_log(one["first"], one["end"], queue=False) for one in self.requests]
        self.compare("tpot decode", [out["decode"] for out in outs], [parts["decode"] for parts in since])
        unnamed = sum(parts["mixed"] + parts["other"] for parts in waits + outs)
        self.expect(unnamed <= 0.01 * sum(one["latency"] for one in self.requests), f"{unnamed / 1e6} ms are mixed or other")
        paused = sum(within(pause, one["sent"], one["first"]) for one in self.requests for pause in self.pauses)
        return {"sure": len(sure), "gap_ms": sum(wait["gap"] for wait in waits) / 1e6, "pauses_ms": paused / 1e6,
                "host_ms": sum(wait["host"] for wait in waits) / 1e6, "all_ms": sum(one["ttft"] for one in self.requests) / 1e6}


def within(span, start, end):
    return max(0, min(span[1], end) - max(span[0], start))


def judge(args, folder):
    run, recordings = Run(folder), [] if args.stand_in else [str(folder / "session")]
    recordings.append(str(folder / "profile_export.jsonl"))
    words = [args.llmprof, "analyze", *recordings, "--json", "--no-store", "--quiet"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=args.timeout)
    if done.returncode != 0:
        return {"error": f"analyze: exit code {done.returncode}: {done.stderr.strip()[-300:]}"}
    report, found = json.loads(done.stdout), run.check_client()
    found |= run.check_runs(report)
    if not args.stand_in:
        [clock] = report["client_clocks"]
        run.check_clock(clock)
        found["clock"] = clock
        with tempfile.TemporaryDirectory(prefix="llmprof-gpu-test-") as tables:
            subprocess.run([args.llmprof, "export", *recordings, "--to", "csv", "-o", tables, "--quiet"], check=True, timeout=args.timeout)
            path = pathlib.Path(tables) / "client_splits.csv"
            splits = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.exists() else []
        if len(splits) == clock["waits"] == clock["outputs"] == len(run.requests):
            found |= run.check_parts(*run.check_splits(report, splits))
    return {**found, "table": run.table, "problems": run.problems}


def run_case(args, name):
    with tempfile.TemporaryDirectory(prefix="llmprof-gpu-test-") as scratch:
        folder = pathlib.Path(args.keep or scratch) / name
        if not args.again:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        try:
            error = None if args.again else record(args, folder, CASES[name])
            return {"error": error} if error else judge(args, folder)
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            return {"error": f"{type(error).__name__}: {error}"}


def problems_of(args, name, found):
    if "error" in found:
        return [f"{name}: {found['error']}"]
    problems = [f"{name}: {problem}" for problem in found["problems"]]
    plain = harness.State(args.state).get("plain") or {}
    if name == "pause" and "gap_ms" in found and "gap_ms" in plain:
        planted = found["pauses_ms"] + plain["gap_ms"]
        if abs(found["gap_ms"] - planted) > TOLERANCE * planted + GAP_NS / 1e6 * found["clock"]["waits"]:
            problems.append(f"{name}: a gap of {found['gap_ms']:.3f} ms; pauses and the gap without them are {planted:.3f}")
    return problems


def main():
    parser = harness.arguments(__doc__, "client_results.json")
    parser.set_defaults(timeout=240)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--seed", type=int, default=9, help="of the requests and their times")
    parser.add_argument("--stand-in", action="store_true", help="without a GPU")
    parser.add_argument("--again", action="store_true", help="analyse the recordings in --keep once more, and run nothing")
    args = parser.parse_args()
    if args.again and not args.keep:
        parser.error("--again: --keep FOLDER says where the recordings are")
    args.fresh |= args.again
    code = harness.run_cases(args, CASES, lambda name: run_case(args, name), lambda name, found: problems_of(args, name, found), 120)
    rows = [[name, *row] for name, found in harness.State(args.state).results().items() for row in found.get("table", [])]
    harness.print_table(["run", "part", "requests", "llmprof ms", "log ms", "difference", "worst request ms", ""], rows)
    return code


if __name__ == "__main__":
    sys.exit(main())
