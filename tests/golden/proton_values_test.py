#!/usr/bin/env python3
"""What Triton's Proton writes, against the same files read here with json: sums by recursion over the tree.

Every scope, kernel, GPU and file in the report must be what the tree gives. Then files are given in other forms: both together, under the keys of
old versions, with PC samples, deeper than Python goes, beside a recording of the same kernels, cut and with wrong numbers. As MessagePack, encoded
here, they must give the same report.
"""

import argparse
import collections
import gzip
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from msgpack_encoder import pack, pack_proton
from report_checks import expect, near, problems, report_of

INPUTS = pathlib.Path(__file__).resolve().parent / "inputs"
SCOPES, PYTHON = (INPUTS / f"proton_{name}.hatchet" for name in ("scopes", "python"))
NORM = "_ZN2at6native28vectorized_layer_norm_kernelIN3c108BFloat16EfEEviT0_"
PLAIN_NORM = "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)"
TABLES = ("proton_profiles", "proton_gpus", "proton_scopes", "proton_kernels", "proton_metrics")
CLOSE = 1e-9


def keys(report):
    return {row["key"]: row["count"] for row in report["diagnostics"]}


def questions(report):
    return " ".join(row["question"] + " " + row["why"] for row in report["cannot_tell"])


def same(found, wanted):
    return found is None if wanted is None else found is not None and abs(found - wanted) <= CLOSE * max(abs(wanted), 1e-12)


def plain(name):
    return PLAIN_NORM if name == NORM else name


class Sum:
    """Of a tree: kernels as (name, gpu, ns, launches), and stated work as (amount, ns that it is of)."""

    def __init__(self, node):
        own = node["metrics"]
        self.node, self.name = node, plain(node["frame"]["name"])
        self.kernel = own.get("time (ns)", 0) > 0
        self.children = [Sum(child) for child in node["children"]]
        self.kernels = [kernel for child in self.children for kernel in child.kernels]
        if self.kernel:
            self.kernels.append((self.name, f"{own['device_type']} {own['device_id']}", own["time (ns)"], own["count"]))
        self.ns = sum(kernel[2] for kernel in self.kernels)
        self.launches = sum(kernel[3] for kernel in self.kernels)
        self.flops, self.flops_ns, self.widths = self.work(lambda key: key.startswith("flops"), "flops")
        self.bytes, self.bytes_ns, _ = self.work(lambda key: key == "bytes", "bytes")

    def work(self, is_of, what):
        own = {key: value for key, value in self.node["metrics"].items() if is_of(key) and value}
        below = [getattr(child, what) for child in self.children if getattr(child, what) is not None]
        amount = sum(own.values()) + sum(below) if own or below else None
        covered = self.ns if own else sum(getattr(child, what + "_ns") for child in self.children)
        widths = {key[5:] for key in own} | {width for child in self.children for width in getattr(child, "widths", ())} if what == "flops" else set()
        return amount, covered, widths


def rates(row, sums, name):
    flops, flops_ns, widths, amount, bytes_ns = sums
    expect(same(row["flops"], flops) and same(row["bytes"], amount), f"work of {name}: {row['flops']} {flops} {row['bytes']} {amount}")
    expect(same(row["flops_time_ms"], None if flops is None else flops_ns / 1e6), f"time of the FLOPs of {name}")
    expect(same(row["bytes_time_ms"], None if amount is None else bytes_ns / 1e6), f"time of the bytes of {name}")
    expect(same(row["tflops"], None if flops is None else flops / (flops_ns / 1e9) / 1e12), f"FLOP/s of {name}: {row['tflops']}")
    expect(same(row["gbs"], None if amount is None else amount / bytes_ns), f"GB/s of {name}: {row['gbs']}")
    expect(row["flops_of"] == ("+".join(sorted(widths, key=int)) or None), f"widths of {name}: {row['flops_of']}")


def walk(tree, path=(), depth=0):
    """Scopes in the order of the report: in a scope those with more time first."""
    if tree.kernel and not any(child.kernels for child in tree.children):
        return
    named = path + (tree.name,)
    yield tree, " > ".join(named if depth == 0 else named[1:]), depth
    for child in sorted(tree.children, key=lambda one: -one.ns):
        yield from walk(child, named, depth + 1)


