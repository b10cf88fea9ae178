"""benchmarks/recorded_steps_target.py with programs that launch through the fake CUPTI, for recorded_steps_test.py.

FAKES names the folder with the fake libraries; PROGRAM is one of the benchmark's names: with "graph_waited" a graph is made
first, so that the recorder keeps a CUPTI before 13.0; "items" dies in its third turn; "eager_prefill" has its recorder elsewhere.
"""
import ctypes
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import recorded_steps_target as target


class Program:
    def __init__(self, cupti, dies_after=0):
        self.cupti, self.dies_after, self.steps = cupti, dies_after, 0
        cupti.fake_now.restype = ctypes.c_uint64
        cupti.fake_launch.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64]
        cupti.fake_graph_node.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32]
        cupti.fake_capture.argtypes = [ctypes.c_bool]
        cupti.fake_synchronize_stream.argtypes = [ctypes.c_void_p, ctypes.c_bool]

    def step(self):
        for _ in range(10):
            self.cupti.fake_launch(b"_Z6kernelPfi", self.cupti.fake_now(), 1000, 7, 0)
        self.wait()
        time.sleep(0.001)
        self.steps += 1
        if self.dies_after and self.steps == self.dies_after:
            raise RuntimeError("the stand-in dies")

    def wait(self):
        self.cupti.fake_synchronize_stream(None, False)


def main():
    options = target.options_of(None, target.PROGRAMS)
    fakes = pathlib.Path(os.environ["FAKES"])
    cupti = ctypes.CDLL(str(fakes / "libcupti.so.13"))
    ctypes.CDLL(str(fakes / "libcudart.so.13"))
    library = target.load_alone(options.library)
    if options.program != "eager_prefill":
        ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()  # as the driver does in cuInit
    state = target.AloneState()
    library.llmprof_alone_state(ctypes.byref(state))
    if state.subscriptions:
        target.say("NOTE", "CUPTI is in the process although recording has not been started")
    program = Program(cupti, 60 if options.program == "items" else 0)
    if options.program == "graph_waited":
        ctypes.CDLL(None).cudaStreamBeginCapture(None, 0)  # by the recorder's hook: CUPTI, still out, sees nothing of it
        cupti.fake_graph_node(1, 0, 0)
        cupti.fake_capture(False)
    target.say("READY", {})
    target.run(options, library, program)


if __name__ == "__main__":
    main()
