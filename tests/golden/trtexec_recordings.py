#!/usr/bin/env python3
"""Writes tests/golden/inputs/trtexec_*.json: what TensorRT's trtexec exports of one engine.

The files have the forms of TensorRT's public sources and documentation (docs/formats/trtexec.md says which): --exportTimes as newer versions write
it and, in a second file, as older ones do; --exportProfile; --exportLayerInfo of an engine that was built with detailed verbosity. Numbers
have six digits, as C++ streams write them. Of the profile two layers are not in the layer information (copies between formats), of the layer
information one is not in the profile; two layers have one name.
"""

import json
import pathlib
import random

random.seed(23)
FOLDER = pathlib.Path(__file__).resolve().parent / "inputs"
BLOCKS, HIDDEN, TOKENS = 4, 768, 128


def digits(value):
    return f"{value:.6g}"


def tensor(name, dimensions, form="Half"):
    return {"Name": name, "Location": "Device", "Dimensions": dimensions, "Format/Datatype": form}


def layer(name, kind, inputs, outputs, tactic, stream=0, metadata=""):
    out = {"Name": name, "LayerType": kind, "Inputs": inputs, "Outputs": outputs, "ParameterType": kind, "TacticName": tactic,
           "TacticValue": f"0x{random.getrandbits(64):016x}", "StreamId": stream, "Metadata": metadata}
    if not tactic:
        del out["TacticName"]
    return out


layers, times = [], []  # times: (name, ms of an iteration or None where it did not run)
activation = [1, TOKENS, HIDDEN]
layers.append(layer("/embed/Gather", "gather", [tensor("ids", [1, TOKENS], "Int32"), tensor("weight", [30522, HIDDEN])],
                    [tensor("x0", activation)], "", 0, "[ONNX Layer: /embed/Gather]"))
times.append(("/embed/Gather", 0.0061))
times.append(("Reformatting CopyNode for Input Tensor 0 to /block0/qkv/MatMul", 0.0042))
for block in range(BLOCKS):
    for part, width, ms in (("qkv", 3 * HIDDEN, 0.031), ("out", HIDDEN, 0.0124), ("up", 4 * HIDDEN, 0.0402), ("down", HIDDEN, 0.0391)):
        name = f"/block{block}/{part}/MatMul"
        layers.append(layer(name, "gemm", [tensor("a", activation), tensor("b", [HIDDEN, width])], [tensor("c", [1, TOKENS, width])],
                            f"sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x{random.choice([64, 128])}x64", 0, f"[ONNX Layer: {name}]"))
        times.append((name, ms * random.uniform(0.9, 1.1)))
    name = f"/block{block}/attn/Softmax+/block{block}/attn/MatMul_1"
    layers.append(layer(name, "kgen", [tensor("q", [12, TOKENS, 64]), tensor("mask", [-1, TOKENS], "N/A due to dynamic shapes")],
                        [tensor("o", [12, TOKENS, 64])], "__myl_MaxSubExpSumDivMul_0x", 1 if block % 2 else 0,
                        f"[ONNX Layer: /block{block}/attn/Softmax]\x1e[ONNX Layer: /block{block}/attn/MatMul_1]"))
    times.append((name, 0.0182 * random.uniform(0.9, 1.1)))
    layers.append(layer("__myl_AddCastMeanSubMul", "kgen", [tensor("x", activation)], [tensor("y", activation)], "__myl_AddCastMeanSubMul_0x", 0))
    times.append(("__myl_AddCastMeanSubMul", 0.0049 * random.uniform(0.9, 1.1)))
layers.append(layer("/head/If_else", "Shuffle", [tensor("x", activation)], [tensor("y", [1, HIDDEN])], "", 0))
layers.append(layer("/pool/Slice", "NoOp", [tensor("x", activation)], [tensor("y", [1, HIDDEN])], "", 0))  # has no kernel, and no time
times.append(("/head/If_else", None))
times.append(("Reformatting CopyNode for Output Tensor 0 to /head/MatMul", 0.0029))

COUNT = 250
totals = [0 if ms is None else sum(ms * random.gauss(1, 0.02) for _ in range(COUNT)) for _, ms in times]
medians = [0 if ms is None else total / COUNT * random.uniform(0.995, 1) for (_, ms), total in zip(times, totals)]
lines = ["[", f'  {{ "count" : {COUNT} }}']
for (name, ms), total, median in zip(times, totals, medians):
    mean = "-nan" if ms is None else digits(total / COUNT)  # 0 / 0 of a layer that never ran
    lines.append(f', {{ "name" : "{name}", "timeMs" : {digits(total)}, "averageMs" : {mean}, "medianMs" : {digits(median)}, '
                 f'"percentage" : {digits(total / sum(totals) * 100)} }}')
(FOLDER / "trtexec_profile.json").write_text("\n".join(lines + ["]"]) + "\n")

text = ",".join(json.dumps(one, indent=2) for one in layers)
(FOLDER / "trtexec_layers.json").write_text('{"Layers": [' + text + '],\n"Bindings": ["ids"\n,"logits"\n]}\n')


def queries(count, at, older):
    lines, sep = ["["], "  "
    for _ in range(count):
        h2d, compute, d2h = random.uniform(0.011, 0.013), random.gammavariate(60, 0.01), random.uniform(0.004, 0.005)
        if random.random() < 0.03:
            compute *= 1.8
        enqueue = random.uniform(0.2, 0.26)
        start = at + enqueue
        pairs = {"startEnqMs": at, "endEnqMs": at + enqueue, "startH2dMs": start, "endH2dMs": start + h2d, "startComputeMs": start + h2d,
                 "endComputeMs": start + h2d + compute, "startD2hMs": start + h2d + compute, "endD2hMs": start + h2d + compute + d2h,
                 "h2dMs": h2d, "computeMs": compute, "d2hMs": d2h, "latencyMs": h2d + compute + d2h}
        if older:
            pairs["endToEndMs"] = h2d + compute + d2h + 0.3
        lines.append(sep + "{ " + ", ".join(f'"{key}" : {digits(value)}' for key, value in pairs.items()) + " }")
        sep, at = ", ", at + compute + 0.002
    return "\n".join(lines + ["]"]) + "\n"


(FOLDER / "trtexec_times.json").write_text(queries(400, 210.0, False))
(FOLDER / "trtexec_times_older.json").write_text(queries(60, 90210.0, True))