def check_scopes(report, file, tree):
    wanted = list(walk(tree))
    found = [row for row in report["proton_scopes"] if row["source"] == file.name]
    expect(len(found) == len(wanted), f"{len(found)} scopes, {len(wanted)} in the file")
    for row, (scope, path, depth) in zip(found, wanted):
        own = [kernel for child in scope.children if child.kernel for kernel in child.kernels]
        shown = row["path"]
        expect(path == shown or (shown.startswith("... > ") and path.endswith(shown[6:]) and len(shown) > 300), f"{shown}, not {path}")
        expect(row["name"] == scope.name and row["depth"] == depth, f"{row['name']}, depth {row['depth']}")
        expect(row["launches"] == scope.launches and same(row["time_ms"], scope.ns / 1e6), f"inclusive time of {path}")
        expect(row["own_launches"] == sum(one[3] for one in own) and same(row["own_ms"], sum(one[2] for one in own) / 1e6), f"own time of {path}")
        expect(same(row["frac"], scope.ns / tree.ns), f"share of {path}")
        rates(row, (scope.flops, scope.flops_ns, scope.widths, scope.bytes, scope.bytes_ns), path)
    expect(same(sum(row["own_ms"] for row in found), tree.ns / 1e6), "exclusive times add up")
    expect(sum(row["own_launches"] for row in found) == tree.launches, "launches add up")
    return len(found)


def check_kernels(report, file, tree):
    wanted = collections.defaultdict(lambda: [0, 0, 0, None, 0, set(), None, 0])  # ns, launches, places, flops and bytes with their ns

    def visit(scope, alone):
        # What a scope states that holds one kernel is of that kernel.
        alone = alone if alone is not None else scope if len(scope.kernels) == 1 else None
        if scope.kernel:
            name, gpu, ns, launches = scope.kernels[-1]
            row = wanted[name, gpu]
            stated = alone if alone is not None else scope
            row[0], row[1], row[2] = row[0] + ns, row[1] + launches, row[2] + 1
            if stated.flops is not None:
                row[3], row[4], row[5] = (row[3] or 0) + stated.flops, row[4] + ns, row[5] | stated.widths
            if stated.bytes is not None:
                row[6], row[7] = (row[6] or 0) + stated.bytes, row[7] + ns
        for child in scope.children:
            visit(child, alone)

    visit(tree, None)
    found = {(row["name"], row["gpu"]): row for row in report["proton_kernels"] if row["source"] == file.name}
    expect(set(found) == set(wanted), f"kernels: {set(found) ^ set(wanted)}")
    for key, (ns, launches, places, flops, flops_ns, widths, amount, bytes_ns) in wanted.items():
        row = found.get(key, collections.defaultdict(int))
        expect(same(row["time_ms"], ns / 1e6) and row["launches"] == launches and row["places"] == places, f"kernel {key}")
        expect(same(row["mean_us"], ns / 1e3 / launches) and same(row["frac"], ns / tree.ns), f"mean or share of {key}")
        rates(row, (flops, flops_ns, widths, amount, bytes_ns), key)
    expect(same(sum(row["time_ms"] for row in found.values()), tree.ns / 1e6), "times of kernels add up")
    expect(same(sum(row["frac"] for row in found.values()), 1), "shares of kernels add up")
    return len(found)


def check_file(report, file):
    root, gpus = json.loads(file.read_text())
    tree = Sum(root)
    scopes, kernels = check_scopes(report, file, tree), check_kernels(report, file, tree)
    [profile] = [row for row in report["proton_profiles"] if row["source"] == file.name]
    expect(profile["kernels"] == kernels and profile["launches"] == tree.launches and same(profile["time_ms"], tree.ns / 1e6), f"{profile}")
    expect(same(profile["flops"], tree.flops) and same(profile["bytes"], tree.bytes), f"{profile}")
    for row in [row for row in report["proton_gpus"] if row["source"] == file.name]:
        facts = gpus["CUDA"][row["gpu"].split()[1]]
        on = [kernel for kernel in tree.kernels if kernel[1] == row["gpu"]]
        expect((row["arch"], row["sms"], row["bus_bits"]) == (facts["arch"], facts["num_sms"], facts["bus_width"]), f"{row}")
        expect(same(row["clock_mhz"], facts["clock_rate"] / 1e3) and same(row["memory_clock_mhz"], facts["memory_clock_rate"] / 1e3), f"{row}")
        expect(same(row["peak_gbs"], 2 * facts["bus_width"] * facts["memory_clock_rate"] * 1e3 / 8 / 1e9), f"{row}")
        expect(row["launches"] == sum(one[3] for one in on) and same(row["time_ms"], sum(one[2] for one in on) / 1e6), f"{row}")
    expect(keys(report) == {}, f"{file.name}: {keys(report)}")
    print(f"{file.name}: {scopes} scopes, {kernels} kernels, {tree.ns} ns")
    return tree


