#!/usr/bin/env python3
"""CSV, JSON and SQLite of one recording say the same, and docs/formats/sqlite.md says what is in them.

Every table of the database equals its CSV file and its table in the JSON document, cell by cell; foreign keys resolve;
tables and columns are those of docs/metrics.md; views and their columns are those of docs/formats/sqlite.md and can be
run. An export that fails leaves nothing behind.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import resource
import sqlite3
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
INPUTS = ROOT / "tests/golden/inputs"
RECORDINGS = ("kineto_qwen2.5-0.5b_memory_stack.json.gz", "serving_annotations.json.gz", "pipeline_two_gpus.json.gz",
              "hostile_names.json.gz", "streams.spool", "dmon_dated.txt", "smi_query_gpus.csv", "dcgm_dmon.txt", "no_gpu_events.json.gz", "nsys_2026.sqlite",
              "ncu_details_prefill.csv.gz", "cublas.log", "serving_vllm.json", "client_stages.jsonl", "metrics_openmetrics.txt",
              "memory_snapshot.pickle.gz", "trtexec_profile.json", "trtexec_layers.json", "trtexec_times_older.json", "nccl_inspector_4101.json", "proton_scopes.hatchet",
              HERE / "live.llmprof")
OWN = ("facts", "windows", "diagnostics")  # tables of an export that no trace has
FORMULA = re.compile(r"'+[=+\-@\t\n\uff1d\uff0b\uff0d\uff20]")

problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)
    return condition


def undone(text):
    """The text of a CSV field before it was made harmless (docs/output.md)."""
    if FORMULA.match(text):
        text = text[1:]
    return re.sub(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})", lambda found: chr(int(found.group(1) or found.group(2), 16)), text)


def signed(text):
    """As SQLite has it: above 2^63 integers keep their bits."""
    number = int(text)
    return number - (1 << 64) if number >= 1 << 63 else number


def as_stored(kind, text):
    if kind == "TEXT":
        return undone(text)
    if text == "":
        return None
    return float(text) if kind == "REAL" else signed(text)


def same_table(name, table, columns, stored, rows, document):
    header, *rows = rows
    expect(header == [column for column, _ in columns], f"{name}: {table}: columns {header}, in SQLite {columns}")
    expect(document["columns"] == header, f"{name}: {table}: columns of JSON: {document['columns']}")
    if not expect(len(rows) == len(stored) == len(document["rows"]), f"{name}: {table}: {len(rows)} rows in CSV, "
                  f"{len(stored)} in SQLite, {len(document['rows'])} in JSON"):
        return 0
    cells = 0
    for number, (row, other, third) in enumerate(zip(rows, stored, document["rows"])):
        expected = [as_stored(kind, text) for (_, kind), text in zip(columns, row)]
        third = [value - (1 << 64) if isinstance(value, int) and value >= 1 << 63 else value for value in third]
        cells += len(row)
        if not expect(int(row[0]) == number, f"{name}: {table}: row {number} is called {row[0]}"):
            break
        if not expect(expected == list(other) == third, f"{name}: {table}: row {number}: CSV {expected}, SQLite "
                      f"{list(other)}, JSON {third}"):
            break
    return cells


def declared():
    """Tables of a trace with their columns, as docs/metrics.md has them."""
    out = {}
    for part in re.split(r"^## ", (ROOT / "docs/metrics.md").read_text(), flags=re.M)[1:]:
        if part.startswith(("Recording\n", "Derived\n")):
            for section in re.split(r"^### ", part, flags=re.M)[1:]:
                out[section.split("\n", 1)[0]] = re.findall(r"^\| `(\w+)` \|", section, re.M)
    return out


def documented(heading):
    """The table below a heading of docs/formats/sqlite.md: the first cell of each row, and the names in the last."""
    page = (ROOT / "docs/formats/sqlite.md").read_text()
    part = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.M | re.S).group(1)
    return {found.group(1): re.findall(r"`(\w+)`", found.group(2))
            for found in re.finditer(r"^\| `(\w+)` \|.*\|([^|]*)\|$", part, re.M)}


def check_schema(name, database, tables):
    known = declared()
    for table, columns in tables.items():
        names = [column for column, _ in columns][1:]
        if table in OWN:
            expect(documented("Tables of the export").get(table) == names, f"{table}: {names} is not what sqlite.md says")
        elif table != "columns":
            expect(known.get(table) == names, f"{table}: {names}, in metrics.md {known.get(table)}")
    described = {(table, column) for table, column in database.execute('SELECT "table", "column" FROM "columns"')}
    expect(described == {(table, column) for table in tables if table != "columns" for column, _ in tables[table]},
           f"{name}: the table `columns` does not describe what is there")
    views = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'view'")}
    pages = documented("Views")
    expect(views == set(pages), f"views {views}, in sqlite.md {set(pages)}")
    for view in views:
        cursor = database.execute(f'SELECT * FROM "{view}"')
        found = [column[0] for column in cursor.description]
        expect(found == pages.get(view), f"{view}: columns {found}, in sqlite.md {pages.get(view)}")
        rows = cursor.fetchall()
        expect(rows or not name.startswith("serving_annotations"), f"{name}: {view} is empty")


def check_views(name, database):
    """Sums through the views are those of the tables."""
    def value(sql):
        return database.execute(sql).fetchone()[0]
    for view, table in (("gpu_timeline", "gpu_ops"), ("operator_calls", "ops"), ("gap_places", "gaps"), ("step_times", "steps")):
        expect(value(f"SELECT COUNT(*) FROM {view}") == value(f"SELECT COUNT(*) FROM {table}"), f"{name}: {view}: rows")
    expect(value("SELECT SUM(total_ns) FROM kernel_totals") == value("SELECT SUM(dur_ns) FROM gpu_ops"), f"{name}: kernel_totals")
    expect(value("SELECT SUM(total_ns) FROM idle_by_cause") == value("SELECT SUM(dur_ns) FROM gaps"), f"{name}: idle_by_cause")


def check_recording(binary, recording, folder):
    place = folder / recording.name
    place.mkdir()
    for kind, path in (("csv", "csv"), ("sqlite", "trace.sqlite"), ("json", "trace.json")):
        done = subprocess.run([binary, "export", recording, "--to", kind, "-o", place / path, "-q"], capture_output=True,
                              text=True, timeout=250, check=False)
        if not expect(done.returncode in (0, 3), f"{recording.name} to {kind}: exit {done.returncode}: {done.stderr}"):
            return 0
        expect(not done.stdout and not done.stderr, f"{recording.name} to {kind} prints {done.stdout}{done.stderr}")
    name = recording.name
    expect(sorted(entry.name for entry in place.iterdir()) == ["csv", "trace.json", "trace.sqlite"], f"{name}: files left over")
    database = sqlite3.connect(place / "trace.sqlite")
    document = json.loads((place / "trace.json").read_text())
    expect(document["schema"] == "llmprof.trace/1", f"{name}: schema {document['schema']}")
    names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid")]
    tables = {table: [(row[1], row[2]) for row in database.execute(f'PRAGMA table_info("{table}")')] for table in names}
    files = {path.stem for path in (place / "csv").iterdir()}
    expect(files == set(names) - {"columns"} == set(document["tables"]), f"{name}: tables {files ^ set(names)}")
    cells = 0
    for table in sorted(files & set(names)):
        with open(place / "csv" / f"{table}.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        stored = database.execute(f'SELECT * FROM "{table}" ORDER BY "row"').fetchall()
        cells += same_table(name, table, tables[table], stored, rows, document["tables"][table])
    expect(not database.execute("PRAGMA foreign_key_check").fetchall(), f"{name}: foreign keys that lead nowhere")
    expect(database.execute("PRAGMA integrity_check").fetchone()[0] == "ok", f"{name}: integrity")
    expect(len(database.execute('PRAGMA foreign_key_list("gpu_links")').fetchall()) == 6, f"{name}: foreign keys of gpu_links")
    check_schema(name, database, tables)
    check_views(name, database)
    database.close()
    return cells


def check_failures(binary, folder):
    """No space: an error that names the file, and nothing where the export would be. What was there stays."""
    recording = INPUTS / "serving_annotations.json.gz"

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
    for kind in ("perfetto", "sqlite", "nsys-sqlite", "csv", "json"):
        place = folder / f"full-{kind}"
        place.mkdir()
        if kind != "csv":
            (place / "out").write_text("before")
        done = subprocess.run([binary, "export", recording, "--to", kind, "-o", place / "out"], capture_output=True,
                              text=True, timeout=250, check=False, preexec_fn=limit)
        expect(done.returncode == 1 and "expected to write" in done.stderr and str(place / "out") in done.stderr,
               f"{kind} on a full disk: exit {done.returncode}: {done.stderr}")
        left = [(path.name, path.read_bytes()[:20]) for path in place.iterdir()]
        expect(left == ([] if kind == "csv" else [("out", b"before")]), f"{kind} on a full disk leaves {left}")
    full = subprocess.run([binary, "export", recording, "--to", "json", "-o", "/dev/full"], capture_output=True, text=True,
                          timeout=250, check=False)
    expect(full.returncode == 1 and os.path.exists("/dev/full"), f"/dev/full: exit {full.returncode}: {full.stderr}")
    # Through a pipe, and through a link to where it leads.
    piped = subprocess.run([binary, "export", recording, "--to", "json", "-o", "/dev/stdout"], capture_output=True,
                           timeout=250, check=False)
    expect(piped.returncode == 0 and json.loads(piped.stdout)["tables"], "no JSON in a pipe")
    link = folder / "link.json"
    link.symlink_to(folder / "full-json" / "out")
    subprocess.run([binary, "export", recording, "--to", "json", "-o", link], check=True, timeout=250)
    expect(link.is_symlink() and (folder / "full-json" / "out").read_bytes() == piped.stdout, "a link is replaced, or not followed")


def check_not_recordings(binary, folder):
    """An export is no recording: `analyze` says what it is."""
    for kind, said in (("json", "tables that llmprof export wrote"), ("sqlite", "a database that llmprof export wrote")):
        subprocess.run([binary, "export", INPUTS / "two_streams.json.gz", "--to", kind, "-o", folder / f"own.{kind}"], check=True,
                       timeout=250)
        done = subprocess.run([binary, "analyze", folder / f"own.{kind}"], capture_output=True, text=True, timeout=250, check=False)
        expect(done.returncode == 1 and said in done.stderr, f"analyze of {kind}: exit {done.returncode}: {done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    cells = 0
    with tempfile.TemporaryDirectory(prefix="llmprof-export-") as folder:
        for recording in RECORDINGS:
            cells += check_recording(binary, INPUTS / recording, pathlib.Path(folder))
        check_failures(binary, pathlib.Path(folder))
        check_not_recordings(binary, pathlib.Path(folder))
    print("\n".join(problems[:40]))
    print(f"{cells} cells compared, {len(problems)} problems")
    sys.exit(1 if problems or cells < 100000 else 0)


if __name__ == "__main__":
    main()
