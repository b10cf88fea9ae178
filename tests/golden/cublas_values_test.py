#!/usr/bin/env python3
"""Every product of real logs of cuBLAS and cuBLASLt, and of logs made for a recording, against the same text read here.

The logs are read once more with regular expressions, whole records by their text, and counted in exact integers. What
`llmprof export` has of each product, and the calls and FLOPs of the report, must be the same; a product that is in both logs
counts once. Beside a recording of torch.profiler, logs are written here from its operators, in the syntax of the real ones:
the time of every product must then be that of the kernel that its operator launched, as the recording's JSON has it.
"""

import argparse
import collections
import csv
import gzip
import json
import pathlib
import re
import subprocess
import sys
import tempfile

INPUTS = pathlib.Path(__file__).resolve().parent / "inputs"
LT = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\]\[cublasLt\]\[(\d+)\]\[Trace\]\[(cublasLt\w*Matmul)\] A=0X([0-9A-F]+) "
                r"Adesc=\[type=(\w+) rows=(\d+) cols=(\d+) ld=\d+\] B=0X([0-9A-F]+) Bdesc=\[type=(\w+) rows=(\d+) cols=(\d+) ld=\d+\]"
                r".* D=0X([0-9A-F]+) Ddesc=\[type=(\w+) rows=(\d+) cols=(\d+) ld=\d+( batchCount=(\d+) strideOffset=\d+)?\] "
                r"computeDesc=\[computeType=(\w+) (.*?)\] algo=\[(.*?)\] .* stream=0X([0-9A-F]+)$", re.M)
TYPES = {"R_32F": "fp32", "R_16BF": "bf16", "CUDA_R_16BF(14)": "bf16"}

problems = []


def expect(condition, text):
    if not condition and len(problems) < 20:
        problems.append(text)
    return condition


def of_cublas(text):
    """The products of whole records: those that a line with the state of the handle ends."""
    out = []
    for record in re.split(r"^(?=I! cuBLAS )", text, flags=re.M):
        head = re.match(r"I! cuBLAS \(v[\d.]+\) function \w+ cublas(\w*gemm\w*|GemmEx)\(", record, re.I)
        end = re.search(r"^i!Process=(\d+); Thread=(\d+); GPU=(\d+); .*StreamId=POINTER \(IN HEX:0x([^)]*)\).*MathMode=\w+$",
                        record, re.M)
        if not head or not end:
            continue
        value = dict(re.findall(r"^i!  (\w+): type=[^;]*; val=(.*)$", record, re.M))
        address = {name: int(value[name].split("0x")[-1].rstrip(")"), 16) for name in "ABC"}
        single = head[1].startswith("Sgemm")
        out.append({
            "process_id": int(end[1]), "thread_id": int(end[2]), "device": int(end[3]), "stream": 0,
            "function": "cublas" + head[1].removesuffix("_v2"),
            "m": int(value["n"]), "n": int(value["m"]), "k": int(value["k"]), "batch": 1,
            "a": address["A"], "b": address["B"], "d": address["C"],
            "layout": value["transa"][10] + value["transb"][10],
            "dtype": "fp32" if single else TYPES[value["Btype"]], "out_dtype": "fp32" if single else TYPES[value["Ctype"]],
            "algorithm": "" if single else value["algo"].split("(")[0]})
    return out


def of_cublaslt(text):
    out = []
    for line in LT.finditer(text):
        transposed = {name: "T" if f"trans{name}=OP_T" in line[19] else "N" for name in "ab"}
        out.append({
            "process_id": int(line[2]), "thread_id": -1, "device": -1, "stream": int(line[21], 16), "function": line[3],
            "m": int(line[15]), "n": int(line[14]), "k": int(line[6] if transposed["a"] == "T" else line[7]),
            "batch": int(line[17] or 1), "a": int(line[4], 16), "b": int(line[8], 16), "d": int(line[12], 16),
            "layout": transposed["a"] + transposed["b"], "dtype": TYPES[line[9]], "out_dtype": TYPES[line[13]],
            "algorithm": line[20]})
    return out


