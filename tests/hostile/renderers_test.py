#!/usr/bin/env python3
"""Names that mean harm, in every format of every kind of result and in every export: HTML and script, control sequences of terminals,
formulas of spreadsheets, bytes that are no UTF-8, and a name of 10 MB, as names of kernels, operators, Python functions, ranges,
threads, devices, files, runs, arguments, models and benchmarks.

text      UTF-8 without a control character; short, whatever the names are
JSON      UTF-8, parsed by Python; no control character stands there as it is; a name is there as it was
CSV       UTF-8; no cell that a spreadsheet computes; no control character
HTML      UTF-8; the tags are those of the page of a harmless result, so that nothing of a name became one
SQLite    whole; names as they were
Perfetto  decoded by protoc (tests/export/decoded.py); names as they were

A format or an export that `llmprof` knows and this does not makes it fail.
"""

import argparse
import csv
import gzip
import io
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "export"))
import decoded  # noqa: E402

INPUTS = HERE.parent / "golden/inputs"
BENCH = HERE.parent / "golden/bench/compare"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
FORMULA = re.compile("[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]")
NUMBER = re.compile(r"[-+]?[0-9.]+(e[+-]?[0-9]+)?|-?inf|nan")

LONG = "long_" + "x" * 10_000_000
NAMES = {
    "html": '</script><img src=x onerror="globalThis.hacked=1">',
    "script": "<script>globalThis.hacked=2</script><!--",
    "terminal": "\x1b]0;title\x07\x1b[2J\x1b[31mred\u202egnp.exe",
    "formula": "=cmd|' /C calc'!A0",
    "formula2": "@SUM(1+1)*cmd",
    "quotes": 'a"b\'c,d\\e\nf\tg\u2028h',
    "bytes": "BYTESinvalid",  # with 0xff 0xfe 0xc3 before it
    "long": LONG,
}
BYTES = b"\xff\xfe\xc3"
KEPT = 65536  # bytes of a longer name of a recording, which is a diagnostic
FORMATS = ("text", "json", "csv", "html")
EXPORTS = ("perfetto", "sqlite", "nsys-sqlite", "csv", "json")

problems = []
checked = 0


def expect(condition, text):
    global checked
    checked += 1
    if not condition:
        problems.append(text)
        print("FAILED", text[:600])
    return condition


def recording(path, slower=1.0):
    """Two steps of kernels, operators, Python functions, ranges, threads and a device of these names."""
    names = list(NAMES.values())
    events = [{"ph": "M", "pid": 1, "tid": 1 + i, "name": kind, "args": {"name": name}}
              for i, name in enumerate(names[:7]) for kind in ("thread_name", "process_name")]
    at = 1000.0
    for step in range(4):
        start = at
        for number, name in enumerate(names):
            if number == len(names) - 1 and step:
                continue  # 10 MB once
            key = step * 100 + number + 1
            same = {"pid": 1, "tid": 1}
            if len(name) < 1000:
                events += [{"ph": "X", "cat": "cpu_op", "name": name, **same, "ts": at, "dur": 8 * slower,
                            "args": {"External id": key, "Input Dims": [[4, 8]], "Input type": [name]}},
                           {"ph": "X", "cat": "python_function", "name": name, **same, "ts": at, "dur": 7 * slower, "args": {"Python id": key}}]
            events += [{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **same, "ts": at + 1, "dur": 2,
                        "args": {"correlation": key, "External id": key}},
                       {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at + 4 * slower, "dur": 20 * slower,
                        "args": {"correlation": key, "External id": key, "device": 0, "stream": 7, "grid": [1, 1, 1], "block": [32, 1, 1]}}]
            at += 40 * slower
        events.append({"ph": "X", "cat": "user_annotation", "name": "decode " + names[step], "pid": 1, "tid": 1, "ts": start,
                       "dur": at - start, "args": {}})
        at += 20
    document = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": NAMES["html"] + NAMES["terminal"], "totalGlobalMem": 1,
                                                          "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
                "traceEvents": events}
    path.write_bytes(json.dumps(document).encode().replace(b"BYTES", BYTES))


