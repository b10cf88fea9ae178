#!/usr/bin/env python3
"""Snapshots of PyTorch's CUDA memory as Python's pickle writes them, of an allocator that is simulated here.

    memory_recordings.py --megabytes 100 -o snapshot.pickle      # large ones, to measure with
    memory_recordings.py --seeds tests/fuzz/corpus               # small ones, to start fuzzing from

The simulation says of every allocation which code llmprof must name, by another rule than searching its frames again.
"""

import argparse
import itertools
import json
import pathlib
import pickle
import random

PACKAGES = "/opt/venv/lib/python3.12/site-packages/"
CPP = [(f"at::native::kernel_{i}(at::Tensor const&, long)", "??" if i % 3 else "RegisterCUDA_0.cpp") for i in range(200)]
TORCH = [(f"forward_{i}", PACKAGES + f"torch/nn/modules/module_{i}.py") for i in range(20)]
OWN = [(f"forward_{i}", PACKAGES + f"model/layer_{i % 7}.py") for i in range(40)] + [("main", "/home/me/serve.py"), ("<lambda>", "<stdin>")]


class Allocator:
    """One GPU: blocks of a multiple of 512 bytes, each in a segment of its own or two of them in one."""

    def __init__(self, rng, device, depth=(0, 30), share=False):
        self.rng, self.device, self.depth, self.share = rng, device, depth, share
        self.events, self.places, self.live = [], [], {}  # places: parallel to events, the code that llmprof must name
        self.next, self.now, self.stacks = 0x7F0000000000 + (device << 36), 1_795_219_128_600_496, []

    def stack(self):
        """Frames, and the code that llmprof must name: innermost Python that is not torch's, else torch's."""
        if self.share and self.stacks and self.rng.random() < 0.7:
            return self.rng.choice(self.stacks)
        frames, torch, own = [], None, None
        for _ in range(self.rng.randint(*self.depth)):
            kind = self.rng.random()
            name, file = self.rng.choice(CPP if kind < 0.7 else TORCH if kind < 0.85 else OWN)
            line = 0 if kind < 0.7 else self.rng.randrange(1, 60)
            frames.append({"name": name, "filename": file, "line": line})
            place = f"{file.removeprefix(PACKAGES)}:{line} {name}"
            if 0.7 <= kind < 0.85:
                torch = torch or place
            elif kind >= 0.85:
                own = own or place
        made = (frames, own or torch)
        if self.share:
            self.stacks.append(made)
        return made

    def event(self, action, address, size, frames, place=None, **more):
        entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": self.now, "compile_context": "N/A",
                 "user_metadata": "", "frames": frames}
        if action == "oom":
            del entry["addr"]
        entry.update(more)
        self.events.append(entry)
        self.places.append(place)

    def allocate(self):
        frames, place = self.stack()
        size = self.rng.choice((self.rng.randrange(1, 2000), self.rng.randrange(1, 1 << 24)))
        address, self.next = self.next, self.next + (1 << 25)
        self.event("segment_alloc", address, (size + 511) // 512 * 512 + 512, frames)
        self.live[address] = (size, place, frames)
        self.event("alloc", address, size, frames, place)

    def free(self):
        address = self.rng.choice(list(itertools.islice(self.live, 64)))
        size, _, _ = self.live.pop(address)
        frames, _ = self.stack()
        self.event("free_requested", address, size, frames)
        self.event("free_completed", address, size, frames)
        self.event("segment_free", address, (size + 511) // 512 * 512 + 512, [])

    def run(self, steps, failures=0):
        fail_at = set(self.rng.sample(range(steps), failures))
        for step in range(steps):
            self.now += self.rng.choice((0, 1, 1, 17, 250))
            if step in fail_at:
                self.event("oom", 0, 1 << 34, *self.stack(), device_free=self.rng.randrange(1 << 30))
            elif self.live and self.rng.random() < 0.45:
                self.free()
            else:
                self.allocate()

    def segments(self, with_frames):
        out = []
        for address, (size, _, frames) in self.live.items():
            whole = (size + 511) // 512 * 512
            blocks = [{"address": address, "size": whole, "requested_size": size, "state": "active_allocated", "frames": frames if with_frames else []},
                      {"address": address + whole, "size": 512, "requested_size": 0, "state": "inactive", "frames": []}]
            out.append({"device": self.device, "address": address, "total_size": whole + 512, "allocated_size": whole, "active_size": whole,
                        "requested_size": size, "stream": 0, "segment_type": "large" if size > 1 << 20 else "small", "segment_pool_id": (0, 0),
                        "is_expandable": False, "frames": [], "blocks": blocks})
        return out


def snapshot_of(allocators, kept=None, with_frames=True):
    """`kept`: so many events of each ring; those before are lost."""
    return {"segments": [segment for one in allocators for segment in one.segments(with_frames)],
            "device_traces": [one.events if kept is None else one.events[-kept:] for one in allocators],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
                                   "expandable_segments": False, "roundup_power2_divisions": {"1": 0}},
            "external_annotations": []}


def small(seed=1, devices=1, steps=40, failures=1, share=False, depth=(0, 12)):
    rng = random.Random(seed)
    out = [Allocator(rng, device, depth, share) for device in range(devices)]
    for one in out:
        one.run(steps, failures)
    return out


def write_large(megabytes, path, depth):
    def made(steps):
        one = Allocator(random.Random(1), 0, (depth * 2 // 3, depth * 4 // 3))
        one.run(steps)
        return snapshot_of([one])
    tried = 500
    steps = int(megabytes * 1e6 / (len(pickle.dumps(made(tried), protocol=4)) / tried))
    with open(path, "wb") as file:
        pickle.dump(made(steps), file, protocol=4)


def write_seeds(folder):
    seeds = {
        "protocol2.pickle": pickle.dumps(snapshot_of(small(2)), protocol=2),
        "protocol4.pickle": pickle.dumps(snapshot_of(small(3, devices=2, steps=20)), protocol=4),
        "protocol5.pickle": pickle.dumps(snapshot_of(small(4, share=True), kept=20), protocol=5),
        "cut.pickle": pickle.dumps(snapshot_of(small(5)), protocol=4)[:-700],
        "segments_alone.pickle": pickle.dumps(snapshot_of(small(6))["segments"], protocol=3),
        "reduce.pickle": pickle.dumps({"segments": [], "device_traces": [[print]]}, protocol=4),
        "other.pickle": pickle.dumps([1, 2.5, None, {"a": (1, 2)}], protocol=4),
    }
    itself = []
    itself.append(itself)
    frames = [{"name": "f", "filename": "a.py", "line": 1, "frames": itself}]
    frames.append(frames)
    seeds["cycles.pickle"] = pickle.dumps({"segments": itself, "device_traces": [[{"action": "alloc", "addr": 1, "size": 2, "time_us": 3,
                                                                                  "frames": frames}]] * 9}, protocol=4)
    for name, data in seeds.items():
        target = folder / "memory_snapshot" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    stats = {"allocated_bytes.all.current": 10, "allocated_bytes.all.peak": 20, "reserved_bytes.all.current": 30, "num_ooms": 1}
    target = folder / "memory_stats"
    target.mkdir(parents=True, exist_ok=True)
    (target / "flat.json").write_text(json.dumps(stats))
    (target / "nested.json").write_text(json.dumps({"allocated_bytes": {"all": {"current": 10, "peak": 20}}, "num_ooms": 1}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float)
    parser.add_argument("--depth", type=int, default=60, help="frames of a stack")
    parser.add_argument("-o", "--output")
    parser.add_argument("--seeds", type=pathlib.Path)
    options = parser.parse_args()
    if options.seeds:
        write_seeds(options.seeds)
    if options.megabytes:
        write_large(options.megabytes, options.output, options.depth)


if __name__ == "__main__":
    main()
