#!/usr/bin/env python3
"""Writes made-up traces of the ranks of one job, as torch.profiler writes them: python3 tests/golden/rank_recordings.py FOLDER

The job is simulated on one clock, rank by rank and kernel by kernel; a collective ends on all of its ranks once the last of them has entered it and its
bytes have passed. Each rank then writes what it saw on a clock of its own. What is slow, and by how much, is planted here: `Job.truth` has it.
"""

import gzip
import json
import pathlib
import random
import sys

BASE_NS = 1790857026000000000
ELEMENT_BYTES = {"BFloat16": 2, "Float": 4}
NCCL_TYPE = {"BFloat16": "bf16", "Float": "f32"}
KERNEL = {"allreduce": "AllReduce_Sum", "_allgather_base": "AllGather", "_reduce_scatter_base": "ReduceScatter_Sum", "broadcast": "Broadcast",
          "send": "SendRecv", "recv": "SendRecv"}


class Collective:
    """One collective as it was on the job's own clock, starts and ends by rank."""

    def __init__(self, group, name, dtype, elements, ranks, starts, wire_ns, later, root=None):
        self.group, self.name, self.dtype, self.elements, self.ranks = group, name, dtype, elements, tuple(ranks)
        self.starts, self.wire_ns = starts, wire_ns
        self.last_start = max(starts.values())
        self.ends = {rank: self.last_start + wire_ns + later[rank] for rank in ranks}
        self.root = root  # does not wait for the others, which wait for it alone
        if root is not None:
            self.ends = {rank: max(starts[rank], starts[root]) + wire_ns + later[rank] for rank in ranks}
        self.end = max(self.ends.values())
        self.seen = set(ranks)  # ranks that recorded it


