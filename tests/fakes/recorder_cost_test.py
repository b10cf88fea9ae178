"""What recording costs, as `llmprof peaks --recorder-only` measures it on a GPU that is not there: the recorder comes and
goes within one process."""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ARGUMENTS = None
GRAPHS = ("graph_256", "graph_32", "gpu_graph", "gpu_node")
KINDS = {*GRAPHS, "launch_0k", "launch_64k", "launch_512k", "launch_2048k", "wait", "launch_wait", "copy_in", "copy_out", "gpu_kernel"}


def measured(**settings):
    """Costs by kind of call, and how many processes made a graph."""
    stand_in = pathlib.Path(ARGUMENTS.stand_in)
    with tempfile.TemporaryDirectory() as folder:
        graphs = os.path.join(folder, "graphs")
        driver = str(stand_in / "libcuda.so.1")
        environment = {**os.environ, **dict.fromkeys(("LLMPROF_CUDA", "LLMPROF_NVRTC", "LLMPROF_CUDNN"), driver),
                       "LLMPROF_CUBLASLT": str(stand_in / "libcublasLt.so.13"), "LLMPROF_NVML": "/nowhere/libnvidia-ml.so",
                       "LLMPROF_HOME": folder, "FAKE_CUDA_CUPTI": str(stand_in.parent / "hooks/libcupti.so.13"),
                       "FAKE_CUDA_GRAPHS": graphs, **settings}
        done = subprocess.run([ARGUMENTS.binary, "peaks", "--recorder-only", "--quick", "--json", "--quiet", "--device", "cuda:0"],
                              env=environment, text=True, capture_output=True, timeout=300, check=False)
        assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        result = json.loads(done.stdout)
        makers = set(pathlib.Path(graphs).read_text(encoding="utf-8").split())
    return {row["kind"]: row for row in result["recorder"]}, len(makers)


class RecorderCost(unittest.TestCase):
    def check(self, costs):
        self.assertEqual(set(costs), KINDS)
        for kind, row in costs.items():
            self.assertGreater(row["plain_us"], 0, row)
            self.assertGreater(row["recorded_us"], 0, row)
            self.assertEqual(row["seen_us"] > 0, kind not in ("copy_out", "gpu_graph", "launch_wait"), row)
        self.assertGreater(costs["launch_0k"]["spread_us"], 0)
        # By the stand-in's clock of the GPU a node takes the same with and without.
        self.assertEqual(costs["gpu_node"]["cost_us"], 0)

    def test_graphs_are_timed_in_turns(self):
        costs, processes = measured()
        self.check(costs)
        for kind in ("graph_32", "graph_256"):
            self.assertGreater(costs[kind]["spread_us"], 0, "of one turn there is no spread")
        self.assertEqual(processes, 1)

    def test_graphs_take_a_second_process_where_cupti_stays_with_them(self):
        costs, processes = measured(FAKE_CUPTI_VERSION="27")
        self.check(costs)
        for kind in GRAPHS:
            self.assertEqual(costs[kind]["spread_us"], 0, costs[kind])
        self.assertEqual(processes, 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--stand-in", required=True, help="folder of libraries in place of NVIDIA's")
    ARGUMENTS = parser.parse_args()
    unittest.main(argv=["recorder_cost_test"])
