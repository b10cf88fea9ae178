#!/usr/bin/env python3
"""Writes the made-up recordings of cold programs that the golden cases read: python3 tests/golden/cold_recordings.py FOLDER

What is slow in them, and by how much, is planted here, so truth_test.py asks for it.
"""

import gzip
import json
import pathlib
import sys

KERNELS = 5  # of a step, each of a tenth of its usual time
PROMPT_MS, STEP_MS = 30.0, 10.0


class Recording:
    def __init__(self):
        self.now, self.id = 1000.0, 0  # us
        self.events = []

    def add(self, category, name, start, duration, **args):
        on = {"pid": 0, "tid": 7} if category == "kernel" else {"pid": 1, "tid": 1}
        self.events.append({"ph": "X", "cat": category, "name": name, **on, "ts": round(start, 3), "dur": round(duration, 3), "args": args})

    def step(self, name, tokens, sequences, context, usual_ms, slow=()):
        """One range that waits at its end; `slow`: (what the recorder says of it or None, ms) before its first kernel."""
        start = self.now
        at = start + 1
        for what, ms in slow:
            if what:
                self.add("overhead", what, at, ms * 1000)
            at += ms * 1000
        piece = usual_ms * 1000 / KERNELS
        embedded = [[32000, 4096], [sequences, tokens // sequences]]
        for kernel in range(KERNELS):
            self.id += 1
            ids = {"External id": self.id}
            if kernel == 0:
                self.add("cpu_op", "aten::embedding", at, piece / 2, **ids, **{"Input Dims": embedded, "Input type": ["c10::BFloat16", "long int"]})
            else:
                self.add("cpu_op", "aten::mm", at, piece / 2, **ids,
                         **{"Input Dims": [[tokens, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]})
            self.add("cuda_runtime", "cudaLaunchKernel", at + 1, 4, correlation=self.id, **ids)
            self.add("kernel", "gather" if kernel == 0 else f"gemm_{sequences}_{tokens // sequences}", at + piece / 3, piece / 2 + context / 100,
                     correlation=self.id, device=0, stream=7, grid=[132, 1, 1], block=[128, 1, 1], **ids)
            at += piece
        self.id += 1
        self.add("cuda_runtime", "cudaDeviceSynchronize", at - piece / 5, piece / 5, correlation=self.id)
        self.add("user_annotation", name, start, at - start + 1)
        self.now = at + 20

    def request(self, steps, sequences=1, prompt_slow=(), step_slow=()):
        self.step("prefill", 512 * sequences, sequences, 512, PROMPT_MS, prompt_slow)
        for i in range(steps):
            self.step("decode", sequences, sequences, 513 + i, STEP_MS, step_slow[i] if i < len(step_slow) else ())

    def write(self, path):
        document = {"schemaVersion": 1,
                    "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9,
                                          "computeMinor": 0, "numSms": 132}],
                    "traceEvents": self.events}
        with gzip.GzipFile(path, "wb", mtime=0) as file:
            file.write(json.dumps(document).encode())


def cold_start():
    """Four requests. The first loads modules, in its prompt and two steps, and has one slow step that nothing explains; the third is of
    another shape, for which code is compiled."""
    recording = Recording()
    loading = "Lazy Function Loading"
    recording.request(12, prompt_slow=[(loading, 250), (None, 20)], step_slow=[[(loading, 40)], [(loading, 5)], [(None, 8)]])
    recording.request(12, step_slow=[(), (), (), (), [(None, 90)]])  # and one that is no warm-up
    recording.request(12, sequences=4, step_slow=[[("Driver Compiler", 120)]])
    recording.request(12)
    return recording


def cold_only():
    """One request, in which modules are loaded, and three steps, each faster than the one before."""
    recording = Recording()
    recording.request(3, prompt_slow=[("Runtime Triggered Module Loading", 300), (None, 50)], step_slow=[[(None, 90)], [(None, 30)], [(None, 5)]])
    return recording


def main():
    folder = pathlib.Path(sys.argv[1])
    for make in (cold_start, cold_only):
        make().write(folder / f"{make.__name__}.json.gz")


if __name__ == "__main__":
    main()