class Job:
    """`late`: {rank: ns} that the host of a rank is late with every step. `offsets`: {rank: ns} to add to its clock to have that of the job.
    `tensor_parallel`: ranks of a group; more than one group passes activations on with send and receive. `lost`: {rank: number} of collectives at the end,
    `missed`: at the beginning, that its recorder did not see. `spread_ns`: how far apart ends of a collective may be. `broadcasts`: each step begins with
    one of the first rank of each group, which leaves it when its bytes are on their way."""

    def __init__(self, ranks, steps=20, layers=4, seed=1, late=None, offsets=None, hosts=None, numbered=True, tensor_parallel=None, lost=None, missed=None,
                 own_ordinals=False, graphs=False, kernel_ns=60_000, wire_ns=40_000, jitter_ns=4_000, spread_ns=0, broadcasts=False):
        self.size, self.random = ranks, random.Random(seed)
        self.late, self.offsets, self.hosts = late or {}, offsets or {}, hosts or {}
        self.numbered, self.own_ordinals, self.graphs = numbered, own_ordinals, graphs
        self.lost, self.missed = lost or {}, missed or {}
        self.kernel_ns, self.wire_ns, self.jitter_ns, self.spread_ns = kernel_ns, wire_ns, jitter_ns, spread_ns
        self.broadcasts = broadcasts
        width = tensor_parallel or ranks
        self.groups = [list(range(first, first + width)) for first in range(0, ranks, width)]
        self.collectives = []
        self.events = {rank: [] for rank in range(ranks)}  # (start, end, kind, fields) on the job's clock
        self.host = {rank: 20_000_000 for rank in range(ranks)}
        self.gpu = {rank: 0 for rank in range(ranks)}
        self.ids = {rank: 0 for rank in range(ranks)}
        self.numbers = {}
        for step in range(steps):
            self.step(step, layers)

    def local_device(self, rank):
        return 0 if self.own_ordinals else rank % 4

    def launch(self, rank, operator):
        """One operator and its launch; when its kernel may begin."""
        self.ids[rank] += 1
        correlation = self.ids[rank]
        start = self.host[rank]
        self.host[rank] += 9_000
        self.events[rank].append((start, start + 8_000, "cpu_op", operator, {"External id": correlation}))
        self.events[rank].append((start + 2_000, start + 6_000, "cuda_runtime", "cudaLaunchKernel", {"correlation": correlation, "External id": correlation}))
        return correlation, max(start + 7_000, self.gpu[rank])

    def kernel(self, rank, name, start, end, correlation, more=None):
        device = self.local_device(rank)
        self.events[rank].append((start, end, "kernel", name,
                                  {"device": device, "context": 1, "stream": 7, "correlation": correlation, "External id": correlation,
                                   "grid": [132, 1, 1], "block": [256, 1, 1], **(more or {})}))
        self.gpu[rank] = end

    def compute(self, rank, factor=1.0):
        correlation, start = self.launch(rank, "aten::mm")
        self.kernel(rank, "gemm_bf16", start, start + int(self.kernel_ns * factor) + self.random.randrange(self.jitter_ns), correlation)

    def collective(self, group, name, dtype, elements, seen=None, out=None):
        ranks = self.groups[group] if isinstance(group, int) else list(group)
        starts, correlations = {}, {}
        for rank in ranks:
            correlations[rank], starts[rank] = self.launch(rank, "c10d::" + name)
        wire = self.wire_ns + elements * ELEMENT_BYTES[dtype] // 200 + self.random.randrange(self.jitter_ns)  # 200 GB/s
        later = {rank: self.random.randrange(self.spread_ns) if self.spread_ns else 0 for rank in ranks}
        one = Collective(tuple(ranks), name, dtype, elements, ranks, starts, wire, later, ranks[0] if name == "broadcast" else None)
        self.collectives.append(one)
        pair = name == "send"
        number = self.numbers[one.group] = self.numbers.get(one.group, 0) + 1
        for position, rank in enumerate(ranks):
            own = ("send" if position == 0 else "recv") if pair else name
            describe = {} if self.graphs else {
                "Collective name": own, "In msg nelems": elements, "Out msg nelems": out if out is not None else elements, "Group size": len(ranks),
                "dtype": dtype, "In split size": "[]", "Out split size": "[]"}
            if describe:
                describe |= {"Process Group Name": "0" if len(ranks) == self.size else "2", "Process Group Description": "tp",
                             "Process Group Ranks": str(ranks)}
            if describe and self.numbered and not pair:
                describe["Seq"] = number
            if describe and pair:
                describe |= {"Dst Rank": ranks[1]} if position == 0 else {"Src Rank": ranks[0]}
            kernel = f"ncclDevKernel_{KERNEL[own]}_{NCCL_TYPE[dtype]}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            self.kernel(rank, kernel, starts[rank], one.ends[rank], correlations[rank], describe)
            self.events[rank][-1][4]["_collective"] = len(self.collectives) - 1
        return one

    def step(self, step, layers):
        begin = dict(self.host)
        for rank in range(self.size):
            self.host[rank] += self.late.get(rank, 0)
        for group, ranks in enumerate(self.groups):
            if self.broadcasts:
                self.collective(group, "broadcast", "BFloat16", 1 << 18)
            if group > 0:
                self.collective((self.groups[group - 1][0], ranks[0]), "send", "BFloat16", 1 << 16)
            for _ in range(layers):
                for rank in ranks:
                    self.compute(rank)
                    self.compute(rank, 0.5)
                if len(ranks) > 1:
                    self.collective(group, "allreduce", "BFloat16", 1 << 20)
            if len(ranks) > 1:
                self.collective(group, "_allgather_base", "Float", 1 << 14, out=len(ranks) << 14)
        for rank in range(self.size):
            waits = self.host[rank]
            self.host[rank] = max(waits, self.gpu[rank]) + 3_000
            self.ids[rank] += 1
            self.events[rank].append((waits, self.host[rank], "cuda_runtime", "cudaStreamSynchronize", {"correlation": self.ids[rank]}))
            self.host[rank] += 2_000
            self.events[rank].append((begin[rank], self.host[rank], "user_annotation", "decode", {}))
            self.host[rank] += 20_000

    def forget(self):
        """Which collectives a recorder did not see, at both ends: what of a rank's trace lies there is left out."""
        for rank in range(self.size):
            own = [index for index, one in enumerate(self.collectives) if rank in one.ranks]
            lost, missed = self.lost.get(rank, 0), self.missed.get(rank, 0)
            for index in own[:missed] + own[len(own) - lost:]:
                self.collectives[index].seen.discard(rank)

    def document(self, rank, ranks_known=True):
        self.forget()
        events = []
        shift = self.offsets.get(rank, 0)
        for start, end, category, name, fields in self.events[rank]:
            fields = dict(fields)
            index = fields.pop("_collective", None)
            if index is not None and rank not in self.collectives[index].seen:
                continue
            on = {"pid": self.local_device(rank), "tid": 7} if category == "kernel" else {"pid": 4000, "tid": 4000}
            events.append({"ph": "X", "cat": category, "name": name, **on, "ts": round((start - shift) / 1000, 3), "dur": round((end - start) / 1000, 3),
                           "args": fields})
        devices = [{"id": i, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0, "numSms": 132} for i in range(4)]
        document = {"schemaVersion": 1, "deviceProperties": devices[:1] if self.own_ordinals else devices}
        if ranks_known:
            document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": self.size, "pg_count": 1, "nccl_version": "2.28.9"}
        if rank in self.hosts:
            document["hostname"] = self.hosts[rank]
        document |= {"baseTimeNanoseconds": BASE_NS, "traceEvents": events}
        return document

    def write(self, folder, ranks=None, ranks_known=True, name="rank{}.json.gz"):
        """Paths by rank."""
        folder.mkdir(parents=True, exist_ok=True)
        out = {}
        for rank in ranks if ranks is not None else range(self.size):
            out[rank] = folder / name.format(rank)
            with gzip.GzipFile(out[rank], "wb", mtime=0, compresslevel=1) as file:
                file.write(json.dumps(self.document(rank, ranks_known), separators=(",", ":")).encode())
        return out


if __name__ == "__main__":
    hosts = {0: "node-a", 1: "node-b"}
    Job(2, steps=6, layers=2, late={1: 200_000}, offsets={1: 3_000_000}, hosts=hosts).write(pathlib.Path(sys.argv[1]), name="two_ranks_{}.json.gz")
