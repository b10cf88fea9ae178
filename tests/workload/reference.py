#!/usr/bin/env python3
"""Does a run of `llmprof workload --size tiny` again, in double precision and in another language, and compares.

    reference.py --binary LLMPROF --image image.rgb.zlib [--batch N] [--dtype fp32|bf16] [--device cuda:0 [--decode eager]]

Shares nothing with llmprof but the dump's format: reads the picture and the dumped weights, and computes everything else
itself: PNG, resize, patches, vision encoder, projector, decoder with its cache, greedy choice. Python's standard library
alone.
"""
import argparse
import array
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import zlib

BOUNDS = {"fp32": 1e-4, "bf16": 3e-2}  # relative L2 of logits


# ---- the picture -----------------------------------------------------------------------------------------------------

def read_picture(path):
    """Rows of RGB, packed: data/workload/make_bundle.py."""
    width, height = 640, 480
    raw = zlib.decompress(path.read_bytes())
    return width, height, [raw[3 * width * y:3 * width * (y + 1)] for y in range(height)]


def bicubic_weights(length, size):
    """For each output: first input and normalised weights, the kernel stretched where the picture shrinks."""
    def kernel(x):
        x = abs(x)
        if x <= 1:
            return 1.5 * x ** 3 - 2.5 * x ** 2 + 1
        return -0.5 * x ** 3 + 2.5 * x ** 2 - 4 * x + 2 if x < 2 else 0.0
    ratio = length / size
    stretch = max(1.0, ratio)
    out = []
    for i in range(size):
        middle = ratio * (i + 0.5)
        low, high = max(0, int(middle - 2 * stretch + 0.5)), min(length, int(middle + 2 * stretch + 0.5))
        weights = [kernel((j + 0.5 - middle) / stretch) for j in range(low, high)]
        total = math.fsum(weights)
        out.append((low, [w / total for w in weights]))
    return out


def patches_of(path, size, patch):
    width, height, rows = read_picture(path)
    across, down = bicubic_weights(width, size), bicubic_weights(height, size)
    planes = []
    for channel in range(3):
        narrow = []
        for row in rows:
            line = row[channel::3]
            narrow.append([sum(w * v for w, v in zip(weights, line[low:])) for low, weights in across])
        planes.append([[min(255.0, max(0.0, sum(w * narrow[low + k][x] for k, w in enumerate(weights))))
                        for x in range(size)] for low, weights in down])
    side = size // patch
    return [[(planes[c][py * patch + y][px * patch + x] / 255 - 0.5) / 0.5
             for c in range(3) for y in range(patch) for x in range(patch)]
            for py in range(side) for px in range(side)]


# ---- the model -------------------------------------------------------------------------------------------------------

def dot(a, b):
    return sum(map(float.__mul__, a, b))


def linear(x, w, b=None):
    out = [[dot(row, weights) for weights in w] for row in x]
    return out if b is None else [[v + c for v, c in zip(row, b[0])] for row in out]


def added(x, y):
    return [[a + b for a, b in zip(p, q)] for p, q in zip(x, y)]


def layernorm(x, gain, bias, epsilon):
    out = []
    for row in x:
        mean = math.fsum(row) / len(row)
        spread = math.sqrt(math.fsum((v - mean) ** 2 for v in row) / len(row) + epsilon)
        out.append([(v - mean) / spread * g + b for v, g, b in zip(row, gain[0], bias[0])])
    return out


def rmsnorm(x, gain, epsilon):
    out = []
    for row in x:
        size = math.sqrt(math.fsum(v * v for v in row) / len(row) + epsilon)
        out.append([v / size * g for v, g in zip(row, gain[0])])
    return out


def gelu(x):
    return [[0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3))) for v in row] for row in x]


def attend(query, keys, values):
    scores = [dot(query, key) / math.sqrt(len(query)) for key in keys]
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    total = math.fsum(weights)
    return [math.fsum(w * v[i] for w, v in zip(weights, values)) / total for i in range(len(query))]


def heads_of(row, first, count, size):
    return [row[first + h * size:first + (h + 1) * size] for h in range(count)]


