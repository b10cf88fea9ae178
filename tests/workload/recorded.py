#!/usr/bin/env python3
"""Recordings of the reference workload, by itself and by `llmprof run`: what reports say agrees with the workload's own
clock and with formulas, and bad use is answered. GPUs are hidden; --stand-in is a folder of libraries in place of NVIDIA's."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

PARTS = []


def part(function):
    PARTS.append(function)
    return function


class Tool:
    def __init__(self, binary, folder, stand_in, nvml):
        self.binary, self.folder, self.stand_in, self.nvml = binary, folder, stand_in, nvml
        self.env = {**os.environ, "LLMPROF_HOME": str(folder / "home"), "LLMPROF_CUDA": "/nowhere/libcuda.so.1",
                    "XDG_CACHE_HOME": str(folder / "cache")}

    def run(self, *words, code=0, env=None):
        done = subprocess.run([self.binary, *words], capture_output=True, text=True, env={**self.env, **(env or {})},
                              cwd=self.folder, check=False)
        assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done

    def json(self, *words, env=None):
        return json.loads(self.run(*words, env=env).stdout)

    def gpu(self):
        """A GPU that is not there. Its libraries have names by which the recorder knows them."""
        driver = str(self.stand_in / "libcuda.so.1")
        names = ("LLMPROF_CUDA", "LLMPROF_NVRTC", "LLMPROF_CUBLASLT", "LLMPROF_CUDNN")
        return {**dict.fromkeys(names, driver), "LLMPROF_CUBLASLT": str(self.stand_in / "libcublasLt.so.13"), "LLMPROF_NVML": "/nowhere/libnvidia-ml.so"}


class TimesDiffer(AssertionError):
    """Two clock readings of one moment differ by milliseconds where a busy machine takes the CPU away between them: a part
    that this happened to runs again, and what is wrong of itself is so every time."""


def near(found, expected, share, what):
    if not abs(found - expected) <= share * abs(expected):
        raise TimesDiffer(what, found, expected)


def stages_of(report):
    """By name; steps that a busy machine made slow from the first on ("decode [warm-up]") count with the others."""
    stages = {}
    for row in report["stages"]:
        name = row["name"].removesuffix(" [warm-up]")
        known = stages.setdefault(name, dict.fromkeys(("count", "tokens", "flops", "kernels"), 0))
        for field in known:
            known[field] += row[field] or 0
    return stages


@part
def report_agrees_with_the_run(tool):
    run = tool.json("workload", "--size", "tiny", "--new", "12", "--batch", "2", "--record", "run.llmprof", "--json")
    report = tool.json("analyze", "run.llmprof", "--json")
    stages = stages_of(report)
    assert list(dict.fromkeys(s["stage"] for s in run["stages"])) == [
        "preprocess", "vision encoder", "vision projector", "prefill", "decode"]
    for name in ("preprocess", "vision encoder", "vision projector", "prefill", "decode"):
        assert name in stages, (name, list(stages))
    assert stages["decode"]["count"] == 11, stages["decode"]["count"]
    # 2 sequences of 28 tokens: 2 FLOPs a weight and token, and the products of attention.
    h, f, layers, q, kv, vocabulary, size, tokens = 64, 176, 2, 64, 32, 512, 16, 28
    weights = layers * (h * (q + 2 * kv) + q * h + 3 * h * f)
    pairs = tokens * (tokens + 1) // 2
    expected = 2 * 2 * (weights * tokens + vocabulary * h) + 2 * layers * 4 * (q // size) * size * pairs
    assert abs(stages["prefill"]["flops"] - expected) <= 1e-9 * expected, (stages["prefill"]["flops"], expected)
    latency = report["latency"]
    near(latency["ttft_ms"]["p50"], run["ttft_ms"], 0.01, "TTFT")
    near_mean(latency["tpot_ms"]["mean"], run, 0.10, "TPOT")  # steps of some tens of microseconds
    assert all(check["ok"] for check in report["conservation"]), report["conservation"]
    assert not report["diagnostics"], report["diagnostics"]


def step_means(run):
    """Milliseconds from token to token: of all, and without those that a report may take for warm-up."""
    ends = [stage["start_ms"] + stage["ms"] for stage in run["stages"] if stage["stage"] in ("prefill", "decode")]
    steps = [end - before for before, end in zip(ends, ends[1:])]
    warm = [ms for ms in steps if ms <= 1.1 * statistics.median(steps)]
    return statistics.fmean(steps), statistics.fmean(warm)


def near_mean(found, run, share, what):
    most, least = step_means(run)
    if not (1 - share) * least <= found <= (1 + share) * most:
        raise TimesDiffer(f"{what}: {found}, by the workload {least} to {most}")


def near_rate(found, run, what):
    most, least = step_means(run)
    if not 0.99e3 / most <= found <= 1.01e3 / least:
        raise TimesDiffer(f"{what}: {found}, by the workload {1e3 / most} to {1e3 / least}")


@part
def recordings_have_the_times_of_the_run(tool):
    words = ("workload", "--size", "small", "--device", "cpu", "--json", "--new", "8")
    run = tool.json(*words, "--record", "run.llmprof")
    reports = {"recorded by itself": (run, tool.json("analyze", "run.llmprof", "--json"))}
    done = tool.run("run", "--report", "report.json", "--json", "-o", "session", "--", tool.binary, *words)
    reports["watched"] = (json.loads(done.stdout), json.loads((tool.folder / "report.json").read_text()))
    for how, (run, report) in reports.items():
        latency = report["latency"]
        assert latency["ttft_ms"]["n"] == 1, (how, latency)
        near(latency["ttft_ms"]["p50"], run["ttft_ms"], 0.01, f"TTFT, {how}")
        near_mean(latency["tpot_ms"]["mean"], run, 0.01, f"TPOT, {how}")
        near_rate(latency["output_tokens_per_s"], run, f"tokens/s, {how}")
        cold = sum(row["count"] for row in report["stages"] if row["name"] == "decode [warm-up]")
        if cold == run["cold_steps"]:  # a step at the threshold may be one by one clock and none by the other
            near(latency["headline"]["tpot_ms"], run["steady_tpot_ms"], 0.01, f"TPOT of the first lines, {how}")


@part
def same_tokens_on_any_number_of_threads(tool):
    runs = [tool.json("workload", "--size", "tiny", "--seed", "3", "--threads", str(n), "--json")["tokens"]
            for n in (1, 2)]
    assert runs[0] == runs[1], runs
    other = tool.json("workload", "--size", "tiny", "--seed", "4", "--json")["tokens"]
    assert other != runs[0]


@part
def one_token_has_no_tpot(tool):
    run = tool.json("workload", "--size", "tiny", "--new", "1", "--json")
    assert run["tpot_ms"] is None and run["new_tokens"] == 1
    text = tool.run("workload", "--size", "tiny", "--new", "1").stdout
    assert "TTFT" in text and "TPOT" not in text


@part
def watched_run_sees_the_stages(tool):
    tool.run("run", "--no-report", "-o", "session", "--", tool.binary, "workload", "--size", "tiny", "--new", "5")
    tool.run("analyze", "session", "--save", "session.llmprof", "--json", "-o", "session.json")
    text = (tool.folder / "session.json").read_text()
    assert '"decode"' in text and '"prefill"' in text, text[:3000]


@part
def bad_use(tool):
    for words, code, says in (
            (("--size", "smal"), 2, "--size small"),
            (("--device", "cuda:0"), 1, "expected the CUDA driver's library"),
            (("--device", "gpu7"), 2, "no device \"gpu7\""),
            (("--device", "cpu", "--decode", "graph"), 2, "a CPU has no graphs"),
            (("--dtype", "fp16"), 2, "expected fp32 or bf16, found fp16"),
            (("--dtype", "b16"), 2, "bf16"),
            (("--batch", "0"), 2, "--batch"),
            (("--threads", "4000"), 2, "threads"),
            (("--size", "tiny", "--record", "missing/run.llmprof"), 1, "missing/run.llmprof"),
            (("--size", "tiny", "--dump", "missing/dump"), 1, "missing/dump"),
            (("--size", "large", "--batch", "1024", "--prompt", "131072"), 1, "are free"),
            (("--format", "csv", "-o", "x"), 2, "json")):
        done = tool.run("workload", *words, code=code)
        assert says in done.stderr, (words, done.stderr)
        assert "try:" in done.stderr, (words, done.stderr)


@part
def without_a_gpu_the_cpu_is_taken(tool):
    done = tool.run("workload", "--size", "tiny", "--new", "2")
    assert "no GPU can be used here, the CPU is: expected the CUDA driver's library" in done.stderr, done.stderr
    for words in (("--device", "cpu"), ("--quiet",)):
        assert tool.run("workload", "--size", "tiny", "--new", "2", *words).stderr == ""


@part
def a_gpu_makes_the_tokens_of_the_cpu(tool):
    words = ("workload", "--size", "tiny", "--seed", "3", "--new", "5", "--json")
    cpu = tool.json(*words)
    graph, eager = (tool.json(*words, *more, env=tool.gpu()) for more in ((), ("--device", "cuda:0", "--decode", "eager")))
    assert graph["device"] == eager["device"] == "NVIDIA Fake" != cpu["device"]
    assert (graph["decode"], eager["decode"]) == ("graph", "eager") and "cuBLASLt" in graph["libraries"]
    assert graph["tokens"] == eager["tokens"] == cpu["tokens"], (graph["tokens"], eager["tokens"], cpu["tokens"])
    text = tool.run(*words[:-1], env=tool.gpu()).stdout
    assert "on NVIDIA Fake (cuda:0; decode steps as a CUDA graph)" in text, text


@part
def bad_use_of_a_gpu(tool):
    for words, code, says in (
            (("--size", "base"), 1, "of GPU memory"),
            (("--size", "tiny", "--device", "cuda:1"), 1, "expected a GPU number from 0 to 0, found 1"),
            (("--size", "tiny", "--device", "cuda:0", "--record", "run.llmprof"), 2, "llmprof run -- llmprof workload"),
            (("--size", "tiny", "--dtype", "fp16"), 2, "expected fp32 or bf16, found fp16")):
        done = tool.run("workload", *words, code=code, env=tool.gpu())
        assert says in done.stderr and "try:" in done.stderr, (words, done.stderr)
    # Only the CPU records itself, so it is taken where no device is named.
    assert tool.json("workload", "--size", "tiny", "--record", "run.llmprof", "--json", env=tool.gpu())["threads"] > 0
    # Without cuDNN it still runs, and says what that costs.
    run = tool.json("workload", "--size", "tiny", "--dtype", "bf16", "--new", "3", "--json",
                    env={**tool.gpu(), "LLMPROF_CUDNN": "/nowhere/libcudnn.so.9"})
    assert "cuDNN 9" in run["notes"][0], run["notes"]
    missing = tool.run("workload", "--size", "tiny", "--device", "cuda:0", code=1,
                       env={**tool.gpu(), "LLMPROF_CUBLASLT": "/nowhere/libcublasLt.so"})
    assert "expected cuBLASLt" in missing.stderr, missing.stderr


@part
def watched_run_on_a_gpu_has_its_times(tool):
    """Ranges and times only: what runs on a GPU that is not there, nobody records."""
    for decode in ("graph", "eager"):
        done = tool.run("run", "--report", f"{decode}.json", "--json", "-o", decode, "--", tool.binary, "workload",
                        "--size", "tiny", "--device", "cuda:0", "--decode", decode, "--json", env=tool.gpu())
        run, report = json.loads(done.stdout), json.loads((tool.folder / f"{decode}.json").read_text())
        counts = {name: stage["count"] for name, stage in stages_of(report).items()}
        for name, count in {"preprocess": 1, "vision encoder": 1, "vision projector": 1, "prefill": 1, "decode": 7}.items():
            assert counts.get(name) == count, (decode, counts)
        assert stages_of(report)["prefill"]["tokens"] == 28 and stages_of(report)["decode"]["tokens"] == 7
        near(report["latency"]["ttft_ms"]["p50"], run["ttft_ms"], 0.01, "TTFT")
        near_mean(report["latency"]["tpot_ms"]["mean"], run, 0.01, "TPOT")
        assert report["latency"]["output_tokens_per_s"] > 0, report["cannot_tell"]


@part
def recorded_kernels_on_a_gpu_give_the_times_too(tool):
    """With CUPTI's records of what the stand-in for the driver runs."""
    cupti = {**tool.gpu(), "FAKE_CUDA_CUPTI": str(tool.stand_in.parent / "hooks/libcupti.so.13")}
    for decode in ("graph", "eager"):
        done = tool.run("run", "--unrecorded-windows", "off", "--report", f"{decode}.json", "--json", "-o", decode, "--", tool.binary,
                        "workload", "--size", "tiny", "--device", "cuda:0", "--decode", decode, "--json", env=cupti)
        run, report = json.loads(done.stdout), json.loads((tool.folder / f"{decode}.json").read_text())
        stages = stages_of(report)
        for name, count in {"preprocess": 1, "vision encoder": 1, "vision projector": 1, "prefill": 1, "decode": 7}.items():
            assert stages[name]["count"] == count and stages[name]["kernels"] >= count, (decode, stages[name])
        # What preprocessing does on the GPU is its copy, and the copies of the prompt are no part of the projector.
        assert stages["preprocess"]["kernels"] == 1 and stages["vision projector"]["kernels"] == 4, (decode, stages)
        latency = report["latency"]
        assert latency["ttft_ms"]["n"] == 1, latency
        near(latency["ttft_ms"]["p50"], run["ttft_ms"], 0.01, "TTFT")
        near_mean(latency["tpot_ms"]["mean"], run, 0.01, "TPOT")
        near_rate(latency["output_tokens_per_s"], run, "tokens/s")
        assert all(check["ok"] for check in report["conservation"]), report["conservation"]