def poisoned(value, seen=0):
    """A copy of a JSON document whose texts have harm behind them; keys and words of enums stay."""
    if isinstance(value, dict):
        return {key: value[key] if key in ("schema", "status", "regime", "dtype", "kind", "verdict", "bound", "unit", "compute_capability")
                else poisoned(value[key], seen + len(key)) for key in value}
    if isinstance(value, list):
        return [poisoned(one, seen + i) for i, one in enumerate(value)]
    return value + list(NAMES.values())[seen % 6] if isinstance(value, str) else value


class Tool:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "XDG_CACHE_HOME": str(folder), "LC_ALL": "C.UTF-8",
                            "LLMPROF_STORE": str(folder / "runs"), "XDG_RUNTIME_DIR": str(folder),
                            **{name: os.environ[name] for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if name in os.environ}}

    def run(self, *words):
        return subprocess.run([self.binary, *words], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=250, check=False)


def utf8(data, where):
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        expect(False, f"{where}: no UTF-8: {error}")
        return None


def harmless(text, where):
    found = CONTROL.search(text)
    expect(found is None, f"{where}: {found and ascii(text[max(0, found.start() - 30):found.end() + 10])} reaches the reader")


def check_text(data, where):
    text = utf8(data, where)
    if text is not None:
        harmless(text.replace("\n", ""), where)
        expect(len(text) < 300_000, f"{where}: {len(text)} characters of text")


def check_json(data, where):
    text = utf8(data, where)
    if text is not None:
        harmless(text, where)
        try:
            return json.loads(text)
        except ValueError as error:
            expect(False, f"{where}: no JSON: {error}")
    return None


def check_csv(data, where):
    csv.field_size_limit(1 << 27)
    text = utf8(data, where)
    if text is None:
        return
    harmless(text, where)
    for row in csv.reader(io.StringIO(text, newline="")):
        for cell in row:
            if FORMULA.match(cell) and not NUMBER.fullmatch(cell):
                expect(False, f"{where}: a spreadsheet computes {cell[:80]!r}")
                return


def tags(data):
    return [tag.lower() for tag in re.findall(rb"<[!/a-zA-Z][a-zA-Z-]*", data)]


def check_html(data, where, plain):
    utf8(data, where)
    expect(tags(data) == tags(plain), f"{where}: other tags than those of a harmless page")


def check_result(tool, what, words, plain, codes=(0, 3, 4, 5)):
    """One kind of result in every format."""
    answer = None
    for kind in FORMATS:
        where = f"{what} as {kind}"
        place = tool.folder / f"{what.replace(' ', '_')}.{kind}"
        # To a terminal or a pipe, and into a file.
        done = tool.run(*words, "--format", kind, *(() if kind in ("text", "json") else ("-o", str(place))))
        if not expect(done.returncode in codes, f"{where}: exit {done.returncode}: {done.stderr[-400:]!r}"):
            continue
        check_text(done.stderr, f"{where}, standard error")
        if kind == "text":
            check_text(done.stdout, where)
        elif kind == "json":
            answer = check_json(done.stdout, where)
        elif kind == "csv":
            files = sorted(place.glob("*.csv")) if place.is_dir() else [place]
            expect(files, f"{where}: no file")
            for file in files:
                check_csv(file.read_bytes(), f"{where}, {file.name}")
        else:
            other = tool.folder / "plain.html"
            harm_free = tool.run(*plain, "--format", "html", "-o", str(other))
            expect(harm_free.returncode in codes, f"{where}: a harmless one: exit {harm_free.returncode}: {harm_free.stderr!r}")
            check_html(place.read_bytes(), where, other.read_bytes())
    return answer