def encode(patches, weights, config, epsilon):
    c = config["vision"]
    size = c["hidden"] // c["heads"]
    x = added(linear(patches, weights["vision.patch.weight"], weights["vision.patch.bias"]),
              weights["vision.position"])
    for i in range(c["layers"]):
        w = {k.removeprefix(f"vision.{i}."): v for k, v in weights.items() if k.startswith(f"vision.{i}.")}
        qkv = linear(layernorm(x, w["norm1.gain"], w["norm1.bias"], epsilon), w["qkv.weight"], w["qkv.bias"])
        split = [[heads_of(row, part * c["hidden"], c["heads"], size) for row in qkv] for part in range(3)]
        mixed = [sum((attend(split[0][t][h], [k[h] for k in split[1]], [v[h] for v in split[2]])
                      for h in range(c["heads"])), []) for t in range(len(x))]
        x = added(x, linear(mixed, w["out.weight"], w["out.bias"]))
        wide = linear(layernorm(x, w["norm2.gain"], w["norm2.bias"], epsilon), w["up.weight"], w["up.bias"])
        x = added(x, linear(gelu(wide), w["down.weight"], w["down.bias"]))
    x = layernorm(x, weights["vision.norm.gain"], weights["vision.norm.bias"], epsilon)
    side, merge = c["image"] // c["patch"], c["merge"]
    joined = [sum((x[(sy * merge + y) * side + sx * merge + k] for y in range(merge) for k in range(merge)), [])
              for sy in range(side // merge) for sx in range(side // merge)]
    joined = gelu(linear(joined, weights["projector.1.weight"], weights["projector.1.bias"]))
    return linear(joined, weights["projector.2.weight"], weights["projector.2.bias"])


class Decoder:
    def __init__(self, weights, config, epsilon):
        self.w, self.c, self.epsilon = weights, config["decoder"], epsilon
        self.cache = [([], []) for _ in range(self.c["layers"])]  # keys and values by token, then head
        self.position = 0

    def rotated(self, head, position):
        half = len(head) // 2
        out = [0.0] * len(head)
        for i in range(half):
            angle = position / self.c["rope_base"] ** (2 * i / len(head))
            c, s = math.cos(angle), math.sin(angle)
            out[i] = head[i] * c - head[i + half] * s
            out[i + half] = head[i + half] * c + head[i] * s
        return out

    def layer(self, i, x):
        c, size = self.c, self.c["head_size"]
        w = {name: self.w[f"decoder.{i}.{name}"] for name in ("norm1", "norm2", "qkv.weight", "out.weight",
                                                              "gate_up.weight", "down.weight")}
        keys, values = self.cache[i]
        mixed = []
        qkv = linear(rmsnorm(x, w["norm1"], self.epsilon), w["qkv.weight"])
        for t, row in enumerate(qkv):
            position, q_width, kv_width = self.position + t, c["heads"] * size, c["kv_heads"] * size
            queries = [self.rotated(h, position) for h in heads_of(row, 0, c["heads"], size)]
            keys.append([self.rotated(h, position) for h in heads_of(row, q_width, c["kv_heads"], size)])
            values.append(heads_of(row, q_width + kv_width, c["kv_heads"], size))
            group = c["heads"] // c["kv_heads"]
            mixed.append(sum((attend(q, [k[h // group] for k in keys], [v[h // group] for v in values])
                              for h, q in enumerate(queries)), []))
        x = added(x, linear(mixed, w["out.weight"]))
        both = linear(rmsnorm(x, w["norm2"], self.epsilon), w["gate_up.weight"])
        f = c["intermediate"]
        active = [[g / (1 + math.exp(-g)) * u for g, u in zip(row[:f], row[f:])] for row in both]
        return added(x, linear(active, w["down.weight"]))

    def step(self, x):
        """Logits behind the last of the new tokens."""
        for i in range(self.c["layers"]):
            x = self.layer(i, x)
        self.position += len(x)
        return linear(rmsnorm(x[-1:], self.w["decoder.norm"], self.epsilon), self.w["head.weight"])[0]


# ---- comparing -------------------------------------------------------------------------------------------------------

class Dump:
    def __init__(self, folder):
        self.manifest = json.loads((folder / "manifest.json").read_text())
        self.numbers = array.array("f")
        self.numbers.frombytes((folder / "tensors.bin").read_bytes())
        if sys.byteorder != "little":
            self.numbers.byteswap()

    def tensor(self, name):
        rows, columns, at = self.manifest["tensors"][name]
        return [list(map(float, self.numbers[at + r * columns:at + (r + 1) * columns])) for r in range(rows)]

    def weights(self):
        return {name.removeprefix("weight."): self.tensor(name)
                for name in self.manifest["tensors"] if name.startswith("weight.")}


def relative_l2(found, expected):
    flat = [(a, b) for p, q in zip(found, expected, strict=True) for a, b in zip(p, q, strict=True)]
    return math.sqrt(math.fsum((a - b) ** 2 for a, b in flat) / math.fsum(b * b for _, b in flat))


def check_weights(manifest, weights):
    """Numbers as documented: the hash of (seed, index), scaled; of some elements of the first linear."""
    def mix(z):
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 % 2 ** 64
        z = (z ^ z >> 27) * 0x94d049bb133111eb % 2 ** 64
        return z ^ z >> 31
    w = weights["vision.patch.weight"]
    seed = (mix(manifest["seed"]) + 1) % 2 ** 64
    for index in (0, 1, 7, len(w) * len(w[0]) - 1):
        hashed = mix((mix(seed) + (index + 1) * 0x9e3779b97f4a7c15) % 2 ** 64)
        expected = ((hashed >> 40) - 2 ** 23) / 2 ** 23 * math.sqrt(3 / len(w[0]))
        found = w[index // len(w[0])][index % len(w[0])]
        assert abs(found - expected) <= 2e-7 if manifest["dtype"] == "fp32" else 4e-3, (index, found, expected)


def compare(dump, image):
    manifest, weights = dump.manifest, dump.weights()
    bound, epsilon = BOUNDS[manifest["dtype"]], manifest["norm_epsilon"]
    check_weights(manifest, weights)
    vision = manifest["vision"]
    patches = patches_of(image, vision["image"], vision["patch"])
    errors = {"patches": relative_l2(dump.tensor("patches"), patches)}
    picture = encode(patches, weights, manifest, epsilon)
    errors["image"] = relative_l2(dump.tensor("image"), picture)
    worst, different = 0.0, 0
    logits = {}
    for number, sequence in enumerate(manifest["sequences"]):
        decoder = Decoder(weights, manifest, epsilon)
        x = picture + [weights["embedding"][token] for token in sequence["prompt"]]
        for step, token in enumerate(sequence["tokens"]):
            expected = decoder.step(x)
            name = "prefill.logits" if step == 0 else f"decode.{step - 1}.logits"
            if name not in logits:
                logits[name] = dump.tensor(name)
            worst = max(worst, relative_l2([logits[name][number]], [expected]))
            different += token != max(range(len(expected)), key=expected.__getitem__)
            x = [weights["embedding"][token]]  # the run's own token: one that differs does not spoil those behind it
    errors["logits"] = worst
    assert any(len(set(sequence["tokens"])) > 3 for sequence in manifest["sequences"]), "a run that repeats itself"
    print(f"{manifest['dtype']}: relative L2 " + ", ".join(f"{k} {v:.2e}" for k, v in errors.items()) +
          f" (bound {bound:g}); {different} tokens differ")
    return all(v <= bound for v in errors.values()) and (manifest["dtype"] != "fp32" or different == 0)


def environment(stand_in, folder):
    if stand_in is None:
        return None
    names = ("LLMPROF_CUDA", "LLMPROF_NVRTC", "LLMPROF_CUBLASLT", "LLMPROF_CUDNN")
    # Its kernels must not be taken for real ones later.
    return {**os.environ, **dict.fromkeys(names, stand_in), "LLMPROF_NVML": "/nowhere/libnvidia-ml.so",
            "XDG_CACHE_HOME": folder + "/cache"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--image", required=True, type=pathlib.Path)
    parser.add_argument("--batch", default="1")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--seed", default="2")  # not 1, whose tokens are all the same
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--decode", default="graph", help="on a GPU")
    parser.add_argument("--stand-in", help="a library in place of all of NVIDIA's")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [options.binary, "workload", "--size", "tiny", "--dump", folder, "--batch", options.batch,
                   "--dtype", options.dtype, "--seed", options.seed, "--device", options.device]
        command += ["--threads", options.threads] if options.device == "cpu" else ["--decode", options.decode]
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env=environment(options.stand_in, folder))
        if done.returncode != 0:
            if "bf16 products" in done.stderr or "could not be opened" in done.stderr:
                print("skipped: " + done.stderr.strip())
                return 77
            print(done.stdout + done.stderr)
            return 1
        return 0 if compare(Dump(pathlib.Path(folder)), options.image) else 1


if __name__ == "__main__":
    sys.exit(main())