@part
def a_part_of_a_divided_gpu(tool):
    """MIG: it has a uuid and a share of its own, and NVML's readings are the whole GPU's. By stand-ins alone."""
    own, whole = "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f", "GPU-00000000-0000-0000-0000-000000000000"
    env = {**tool.gpu(), "FAKE_CUDA_CUPTI": str(tool.stand_in.parent / "hooks/libcupti.so.13"), "FAKE_CUDA_MIG": "1",
           "LLMPROF_NVML": tool.nvml, "FAKE_NVML_MIG": "1", "LD_LIBRARY_PATH": str(tool.stand_in)}  # the recorder asks for it by its name
    tool.run("run", "--unrecorded-windows", "off", "--report", "part.json", "--json", "-o", "part", "--", tool.binary, "workload", "--size", "tiny",
             "--device", own, "--decode", "graph", "--json", env=env)
    report = json.loads((tool.folder / "part.json").read_text())
    device, telemetry = report["device"], report["telemetry"]
    assert (device["sku"], device["part_of"], device["sm_count"]) == ("H200-SXM-141GB MIG 1g.18gb", whole, 16), device
    near(device["peaks"]["dram_gbs"]["value"], 4800 / 8, 1e-9, "an eighth of the bandwidth")
    near(device["peaks"]["bf16_tflops"]["value"], 989.4 * 16 / 132, 1e-3, "16 of 132 SMs")
    assert "16 of 132 SMs" in device["peaks"]["bf16_tflops"]["provenance"], device["peaks"]["bf16_tflops"]
    assert telemetry["sm_clock_mhz"]["p50"] == 1485 and telemetry["temperature_c"]["max"] == 55, telemetry
    assert telemetry["counter_samples"] == 0, "counters of the whole GPU are none of a part's"
    for figure in ("power_w", "energy_j", "energy_per_token_j", "memory_used_peak_bytes", "gpu_util_frac", "pcie_rx_bytes_per_s"):
        assert telemetry[figure] is None, (figure, telemetry[figure])
    assert all(stage["power_w"] is None and stage["energy_j"] is None for stage in report["stages"]), report["stages"]
    assert any("MIG" in row["why"] and "power" in row["question"] for row in report["cannot_tell"]), report["cannot_tell"]
    text = tool.run("analyze", "part", env=env).stdout
    assert "NVIDIA H200 MIG 1g.18gb" in text and "a part of a divided GPU (MIG)" in text, text
    # The same recording without parts: all figures are its own.
    env.pop("FAKE_CUDA_MIG")
    tool.run("run", "--unrecorded-windows", "off", "--report", "whole.json", "--json", "-o", "whole", "--", tool.binary, "workload", "--size", "tiny",
             "--device", own.replace("MIG-", "GPU-")[:12], "--decode", "graph", "--json", env=env)
    assert "part_of" not in json.loads((tool.folder / "whole.json").read_text())["device"]
    for name in ("MIG-ffffffff-0405-0607-0809-0a0b0c0d0e0f", "GPU-1"):
        wrong = tool.run("peaks", "--quick", "--device", name, code=1, env=env).stderr
        assert name in wrong and "nvidia-smi -L" in wrong, wrong


