#!/usr/bin/env python3
"""How fast `llmprof analyze` reads an export of Nsight Systems, from the file to the whole report, and in how much memory.

    python3 benchmarks/nsys_speed.py [--folder DIR] [--runs N] [--sizes 300MB,1GB] [--cores 2] [--write NAME]

The export is made here, with the tables and columns of the golden recordings (tests/golden/nsys_recordings.py): prefills and
decode steps of 32 layers whose kernels are launched one by one, or, in every second request, by a CUDA graph whose nodes
were recorded; a range per layer and step, a copy and a wait per step. Each run is a fresh process pinned to the given number
of cores, with the file in the page cache. Reported: wall time and peak resident memory. The file is read, not mapped, so
none of its pages count as memory of the process.
"""

import argparse
import sys

from import_speed import ROOT, in_words, parse_size, run_benchmark, run_once, summary, warm, write_rows

sys.path.insert(0, str(ROOT / "tests/golden"))
from nsys_recordings import LAYER, SCHEMA_2023, US, Export, Process, describe  # noqa: E402

LAYERS, STEPS = 32, 64


class LargeExport(Export):
    """The same rows, written many at a time."""

    def __init__(self, path):
        super().__init__(path, SCHEMA_2023)
        self.database.commit()
        for setting in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-65536"):
            self.database.execute(f"PRAGMA {setting}")
        self.rows = {}

    def add(self, table, **values):
        if table not in self.made:
            return super().add(table, **values)
        rows = self.rows.setdefault(table, [])
        rows.append([values.get(name) for name in self.schema[table].split()])
        if len(rows) >= 4096:
            self.flush(table)

    def flush(self, table):
        rows = self.rows.pop(table)
        self.database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    def close(self):
        for table in list(self.rows):
            self.flush(table)
        self.database.commit()
        self.database.close()


def request(export, one, graph):
    """A prefill and its decode steps."""
    for step in range(STEPS + 1):
        prefill = step == 0
        start = one.host
        launch = one.call("cudaGraphLaunch_v10000", 12 * US) if graph and not prefill else None
        for layer in range(LAYERS):
            inner = one.host
            for number, (name, length) in enumerate(LAYER):
                node = (5 << 32) + layer * len(LAYER) + number if launch else None
                one.kernel(name, length * US * (3 if prefill else 1), launch, node, (132 if prefill else 32, 1, 1))
            if launch is None:
                one.span(f"layer {layer}", inner)
        one.copy("cudaMemcpyAsync_v3020", 2, 2, 0, 4, US)
        one.wait()
        one.span("prefill" if prefill else "decode", start)


def make(folder, size):
    path = folder / f"nsys_{size // 1000000}MB.sqlite"
    if path.exists() and abs(path.stat().st_size - size) < 0.05 * size:
        return path
    export = LargeExport(path)
    describe(export, 1)
    one = Process(export, 31415)
    export.add("ThreadNames", nameId=export.text("python3"), priority=20, globalTid=one.thread)
    requests = 0
    while path.stat().st_size < size - 500_000:
        request(export, one, requests % 2 == 1)
        requests += 1
        export.database.commit()
    export.close()
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="300MB,1GB")
    run_benchmark(parser, measure, runs=5)


def measure(options, folder, cores):
    rows = []
    for size in options.sizes.split(","):
        path = make(folder, parse_size(size))
        warm(path)
        runs = [run_once([options.bin / "llmprof", "analyze", path, "--json"], cores) for _ in range(options.runs)]
        row = {"file_bytes": path.stat().st_size, **summary(runs)}
        rows.append(row)
        print(f"{row['file_bytes'] / 1e6:6.0f} MB  {in_words(row)} = {row['peak_bytes'] / row['file_bytes']:.2f} of the file", flush=True)
    write_rows(options, cores, rows)


if __name__ == "__main__":
    main()
