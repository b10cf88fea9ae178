#!/usr/bin/env python3
"""When CUPTI can leave a program of CUDA graphs: what a graph's first launch has to do with it (docs/adr 24).

    python3 benchmarks/graph_uploads.py [--state FILE]

Each case runs in a process of its own: the graph of tests/gpu/held_out_causes_4/parcel_office.py, whose freed memory of CUPTI's
is no longer mapped when CUPTI has left, so that a write to it ends the program. CUPTI is called from Python as
graphs_and_cupti.py does; llmprof is not involved. Needs PyTorch with CUPTI 13; about 6 seconds a case.
"""
import argparse
import ctypes as C
import json
import os
import pathlib
import subprocess
import sys

from graphs_and_cupti import ALL_KINDS, Cupti

PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "tests/gpu/held_out_causes_4"
CASES = {
    "first launched with records on": (),
    "instantiated with records off": ("off",),
    "instantiated with CUPTI out of the process": ("out",),
    "instantiated and launched with records off": ("off", "launch"),
    "instantiated and uploaded with records off": ("off", "upload"),
    "that, then updated with records on": ("off", "upload", "update"),
    "that, then launched with records off and on": ("off", "upload", "silent", "again"),
    "that, then launched with records off before CUPTI left": ("off", "upload", "silent"),
    "uploaded when CUPTI had left": ("upload later",),
    "updated when CUPTI had left": ("update later",),
    "instantiated anew when CUPTI had left": ("instantiate later",),
}


class Case:
    def __init__(self, words):
        import torch
        self.torch, self.words, self.stage = torch, words, "before CUPTI left"
        self.driver = C.CDLL("libcuda.so.1")
        sys.path.insert(0, str(PROGRAMS))
        source = (PROGRAMS / "parcel_office.py").read_text(encoding="utf-8").rsplit("\nmain()", 1)[0]
        self.program = {"__name__": "parcel_office"}
        exec(compile(source, "parcel_office.py", "exec"), self.program)
        sys.argv[1:] = []
        import common_model  # found since the program was read
        self.program["begin"]("")
        common_model.replayed = self.replayed
        torch.zeros(1, device="cuda")
        self.cupti = Cupti(os.path.dirname(torch.__file__))
        self.cupti.kinds = ALL_KINDS

    def checked(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: {result}")

    def captured(self, step, stream):
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph(keep_graph=True)
        with self.torch.cuda.graph(graph, stream=stream):
            step()
        return graph

    def replayed(self, step, stream=None):
        stream = stream or self.torch.cuda.Stream()
        stream.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(stream):
            step()
        self.torch.cuda.current_stream().wait_stream(stream)
        graph = self.captured(step, stream)
        if "off" in self.words:
            self.cupti.off()
        if "out" in self.words:
            self.leave()
        self.graph, self.step, self.stream = graph, step, stream
        graph.instantiate()
        if "launch" in self.words:
            graph.replay()
        if "upload" in self.words:
            self.upload()
        self.torch.cuda.synchronize()
        if "off" in self.words:
            self.cupti.on()
        if "out" in self.words:
            self.come()
        return graph.replay

    def executable(self):
        return C.c_void_p(self.graph.raw_cuda_graph_exec())

    def upload(self):
        self.checked("cuGraphUpload", self.executable(), C.c_void_p(self.stream.cuda_stream))

    def update(self):
        self.other = self.captured(self.step, self.stream)
        self.checked("cuGraphExecUpdate_v2", self.executable(), C.c_void_p(self.other.raw_cuda_graph()), (C.c_uint64 * 8)())

    def come(self):
        self.cupti.subscribe()
        self.cupti.callbacks()
        self.cupti.on()

    def leave(self):
        self.cupti.flush(0)
        self.cupti.finalize()

    def steps(self, count, begin=True):
        if begin:
            self.office.start(self.prompt)
        for i in range(count):
            self.office.following(i)
        self.torch.cuda.synchronize()

    def run(self):
        self.come()
        self.office = self.program["Office"](self.program["Model"](self.program["SHAPE"]), 0)
        self.prompt = self.program["prompts"](0, self.program["BATCH"], self.program["PROMPT"], self.program["VOCABULARY"])
        self.steps(1)
        self.steps(20)
        if "update" in self.words:
            self.update()
            self.steps(10, begin=False)
        if "silent" in self.words:
            self.cupti.off()
            self.steps(10, begin=False)
        if "again" in self.words:
            self.cupti.on()
            self.steps(10, begin=False)
        for turn in "first", "second":
            self.leave()
            self.stage = f"after CUPTI left for the {turn} time"
            if "upload later" in self.words:
                self.upload()
            if "update later" in self.words:
                self.update()
            if "instantiate later" in self.words:
                self.graph.instantiate()
            self.steps(20, begin=False)
            self.come()
            self.stage = f"after CUPTI came back for the {turn} time"
            self.steps(20)

    def outcome(self):
        try:
            self.run()
            return {"runs": True, "cupti_failed": self.cupti.failed}
        except RuntimeError as error:
            return {"runs": False, "failed": self.stage, "error": str(error).splitlines()[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", default="graph_uploads.json", help="file for the results")
    parser.add_argument("--one", choices=CASES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(Case(CASES[args.one]).outcome()), flush=True)
        os._exit(0)  # a context that has failed cannot be torn down
    results = {}
    for name in CASES:
        done = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        results[name] = json.loads(lines[-1]) if lines else {"error": done.stderr.strip()[-300:]}
        print(f"{name}: {results[name]}", flush=True)
        with open(args.state, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
