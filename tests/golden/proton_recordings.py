#!/usr/bin/env python3
"""Writes tests/golden/inputs/proton_*.hatchet and .hatchet_msgpack: what Triton's profiler Proton writes of two made-up programs.

The files have the form of Proton's public sources (docs/formats/proton.md says which): JSON with sorted keys and four blanks for each level, the
tree first and what is known of the GPUs behind it; of the first program also as MessagePack (msgpack_encoder.py). `proton_scopes`: scopes of a program (context="shadow", hook="triton") on one GPU, where a
scope states FLOPs, kernels state FLOPs and bytes of two widths, one scope has a kernel alone, and the hook launched kernels of its own.
`proton_python`: Python frames (context="python") on two GPUs, without stated work, and with a metric of the program.
"""

import json
import pathlib

from msgpack_encoder import pack_proton

FOLDER = pathlib.Path(__file__).resolve().parent / "inputs"


def node(name, *children, **metrics):
    return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": list(children)}


def kernel(name, count, ns, device="0", **metrics):
    return node(name, **{"count": count, "time (ns)": ns, "device_id": device, "device_type": "CUDA"}, **metrics)


def gpu(sms=132):
    return {"arch": "90", "bus_width": 5120, "clock_rate": 1980000, "memory_clock_rate": 2619000, "num_sms": sms}


def write(name, root, gpus, packed=False):
    document = [root, {"CUDA": gpus}]
    (FOLDER / f"{name}.hatchet").write_text("\n" + json.dumps(document, indent=4, sort_keys=True) + "\n")
    if packed:
        (FOLDER / f"{name}.hatchet_msgpack").write_bytes(pack_proton(document))


GEMM, NORM = "matmul_kernel", "_ZN2at6native28vectorized_layer_norm_kernelIN3c108BFloat16EfEEviT0_"


def block(number):
    return node(
        f"layer{number}",
        node("attention",
             kernel(GEMM, 64, 3_100_000 + 1000 * number, flops16=4.4e11, bytes=5.1e9),
             node("flash", kernel("_attn_fwd", 32, 1_700_000 + 500 * number), flops16=1.6e11, bytes=1.1e9)),
        node("mlp", kernel(GEMM, 96, 7_900_000, flops8=2.7e12, bytes=1.2e10), kernel("silu_mul", 32, 410_001, bytes=9.0e8)),
        kernel(NORM, 64, 220_000))


write("proton_scopes",
      node("ROOT",
           node("prefill", *[block(number) for number in range(3)], kernel("argmax", 1, 4_999),
                node("__proton_launch_metadata", kernel("cuda_kernel", 6, 13_000))),
           node("decode", node("loop", node("step", *[block(number) for number in range(2)], flops16=9.9e9), kernel("argmax", 31, 150_000))),
           kernel("memset_kernel", 3, 6_001),
           **{"count": 0, "time (ns)": 0, "flops16": 0, "flops8": 0, "bytes": 0}),
      {"0": gpu()}, packed=True)

PYTHON = ["/home/user/app/serve.py:main@12", "/home/user/app/serve.py:run@40", "/usr/lib/python3/site-packages/torch/nn/modules/module.py:_call_impl@1751"]


def frames(names, *leaves, **metrics):
    out = node(names[-1], *leaves, **metrics)
    for name in reversed(names[:-1]):
        out = node(name, out)
    return out


write("proton_python",
      node("ROOT",
           frames(PYTHON + [f"/home/user/app/model.py:forward@{line}" for line in range(100, 140)],
                  kernel(GEMM, 40, 900_000), kernel(GEMM + "_1", 40, 1_100_000, "1"), tokens=4096),
           kernel("copy_kernel", 2, 10_000, "1"),
           **{"count": 0, "time (ns)": 0}),
      {"0": gpu(), "1": gpu(114)})