def run(binary, *arguments):
    done = subprocess.run([binary, *arguments], capture_output=True, text=True)
    if done.returncode not in (0, 3):  # 3: a log is cut
        sys.exit(f"{' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def report_of(binary, *files):
    return json.loads(run(binary, "analyze", *files, "--json", "--no-store"))


def exported(binary, files, folder):
    run(binary, "export", *files, "--to", "csv", "-o", folder)
    with open(folder / "logged_products.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def flops(row):
    return 2 * row["batch"] * row["m"] * row["n"] * row["k"]


def check_rows(name, rows, products):
    expect(len(rows) == len(products), f"{name}: {len(rows)} rows, {len(products)} products in the text")
    for at, (row, product) in enumerate(zip(rows, products)):
        for column, value in product.items():
            expect(row[column] == str(value), f"{name}, product {at}: {column} is {row[column]}, the log has {value}")


def check_real(binary, folder):
    cublas = of_cublas((INPUTS / "cublas.log").read_text())
    lt = of_cublaslt((INPUTS / "cublaslt.log").read_text())
    expect(len(cublas) >= 10 and len(lt) >= 10, "the recordings have products")
    for name, products in (("cublas.log", cublas), ("cublaslt.log", lt)):
        check_rows(name, exported(binary, [INPUTS / name], folder / name), products)
        report = report_of(binary, INPUTS / name)["logged_products"]
        expect(sum(row["calls"] for row in report) == len(products), f"{name}: calls")
        expect(sum(int(row["total_flops"]) for row in report) == sum(map(flops, products)), f"{name}: FLOPs")
        counted = collections.Counter((row["m"], row["n"], row["k"], row["algorithm"]) for row in products)
        for row in report:
            key = (row["m"], row["n"], row["k"], row["algorithm"] or "")
            expect(row["calls"] == counted[key], f"{name}: {key} counts {row['calls']}, not {counted[key]}")
    # In both: the same addresses and sizes in one process. Once where either log has it.
    def key(row):
        return (row["process_id"], row["a"], row["b"], row["d"], row["m"], row["n"], row["k"])
    once = collections.Counter(map(key, cublas)) | collections.Counter(map(key, lt))
    both = collections.Counter(map(key, cublas)) & collections.Counter(map(key, lt))
    for files in (["cublas.log", "cublaslt.log"], ["cublaslt.log", "cublas.log"]):
        report = report_of(binary, *(INPUTS / name for name in files))
        expect(report["source"]["recording"] is None, f"{files}: {report['source']}")
        report = report["logged_products"]
        expect(sum(row["calls"] for row in report) == once.total(), f"{files}: {once.total()} products")
        expect(sum(row["calls"] for row in report if row["logs"] == "both") == both.total(), f"{files}: {both.total()} in both")
        expect(sum(int(row["total_flops"]) for row in report) == sum(2 * k[4] * k[5] * k[6] * n for k, n in once.items()),
               f"{files}: FLOPs")
        for row in report:
            expect(row["logs"] != "both" or (row["thread_id"] and "algoId=" in row["algorithm"]),
                   "of a product in both logs thread and algorithm are known")
    print(f"real logs: {len(cublas)} and {len(lt)} products, {both.total()} in both, {once.total()} in all")


def gemms_of(events):
    """(batch, m, n, k, duration of the GEMM kernel in ns) of the operators, in the order in which they were called."""
    ops, kernels = [], collections.defaultdict(list)
    for event in events:
        if event.get("cat") == "kernel":
            kernels[event["args"].get("External id")].append(event)
        elif event.get("cat") == "cpu_op" and event["name"] in ("aten::mm", "aten::addmm", "aten::bmm"):
            ops.append(event)
    out = []
    for op in sorted(ops, key=lambda event: event["ts"]):
        launched = [k for k in kernels[op["args"]["External id"]] if "splitKreduce" not in k["name"]]
        if not launched:
            continue
        a, b = op["args"]["Input Dims"][-2:] if op["name"] != "aten::addmm" else op["args"]["Input Dims"][1:3]
        longest = max(round(k["dur"] * 1000) for k in launched)
        batch, (m, k), n = (a[0] if len(a) == 3 else 1), a[-2:], b[-1]
        out.append((batch, m, n, k, longest))
    return out


def lt_line(at, batch, m, n, k, stream="7F00AA"):
    """Of a row-major product, as PyTorch asks for it: column-major, operands exchanged, weights transposed."""
    many = f" batchCount={batch} strideOffset={m * n}" if batch > 1 else ""
    return (f"[2026-11-20 23:33:{at % 60:02}][cublasLt][5771][Trace][cublasLtTSTMatmul] A=0X{4096 + at:X} "
            f"Adesc=[type=R_16BF rows={k} cols={n} ld={k}{many}] B=0X{8192 + at:X} Bdesc=[type=R_16BF rows={k} cols={m} ld={k}{many}] "
            f"C=0X{12288 + at:X} Cdesc=[type=R_16BF rows={n} cols={m} ld={n}{many}] D=0X{12288 + at:X} "
            f"Ddesc=[type=R_16BF rows={n} cols={m} ld={n}{many}] computeDesc=[computeType=COMPUTE_32F scaleType=R_32F transa=OP_T "
            f"smCountTarget=132] algo=[algoId={n % 7}] workSpace=0X0 workSpaceSizeInBytes=0 beta=0 outOfPlace=0 stream=0X{stream}\n")


def check_beside(binary, folder, recording):
    events = json.load(gzip.open(INPUTS / recording))["traceEvents"]
    gemms = gemms_of(events)
    expect(len(gemms) > 100, f"{recording}: {len(gemms)} products")
    foreign = [lt_line(9000 + i, 1, 17, 19, 23) for i in range(5)]  # of no kernel in the recording
    for name, first, extra in (("whole", 0, []), ("begins late", len(gemms) // 3, []), ("with others", 0, foreign)):
        lines = [lt_line(at, *gemm[:4]) for at, gemm in enumerate(gemms)][first:]
        for i, line in enumerate(extra):
            lines.insert((i + 1) * len(lines) // 7, line)
        log = folder / "made.log"
        log.write_text("".join(lines))
        report = report_of(binary, log, INPUTS / recording)
        expect(report["source"]["recording"] == str(INPUTS / recording), f"{recording}, {name}: {report['source']}")
        expected = collections.defaultdict(list)
        for batch, m, n, k, ns in gemms[first:]:
            expected[batch, m, n, k].append(ns)
        matched = sum(row["recorded_calls"] or 0 for row in report["logged_products"])
        expect(matched == len(gemms) - first, f"{recording}, {name}: {matched} matched of {len(gemms) - first}")
        [file] = report["joined_files"]
        expect((file["file"], file["format"], file["records"], file["matched"], file["not_matched"]) ==
               (str(log), "cublas", len(lines), len(gemms) - first, len(extra)), f"{recording}, {name}: {file}")
        for row in report["logged_products"]:
            key = row["batch"], row["m"], row["n"], row["k"]
            times = expected.get(key)
            if times is None:
                expect(key == (1, 17, 19, 23) and row["recorded_calls"] is None, f"{recording}, {name}: {key} has no kernel")
                continue
            if not expect(row["recorded_calls"] == len(times),
                          f"{recording}, {name}: {key} {row['recorded_calls']} of {len(times)}"):
                continue
            mean_us = sum(times) / len(times) / 1000
            expect(abs(row["recorded_us"] - mean_us) <= 1e-9 * mean_us, f"{recording}, {name}: {key} takes {mean_us} us")
            rate = 2 * batch_flops(key) / mean_us / 1e6
            expect(abs(row["recorded_tflops"] - rate) <= 1e-9 * rate, f"{recording}, {name}: {key} reaches {rate} TFLOP/s")
        said = [row["why"] for row in report["cannot_tell"] if "logged products" in row["question"]]
        unmatched = first + len(extra)
        expect(bool(said) == (unmatched > 0), f"{recording}, {name}: what did not match is said: {said}")
        if unmatched:
            expect(f"{matched} of {len(lines)} logged products" in said[0] and f"{first} of its {len(gemms)} GEMMs" in said[0],
                   f"{recording}, {name}: {said[0]}")
    print(f"{recording}: {len(gemms)} products with the time of their kernels")


def batch_flops(key):
    return key[0] * key[1] * key[2] * key[3]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        check_real(binary, folder)
        for recording in ("kineto_qwen2.5-0.5b_annotated.json.gz", "kineto_llama-3.1-8b_unlabelled.json.gz"):
            check_beside(binary, folder, recording)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


main()