@part
def demo_runs_on_a_gpu(tool):
    text = tool.run("demo", "--no-html", env={**tool.gpu(), "FAKE_CUDA_MEMORY_BYTES": "420000000"}).stdout
    live, rest = text.split("1 of 2", 1)
    assert "this machine's GPU (NVIDIA Fake)" in live and "--device cuda:0 --size tiny" in live, live
    for word in ("on NVIDIA Fake (cuda:0", "Stages", "vision encoder", "prefill", "decode", "TTFT", "TPOT", "Look at"):
        assert word in live, (word, live)
    assert "machine's CPU" not in live and "on CPU" not in live and "2 of 2" in rest, live
    text = tool.run("demo", "--no-html", env={**tool.gpu(), "FAKE_CUDA_MEMORY_BYTES": "300000000"}).stdout
    assert "Not on a GPU: only" in text, text[:2000]


@part
def demo_is_live(tool):
    done = tool.run("demo", "--no-html")
    text = done.stdout
    assert "The live part ends here" not in text, text
    assert "Not on a GPU: expected the CUDA driver's library" in text, text
    live, rest = text.split("1 of 2", 1)
    for word in ("preprocess", "vision encoder", "prefill", "decode", "TTFT", "TPOT", "MFU"):
        assert word in live, (word, live)
    assert "Llama-3.1-8B" in rest and "2 of 2" in rest
    assert not (tool.folder / "home" / "ceilings").exists()  # a quick look is not kept
    recorded = tool.run("demo", "--recorded", "--no-html").stdout
    assert recorded.strip() == ("1 of 2" + rest).strip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True, type=os.path.abspath)
    parser.add_argument("--inject", help="built before this runs")
    parser.add_argument("--stand-in", required=True, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--nvml", required=True, type=os.path.abspath, help="a stand-in for it")
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args()
    failed = 0
    for function in PARTS:
        if options.parts and function.__name__ not in options.parts:
            continue
        for runs_left in (3, 2, 1, 0):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    function(Tool(options.binary, pathlib.Path(folder), options.stand_in, options.nvml))
                    print("ok    ", function.__name__)
                except AssertionError as error:
                    if "could not be opened" in str(error):
                        print("skipped: oneDNN is missing")
                        return 77
                    if runs_left > 0 and isinstance(error, TimesDiffer):
                        print("again ", function.__name__, error)
                        continue
                    failed += 1
                    print("FAILED", function.__name__, error)
                break
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