def renamed(node, names):
    """The tree under other keys."""
    return {"children": [renamed(child, names) for child in node["children"]], "frame": node["frame"],
            "metrics": {names.get(key, key): value for key, value in node["metrics"].items()}}


def recording(folder, kernels):
    """A recording of torch.profiler with these kernels: (name, length in us)."""
    events, at = [], 1000
    for number, (name, us) in enumerate(kernels):
        args = {"stream": 7, "device": 0, "context": 1, "correlation": number + 1, "grid": [1, 1, 1], "block": [128, 1, 1]}
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at, "dur": 2,
                       "args": {"correlation": number + 1}})
        events.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at + 5, "dur": us, "args": args})
        at += us + 20
    file = folder / "recording.json"
    file.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    return file


def check_beside(binary, folder, tree):
    beside = recording(folder, [("matmul_kernel", 50), ("matmul_kernel", 70), (PLAIN_NORM, 11), ("silu_mul", 13)])
    got = report_of(binary, beside, SCOPES)
    found = {row["name"]: (row["recorded_calls"], row["recorded_us"]) for row in got["proton_kernels"]}
    wanted = {"matmul_kernel": (2, 60), PLAIN_NORM: (1, 11), "silu_mul": (1, 13)}
    for name, figures in found.items():
        expect(figures == wanted.get(name, (None, None)), f"beside: {name} {figures}")
    [profile] = got["proton_profiles"]
    [file] = got["joined_files"]
    expect((file["file"], file["format"], file["joined_by"], file["records"], file["matched"], file["not_matched"]) ==
           (str(SCOPES), "proton", "name of kernels", len(found), 3, len(found) - 3), f"beside: {file}")
    missing = sum(kernel[2] for kernel in tree.kernels if kernel[0] not in wanted)
    expect((profile["recorded_kernels"], profile["missing_kernels"]) == (3, len(found) - 3), f"{profile}")
    expect(same(profile["missing_frac"], missing / tree.ns) and "take in the recording" in questions(got), f"{profile}")
    expect(got["source"]["recorded_ms"] > 0, "the recording is reported as well")