def as_kept(name):
    """What is kept of a name: 64 KiB, and U+FFFD, one or several, for bytes that are no UTF-8."""
    return name[:KEPT].replace("BYTES", "\ufffd")


def same_names(found, where):
    found = {re.sub("\ufffd+", "\ufffd", name) for name in found}
    for key, name in NAMES.items():
        expect(as_kept(name) in found, f"{where}: the name {key} is not there as it was")


def check_exports(tool, path):
    said = tool.run("export", "--help").stdout.decode()
    known = tuple(re.search(r"--to FORMAT:\{([^}]*)\}", said).group(1).split(","))
    expect(known == EXPORTS, f"exports {known}: this test knows {EXPORTS}")
    for kind in known:
        place = tool.folder / f"export.{kind}"
        done = tool.run("export", str(path), "--to", kind, "-o", str(place))
        if not expect(done.returncode in (0, 3), f"export as {kind}: exit {done.returncode}: {done.stderr[-400:]!r}"):
            continue
        check_text(done.stdout + done.stderr, f"export as {kind}, standard error")
        if kind == "csv":
            for file in sorted(place.glob("*.csv")):
                check_csv(file.read_bytes(), f"export as csv, {file.name}")
        elif kind == "json":
            tables = check_json(place.read_bytes(), "export as json")["tables"]
            name = tables["gpu_ops"]["columns"].index("name")
            same_names({row[name] for row in tables["gpu_ops"]["rows"]}, "export as json")
        elif kind == "sqlite":
            database = sqlite3.connect(place)
            expect(database.execute("PRAGMA integrity_check").fetchone()[0] == "ok", "export as sqlite: damaged")
            same_names({row[0] for row in database.execute("SELECT name FROM gpu_ops")}, "export as sqlite")
            database.close()
        elif kind == "nsys-sqlite":
            database = sqlite3.connect(place)
            expect(database.execute("PRAGMA integrity_check").fetchone()[0] == "ok", "export as nsys-sqlite: damaged")
            same_names({row[0] for row in database.execute("SELECT value FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds "
                                                           "ON id = demangledName")}, "export as nsys-sqlite")
            database.close()
        else:
            try:
                trace = decoded.Decoded(place)
                same_names({piece.name for piece in trace.slices if piece.category == "kernel"}, "export as perfetto")
            except decoded.Broken as broken:
                expect(False, f"export as perfetto: {broken}")