def check_forms(binary, folder, report):
    def write(name, text):
        file = folder / name
        file.write_text(text if isinstance(text, str) else json.dumps(text))
        return file

    both = report_of(binary, PYTHON, SCOPES)
    for table in TABLES[:4]:
        expect([row for row in both[table] if row["source"] == SCOPES.name] == report[table], f"{table} of two files")
    check_file(both, PYTHON)
    root, gpus = json.loads(SCOPES.read_text())
    old = renamed(root, {"time (ns)": "Time (ns)", "count": "Count", "device_id": "DeviceId", "device_type": "DeviceType"})
    got = report_of(binary, write(SCOPES.name, [old, gpus]))
    expect(all(got[table] == report[table] for table in TABLES if table in report), "keys of old versions")
    packed = folder / "packed.hatchet.gz"
    packed.write_bytes(gzip.compress(SCOPES.read_bytes()))
    expect(report_of(binary, packed)["proton_profiles"][0]["launches"] == report["proton_profiles"][0]["launches"], "compressed")

    # PC samples stand below their kernel, and are no scopes.
    sampled = {"children": [{"children": [], "frame": {"name": "k.py:k@3", "type": "function"}, "metrics": {"num_samples": 5, "stalled_wait": 2}}],
               "frame": {"name": "k", "type": "function"}, "metrics": {"count": 4, "time (ns)": 4000, "device_id": "0", "device_type": "CUDA"}}
    got = report_of(binary, write("samples.hatchet", [{"children": [sampled], "frame": {"name": "ROOT"}, "metrics": {}}, {}]))
    expect([row["name"] for row in got["proton_scopes"]] == ["ROOT"] and got["proton_kernels"][0]["mean_us"] == 1, f"{got['proton_scopes']}")
    expect([(row["path"], row["metric"], row["value"]) for row in got["proton_metrics"]] ==
           [("k > k.py:k@3", "num_samples", 5), ("k > k.py:k@3", "stalled_wait", 2)], f"{got['proton_metrics']}")
    # Instrumented kernels have cycles and no times.
    cycles = {"children": [{"children": [], "frame": {"name": "warp"}, "metrics": {"cycles": 900, "normalized_cycles": 9.5, "device_id": "0"}}],
              "frame": {"name": "ROOT"}, "metrics": {"cycles": 0}}
    got = report_of(binary, write("cycles.hatchet", [cycles, {}]))
    expect([row["time_ms"] for row in got["proton_scopes"] + got["proton_profiles"]] == [None] * 3, "no times")
    expect("How long did kernels take" in questions(got) and "proton_kernels" not in got, questions(got))
    # A kernel with kernels below it.
    inner = {"children": [], "frame": {"name": "in"}, "metrics": {"count": 1, "time (ns)": 10}}
    outer = {"children": [inner], "frame": {"name": "out"}, "metrics": {"count": 1, "time (ns)": 5}}
    got = report_of(binary, write("nested.hatchet", [{"children": [outer], "frame": {"name": "ROOT"}, "metrics": {}}, {}]))
    expect([(row["name"], row["time_ms"], row["own_ms"]) for row in got["proton_scopes"]] ==
           [("ROOT", 15e-6, 0), ("out", 15e-6, 15e-6)], f"{got['proton_scopes']}")
    # Deep, with the first frame far behind the start of the file.
    text = "[" + "".join('{"children": [' for _ in range(900)) + json.dumps({"children": [], "frame": {"name": "k"}, "metrics": {"count": 1, "time (ns)": 10}})
    text += "".join(f'], "frame": {{"name": "f{level}"}}, "metrics": {{}}}}' for level in range(900)) + ", {}]"
    got = report_of(binary, write("deep.hatchet", text.replace('{"children": [', '{"children":' + " " * 80 + "[")))
    expect(len(got["proton_scopes"]) == 900 and got["proton_scopes"][-1]["depth"] == 899 and keys(got) == {}, f"deep: {keys(got)}")
    report_of(binary, write("deeper.hatchet", "[" + '{"children":[' * 3000), code=1)
    # More scopes than rows: those with the least time are one row, and sums stay.
    many = {"children": [{"children": [{"children": [], "frame": {"name": "k"}, "metrics": {"count": 1, "time (ns)": 1 + number}}],
                          "frame": {"name": f"s{number}"}, "metrics": {}} for number in range(12000)], "frame": {"name": "ROOT"}, "metrics": {}}
    got = report_of(binary, write("many.hatchet", [many, {}]))
    rows = got["proton_scopes"]
    expect(len(rows) == 10001 and rows[-1]["name"] == "[2001 others]" and same(rows[-1]["own_ms"], sum(range(1, 2002)) / 1e6), f"{rows[-1]}")
    expect(same(sum(row["own_ms"] for row in rows), 12000 * 12001 / 2 / 1e6) and same(rows[0]["time_ms"], 12000 * 12001 / 2 / 1e6), "sums of many")

    # Damage.
    text = SCOPES.read_text()
    got = report_of(binary, write("cut.hatchet", text[:len(text) * 2 // 3]), code=3)
    expect(keys(got)["truncated-file"] == 1 and 0 < got["proton_profiles"][0]["launches"] < report["proton_profiles"][0]["launches"], f"{keys(got)}")
    wrong = json.loads(text)
    inside = wrong[0]["children"][0]["children"][0]["children"]
    inside[0]["children"][0]["metrics"]["bytes"] = -5
    inside[0]["children"][0]["metrics"]["time (ns)"] = -1
    inside[1]["children"][0]["metrics"]["count"] = "many"
    inside[1]["children"][1]["metrics"] = 7
    inside[1]["children"].append(3)
    inside[1]["children"][1]["frame"] = {}
    got = report_of(binary, write("wrong.hatchet", wrong))
    expect(keys(got) == {"negative-duration": 1, "bad-number": 2, "missing-field": 2, "malformed-event": 2}, f"wrong: {keys(got)}")
    print("11 other forms")


def check_packed(binary, folder, report):
    """MessagePack: the same report as of JSON, whatever stands in the file; and what is no such file."""
    (folder / "text").mkdir()
    (folder / "packed").mkdir()

    def page(file):
        done = subprocess.run([binary, "analyze", file, "--full"], capture_output=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def written(name, content):
        file = folder / name
        file.write_bytes(content)
        return file

    def same_report(what, document, encode):
        text, packed = (folder / kind / "x.hatchet" for kind in ("text", "packed"))
        text.write_text(json.dumps(document, sort_keys=True))
        packed.write_bytes(encode(document))
        wanted, got = report_of(binary, text), report_of(binary, packed)
        expect(wanted["proton_profiles"] and all(got.get(table) == wanted.get(table) for table in TABLES), f"MessagePack, {what}: other tables")
        expect(keys(got) == keys(wanted) and got["cannot_tell"] == wanted["cannot_tell"], f"MessagePack, {what}: {keys(got)}")
        expect(page(packed) == page(text), f"MessagePack, {what}: another page")

    for file in (SCOPES, PYTHON):
        same_report(file.name, json.loads(file.read_text()), pack_proton)
    expect((INPUTS / "proton_scopes.hatchet_msgpack").read_bytes() == pack_proton(json.loads(SCOPES.read_text())), "the packed input is of another tree")
    same_report("sorted keys", json.loads(json.dumps(json.loads(SCOPES.read_text()), sort_keys=True)), pack)
    # Every width of a number, a text, a list and an object.
    numbers = {f"n{number}": number for number in (0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**53, 2**64 - 1, -1, -32, -33, -128,
                                                   -129, -32768, -32769, -2**31, -2**31 - 1, -2**63, 0.5, -1e-300, 1e300, 1 / 3)}
    leaves = [{"frame": {"name": "k" * length, "type": "function"}, "children": [], "metrics": {"count": 2, "time (ns)": length + 7, **extra}}
              for length, extra in ((0, {}), (31, {}), (32, numbers), (255, {}), (256, {"nothing": None, "yes": True, "words": "w", "list": [1, [2.5]]}), (300, {}))]
    wide = {"frame": {"name": "wide"}, "metrics": {}, "children": [{"frame": {"name": "s"}, "metrics": {}, "children": []} for _ in range(70000)]}
    same_report("widths", [{"frame": {"name": "ROOT"}, "metrics": {"count": 0}, "children": leaves + [wide]}, {}], pack_proton)

    content = (INPUTS / "proton_scopes.hatchet_msgpack").read_bytes()
    packed = report_of(binary, written("x.gz", gzip.compress(content)))
    expect(packed["proton_profiles"][0]["launches"] == report["proton_profiles"][0]["launches"], "MessagePack, compressed")
    beside = report_of(binary, recording(folder, [("matmul_kernel", 50), ("silu_mul", 13)]), INPUTS / "proton_scopes.hatchet_msgpack")
    expect((beside["joined_files"][0]["format"], beside["joined_files"][0]["matched"]) == ("proton", 2), f"MessagePack, beside: {beside['joined_files']}")
    end = len(content) * 2 // 3
    cut = report_of(binary, written("cut", content[:end]), code=3)
    [why] = [row["text"] for row in cut["diagnostics"] if row["key"] == "truncated-file"]
    expect(0 <= end - int(re.search(r"byte (\d+)", why)[1]) < 100, why)
    expect(0 < cut["proton_profiles"][0]["launches"] < report["proton_profiles"][0]["launches"], "MessagePack, cut: launches")
    # Nothing is kept for a length that is only stated, and no level is gone down to without end.
    head = b"\x92\x83\xa5frame\x81\xa4name\xa1k\xa7metrics\x82\xa5count\x01\xa9time (ns)\x05\xa8children"
    for what, tail, key in (("a long list", b"\xdd\xff\xff\xff\xff", "truncated-file"), ("a long text", b"\x91\xdb\xff\xff\xff\xffabc", "truncated-file"),
                            ("a long map", b"\x91\xdf\xff\xff\xff\xff\xa1a", "truncated-file"), ("an extension", b"\xc7\x01\x05\x00", "malformed-event"),
                            ("nothing", b"\xc1", "malformed-event"), ("a number as key", b"\x91\x81\x05\x05", "malformed-event"),
                            ("deep", b"\x91\x81\xa8children" * 5000, "limit-reached")):
        got = report_of(binary, written("hostile", head + tail), code=None)
        expect(keys(got).get(key) == 1, f"MessagePack, {what}: {keys(got)}")
        expect(got["proton_kernels"][0]["launches"] == 1, f"MessagePack, {what}: what is before it is lost")
    print("MessagePack: 4 trees, 10 other files")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    report = report_of(binary, SCOPES)
    tree = check_file(report, SCOPES)
    expect(same(report["proton_profiles"][0]["metadata_ms"], 0.013), "kernels of the hook")
    expect("When did kernels run" in questions(report) and "rates" not in questions(report), questions(report))
    python = report_of(binary, PYTHON)
    check_file(python, PYTHON)
    expect("rates" in questions(python), questions(python))
    expect([(row["metric"], row["value"]) for row in python["proton_metrics"]] == [("tokens", 4096)], "metric of the program")
    with tempfile.TemporaryDirectory() as folder:
        check_beside(binary, pathlib.Path(folder), tree)
        check_forms(binary, pathlib.Path(folder), report)
        check_packed(binary, pathlib.Path(folder), report)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


main()