def nsight_compute(path, harm):
    """What Nsight Compute prints of kernels, with other names of kernels where it is to mean harm."""
    text = gzip.open(INPUTS / "ncu_details_prefill.csv.gz", "rt").read()
    head, *rows = [line for line in text.splitlines() if line.startswith('"')]
    column = next(csv.reader([head])).index("Kernel Name")
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    names = [name for key, name in NAMES.items() if key != "quotes"]
    kernels = {}
    for row in csv.reader([head, *rows]):
        if harm and row[column] != "Kernel Name":
            row[column] = names[kernels.setdefault(row[column], len(kernels)) % len(names)]
        writer.writerow(row)
    path.write_bytes(out.getvalue().encode().replace(b"BYTES", BYTES))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, type=os.path.abspath)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmprof-hostile-") as work:
        folder = pathlib.Path(work)
        tool = Tool(options.binary, folder)
        listed = {row.split()[0] for row in tool.run("list", "formats").stdout.decode().splitlines()[1:] if row.strip()}
        expect(listed == set(FORMATS), f"formats {listed}: this test knows {FORMATS}")
        # As a name of a file, too.
        harm = folder / "=harm\x1b[31m<img src=x onerror=a>\u202e.json"
        slower = folder / "slower.json"
        recording(harm)
        slowest = folder / "slowest.json"
        recording(slower, 1.5)
        recording(slowest, 2)
        plain = [str(INPUTS / f"{name}.json.gz") for name in ("copies_pinned", "item_per_step", "copies_pageable")]

        report = check_result(tool, "analyze", ("analyze", str(harm)), ("analyze", plain[1]))
        same_names({row["name"] for row in report["kernels_topk"]}, "analyze as json")
        expect("limit-reached" in {row["key"] for row in report["diagnostics"]}, "that a name was cut is not said")
        check_result(tool, "analyze top 0", ("analyze", str(harm), "--top", "0"), ("analyze", plain[1]))
        check_result(tool, "analyze redacted", ("analyze", str(harm), "--redact"), ("analyze", plain[1]))
        # Of the store: the same report again, its list, and what is kept of a run.
        check_result(tool, "report", ("report", "1"), ("report", "2"))
        name, argument = NAMES["html"] + NAMES["formula"], NAMES["terminal"] + NAMES["formula"]
        done = tool.run("run", "--no-report", "--quiet", "--name", "=" + name[:150], "--", "true", argument, NAMES["script"])
        check_text(done.stdout + done.stderr, "run")
        expect(done.returncode in (0, 1, 2), f"run: {done.returncode}: {done.stderr!r}")
        # Of what is in the list here nothing is harmless: the page of another store is compared with.
        bare = Tool(options.binary, folder / "bare")
        bare.folder.mkdir()
        bare.run("analyze", plain[1], "-q")
        page = bare.folder / "plain.html"
        for words in (("runs", "list"), ("runs", "show", "last"), ("runs", "verify"), ("runs", "show", "1")):
            for kind in FORMATS:
                place = folder / "runs.out"
                done = tool.run(*words, "--format", kind)
                expect(done.returncode == 0, f"{words} as {kind}: {done.returncode}: {done.stderr!r}")
                if kind == "html":
                    harm_free = bare.run(*words, "--format", "html")
                    check_html(done.stdout, f"{' '.join(words)} as html", harm_free.stdout)
                else:
                    {"text": check_text, "json": check_json, "csv": check_csv}[kind](done.stdout, f"{' '.join(words)} as {kind}")
        check_result(tool, "diff", ("diff", str(harm), str(slower)), ("diff", plain[0], plain[1]))
        check_result(tool, "diff three", ("diff", str(harm), str(slower), str(slowest)), ("diff", *plain))
        ncu, plain_ncu = folder / "ncu.csv", folder / "ncu_plain.csv"
        nsight_compute(ncu, True)
        nsight_compute(plain_ncu, False)
        check_result(tool, "profiled kernels", ("analyze", str(ncu)), ("analyze", str(plain_ncu)))
        old, new = folder / "old.json", folder / "new.json"
        old.write_text(json.dumps(poisoned(json.loads((BENCH / "old.json").read_text()))))
        long = poisoned(json.loads((BENCH / "new.json").read_text()))
        long["cases"][0]["note"] = "long " + "x" * 4000
        new.write_text(json.dumps(long))
        longest = folder / "longest.json"
        longest.write_text(json.dumps({**long, "device_name": LONG}))
        done = tool.run("bench", "--compare", str(old), str(longest))
        check_text(done.stderr, "a result with a name of 10 MB")
        expect(done.returncode == 1 and b'no text "device_name" of at most' in done.stderr, f"a name of 10 MB: {done.stderr[:500]!r}")
        check_result(tool, "comparison", ("bench", "--compare", str(old), str(new)),
                     ("bench", "--compare", str(BENCH / "old.json"), str(BENCH / "new.json")), codes=(0, 4, 5))
        config = json.loads((HERE.parents[1] / "data/models/Qwen--Qwen3-8B.json").read_text())
        model = folder / "=model<script>\x1b[2J.json"
        for key, value in (("_name_or_path", name + NAMES["terminal"]), ("extra_" + name, name)):
            config[key] = value
        model.write_text(json.dumps(config))
        check_result(tool, "model", ("model", str(model)), ("model", "qwen3-8b"))
        check_exports(tool, harm)
    print(f"{checked} checks, {len(problems)} problems")
    return 1 if problems or checked < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
