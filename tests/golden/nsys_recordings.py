#!/usr/bin/env python3
"""Makes the exports of Nsight Systems that tests read: python3 tests/golden/nsys_recordings.py

tests/golden/inputs/nsys_2023.sqlite    the tables and columns of 2023.3 (export schema 3.4): one process, one GPU; a
                                        prefill and four decode steps, kernels launched one by one and, when decoding,
                                        by a CUDA graph whose nodes were recorded; ranges with their own texts, times
                                        of the session
tests/golden/inputs/nsys_2026.sqlite    those of 2026.2 (export schema 3.25): two processes, a GPU each, both device 0
                                        of theirs; graphs recorded as a whole, GPU metrics, events, allocations, texts
                                        by number, a domain, calls of the operating system (which have no table)
tests/fuzz/corpus/nsys/*.sqlite         the same, smaller, and what is wrong with some files

The tables and their columns are those of the schema reference in NVIDIA's documentation of Nsight Systems; what happens
in them is made up.
"""

import pathlib
import sqlite3

ROOT = pathlib.Path(__file__).resolve().parent
US = 1000
KERNEL_2023 = ("start end deviceId contextId streamId correlationId globalPid demangledName shortName mangledName launchType "
               "cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory "
               "localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig")
COPY = "start end deviceId contextId streamId correlationId globalPid bytes copyKind srcKind dstKind graphNodeId"
SYNC = "start end deviceId contextId streamId correlationId globalPid syncType eventId"
SCHEMA_2023 = {
    "StringIds": "id value",
    "TARGET_INFO_GPU": ("vmId id name smCount totalMemory uuid cuDevice maxShmemPerSm maxRegistersPerSm threadsPerWarp "
                        "maxWarpsPerSm computeMajor computeMinor"),
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime localTime",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName name nameEnum value",
    "ThreadNames": "nameId priority globalTid",
    "NVTX_EVENTS": "start end eventType rangeId category color text globalTid endGlobalTid textId domainId uint64Value doubleValue",
    "CUPTI_ACTIVITY_KIND_KERNEL": KERNEL_2023,
    "CUPTI_ACTIVITY_KIND_MEMCPY": COPY,
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId contextId streamId correlationId globalPid value bytes graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": SYNC,
    "PROFILER_OVERHEAD": "start end globalTid nameId returnValue",
}
SCHEMA_2026 = {
    **SCHEMA_2023,
    "CUPTI_ACTIVITY_KIND_KERNEL": KERNEL_2023 + " greenContextId graphId clusterX clusterY clusterZ",
    "CUPTI_ACTIVITY_KIND_MEMCPY": COPY + " greenContextId copyCount",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": SYNC + " greenContextId deprecatedSyncType eventSyncId",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "deviceId contextId streamId correlationId globalPid eventId eventSyncId timestamp",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": ("start end deviceId contextId greenContextId streamId correlationId globalPid graphId "
                                        "graphExecId"),
    "CUDA_GRAPH_NODE_EVENTS": "start end eventClass globalTid nameId graphNodeId originalGraphNodeId",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": ("start globalPid deviceId contextId address pc bytes memKind memoryOperationType name "
                                     "correlationId"),
    "OSRT_API": "start end eventClass globalTid nameId returnValue nestingLevel callchainId",
    "GPU_METRICS": "rawTimestamp timestamp typeId metricId value",
    "TARGET_INFO_GPU_METRICS": "typeId sourceId typeName metricId metricName",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid uuid",
    "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
    "META_DATA_EXPORT": "name value",
    "META_DATA_CAPTURE": "name value",
    "PROCESSES": "globalPid pid name",
}


class Export:
    """An export being written: tables appear with their first row, as nsys makes them."""

    def __init__(self, path, schema, page_bytes=4096):
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.database = sqlite3.connect(path)
        self.database.execute(f"PRAGMA page_size={page_bytes}")
        self.schema = schema
        self.made = set()
        self.texts = {}
        self.text("[Unknown]")

    def add(self, table, **values):
        columns = self.schema[table].split()
        if table not in self.made:
            self.made.add(table)
            declared = ", ".join(f'"{c}" INTEGER PRIMARY KEY' if (table, c) == ("StringIds", "id") else f'"{c}"'
                                 for c in columns)
            self.database.execute(f"CREATE TABLE {table} ({declared})")
        values = {name: value for name, value in values.items() if name in columns}
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        self.database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))

    def text(self, value):
        if value not in self.texts:
            self.texts[value] = len(self.texts)
            self.add("StringIds", id=self.texts[value], value=value)
        return self.texts[value]

    def close(self):
        self.database.commit()
        self.database.execute("VACUUM")
        self.database.close()


class Process:
    """One process on one GPU: a clock on the host, one on the GPU, and what both write into the export."""

    def __init__(self, export, pid, device=0):
        self.export = export
        self.pid = pid
        self.process = 1 << 48 | pid << 24
        self.thread = self.process | pid
        self.device = device
        self.host = self.gpu = 1000 * US
        self.calls = 0

    def call(self, name, length, driver=False, result=0):
        self.calls += 1
        self.export.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=self.host, end=self.host + length, eventClass=int(driver),
                        globalTid=self.thread, correlationId=self.calls, nameId=self.export.text(name), returnValue=result)
        self.host += length
        return self.calls

    def on_gpu(self, length):
        start = max(self.gpu, self.host + 2 * US)
        self.gpu = start + length
        return {"start": start, "end": self.gpu, "deviceId": self.device, "contextId": 1, "greenContextId": 0, "streamId": 7,
                "globalPid": self.process}

    def kernel(self, name, length, call=None, node=None, grid=(132, 1, 1), node_graph=None):
        if call is None:
            call = self.call("cudaLaunchKernel_v7000", 4 * US)
            self.host += 3 * US
        short = self.export.text(name.split("<")[0].split("(")[0].split(" ")[-1])
        self.export.add("CUPTI_ACTIVITY_KIND_KERNEL", **self.on_gpu(length), correlationId=call,
                        demangledName=self.export.text(name), shortName=short, registersPerThread=64, gridX=grid[0],
                        gridY=grid[1], gridZ=grid[2], blockX=256, blockY=1, blockZ=1, staticSharedMemory=1024,
                        dynamicSharedMemory=32768, gridId=call, graphNodeId=node, graphId=node_graph)

    def copy(self, name, kind, source, target, count, length):
        call = self.call(name, 5 * US)
        self.export.add("CUPTI_ACTIVITY_KIND_MEMCPY", **self.on_gpu(length), correlationId=call, bytes=count, copyKind=kind,
                        srcKind=source, dstKind=target, copyCount=1)
        return call

    def memset(self, count, length):
        call = self.call("cudaMemsetAsync_v3020", 4 * US)
        self.export.add("CUPTI_ACTIVITY_KIND_MEMSET", **self.on_gpu(length), correlationId=call, value=0, bytes=count, memKind=2)

    def wait(self, **event):
        """The host waits for the stream; 2025 and later give that the type of a wait for an event."""
        start = self.host
        call = self.call("cudaStreamSynchronize_v3020", max(self.gpu - self.host, 0) + 5 * US)
        self.export.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=start + US, end=self.host - US, deviceId=self.device,
                        contextId=1, streamId=7, correlationId=call, globalPid=self.process,
                        **{"syncType": 3, "eventId": 0xFFFFFFFF, "eventSyncId": 0xFFFFFFFF, **event})
        self.host += 20 * US

    def span(self, text, start, kind=59, registered=False, domain=0, end=True, **more):
        words = {"textId": self.export.text(text)} if registered else {"text": text}
        self.export.add("NVTX_EVENTS", start=start, end=self.host if end else None, eventType=kind, globalTid=self.thread,
                        domainId=domain, **words, **more)


LAYER = (("void cutlass::Kernel<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128>(Params)", 30),
         ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>, true>(Flash_fwd_params)", 12),
         ("void cutlass::Kernel<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128>(Params)", 30),
         ("void rms_norm_kernel<__nv_bfloat16>(__nv_bfloat16*, int)", 5))


def describe(export, gpus):
    for gpu in range(gpus):
        export.add("TARGET_INFO_GPU", vmId=1 << 48, id=gpu, name="NVIDIA H200", smCount=132, totalMemory=150109880320,
                   uuid=f"5c9a5380-d76d-414b-3975-82bcaebbab7{gpu}", cuDevice=gpu, maxShmemPerSm=233472,
                   maxRegistersPerSm=65536, threadsPerWarp=32, maxWarpsPerSm=64, computeMajor=9, computeMinor=0)
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1795511584000000123)
    for number, (name, value) in enumerate((("CpuCores", "96"), ("NvDriverVersion", "580.159.04"),
                                            ("CudaDriverVersion", "13000"), ("Hostname", "node-1"),
                                            ("DeviceEnvironment", "TOKEN=secret"))):
        export.add("TARGET_INFO_SYSTEM_ENV", globalVid=1 << 48, devStateName="Local (CLI)", name=name, nameEnum=number,
                   value=value)


def of_2023(path, steps=4, layers=3, page_bytes=4096):
    export = Export(path, SCHEMA_2023, page_bytes)
    describe(export, 1)
    one = Process(export, 31415)
    export.add("ThreadNames", nameId=export.text("python3"), priority=20, globalTid=one.thread)
    export.add("ThreadNames", nameId=export.text("idle thread"), priority=20, globalTid=one.process | 777)
    one.copy("cudaMemcpyAsync_v3020", 1, 1, 2, 4096, 3 * US)
    one.memset(65536, 2 * US)
    start = one.host
    for _ in range(layers):
        for name, length in LAYER:
            inner = one.host
            one.kernel(name, 3 * length * US)
            one.span("aten::mm, seq = 7, op_id = 3, sizes = [[512, 64], [64, 64]], input_op_ids = [(2,0)]", inner)
    one.copy("cudaMemcpyAsync_v3020", 2, 2, 0, 4, US)
    one.wait()
    one.span("prefill", start)
    for step in range(steps):
        start = one.host
        launch = one.call("cudaGraphLaunch_v10000", 12 * US)
        node = 0
        for _ in range(layers):
            for name, length in LAYER:
                node += 1
                one.kernel(name, length * US, launch, (5 << 32) + node, (32, 1, 1))
        one.copy("cudaMemcpyAsync_v3020", 2, 2, 0, 4, US)
        one.wait()
        one.span("decode", start, uint64Value=step)
    export.add("NVTX_EVENTS", start=one.host, eventType=34, text="done", globalTid=one.thread, domainId=0, doubleValue=2.5)
    one.call("cudaMalloc_v3020", 9 * US, result=2)
    export.add("PROFILER_OVERHEAD", start=one.host, end=one.host + 40 * US, globalTid=one.thread,
               nameId=export.text("CUPTI Buffer flush"), returnValue=0)
    export.close()


METRICS = ("GPC Clock Frequency [MHz]", "SYS Clock Frequency [MHz]", "GR Active [Throughput %]", "SMs Active [Throughput %]",
           "SM Issue [Throughput %]", "Tensor Active [Throughput %]", "Compute Warps in Flight [Throughput %]",
           "DRAM Read Bandwidth [Throughput %]", "DRAM Write Bandwidth [Throughput %]", "PCIe RX Throughput [Throughput %]")
VALUES = (1_755_000_000, 1_500_000_000, 90, 70, 30, 25, 40, 61, 7, 3)


def of_2026(path, steps=5, layers=3, page_bytes=4096, samples=12):
    export = Export(path, SCHEMA_2026, page_bytes)
    describe(export, 2)
    for name, value in (("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"), ("EXPORT_PRODUCT_VERSION", "2026.2.1.10"),
                        ("EXPORT_SCHEMA_VERSION", "3.25.0"), ("EXPORT_PARAM_TIME_NORMALIZE", "false"),
                        ("EXPORT_PARAM_TIME_SHIFT", "0")):
        export.add("META_DATA_EXPORT", name=name, value=value)
    for name, value in (("PROCESS_0:COMMAND", "torchrun"), ("PROCESS_0:ARGUMENT_0", "serve.py"),
                        ("PROCESS_0:ENVIRONMENT_VARIABLE", "TOKEN=secret"),
                        ("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "Graph")):
        export.add("META_DATA_CAPTURE", name=name, value=value)
    both = [Process(export, 4001), Process(export, 4002)]
    for gpu, one in enumerate(both):
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=one.pid)
        export.add("PROCESSES", globalPid=one.process, pid=one.pid, name="python3")
        export.add("ThreadNames", nameId=export.text(f"rank {gpu}"), priority=20, globalTid=one.thread)
        export.add("NVTX_EVENTS", start=-500, eventType=75, text="NCCL", globalTid=one.thread, domainId=3)
        call = one.call("cudaMalloc_v3020", 30 * US)
        export.add("CUDA_GPU_MEMORY_USAGE_EVENTS", start=one.host - 10 * US, globalPid=one.process, deviceId=0, contextId=1,
                   address=0x7F0000000000, pc=0, bytes=1 << 30, memKind=2, memoryOperationType=0, correlationId=call)
        start = one.host
        for _ in range(layers):
            for name, length in LAYER:
                one.kernel(name, 3 * length * US)
        inner = one.host
        one.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20 * US, grid=(16, 1, 1))
        one.span("ncclAllReduce", inner, domain=3)
        one.copy("cudaMemcpyAsync_v3020", 2, 2, 1, 4, US)
        one.wait(syncType=2)
        one.span("prefill", start, registered=True)
        for step in range(steps):
            start = one.host
            launch = one.call("cudaGraphLaunch_v10000", 12 * US)
            export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **one.on_gpu(700 * US + gpu * US), correlationId=launch, graphId=2,
                       graphExecId=9)
            record = one.call("cudaEventRecord_v3020", 2 * US)
            export.add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", deviceId=0, contextId=1, streamId=7, correlationId=record,
                       globalPid=one.process, eventId=5, eventSyncId=100 + step, timestamp=0)
            before = one.host
            waits = one.call("cudaEventSynchronize_v3020", max(one.gpu - one.host, 0) + 5 * US)
            export.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=before + US, end=one.host - US, deviceId=0, contextId=1,
                       streamId=0xFFFFFFFF, correlationId=waits, globalPid=one.process, syncType=1, eventId=5,
                       eventSyncId=100 + step)
            export.add("OSRT_API", start=before, end=before + 50 * US, eventClass=27, globalTid=one.thread,
                       nameId=export.text("poll"), returnValue=1, nestingLevel=0)
            one.host += 30 * US
            one.span("decode", start, registered=True)
        export.add("CUDA_GRAPH_NODE_EVENTS", start=start, end=start, eventClass=67, globalTid=one.thread,
                   nameId=export.text("Graph Node Creation"), graphNodeId=11 + gpu)
        for number, name in enumerate(METRICS):
            export.add("TARGET_INFO_GPU_METRICS", typeId=(1 << 56) + gpu, sourceId=1 << 56, typeName=f"GPU Metrics [{gpu}]",
                       metricId=number, metricName=name)
        export.add("NVTX_EVENTS", start=one.host, eventType=60, text="server loop", globalTid=one.thread, domainId=0, rangeId=1)
    for sample in range(samples):
        for gpu in range(2):
            for number, value in enumerate(VALUES):
                # What is a clock was cut to 32 bits with a sign.
                value = value + 600_000_000 if number == 0 and sample % 2 else value
                value = value - (1 << 32) if value >= 1 << 31 else value
                export.add("GPU_METRICS", rawTimestamp=0, timestamp=1000 * US + sample * 400 * US, typeId=(1 << 56) + gpu,
                           metricId=number, value=value)
    export.add("DIAGNOSTIC_EVENT", timestamp=0, timestampType=1, source=1, severity=1, text="CUDA injection initialized.")
    export.add("DIAGNOSTIC_EVENT", timestamp=9, timestampType=2, source=3, severity=2,
               text="Not all CUDA events might have been collected.")
    export.close()


def hostile(folder):
    """Files that are no exports, or exports with what must not be run."""
    def write(name, script):
        path = folder / name
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as database:
            database.executescript("PRAGMA page_size=512;" + script)
        database.close()

    write("other.sqlite", "CREATE TABLE runs (folder TEXT); CREATE TABLE notes (text TEXT);")
    write("views.sqlite", """
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n)
            SELECT start, start + 1 AS "end", 0 AS deviceId FROM n;
        CREATE TABLE NVTX_EVENTS (start, "end" GENERATED ALWAYS AS (start + length(hex(zeroblob(100000)))), eventType, text);
        INSERT INTO NVTX_EVENTS VALUES (1, 59, 'decode');""")
    write("types.sqlite", """
        CREATE TABLE StringIds (id, value);
        INSERT INTO StringIds VALUES ('x', 7), (-1, NULL), (9223372036854775807, 'far'), (2.5, x'00ff');
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, "end", deviceId, streamId, correlationId, globalPid, demangledName, gridX);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'), (NULL, 5, 0, 7, 1, -1, 2, -9),
            (5, 9, -3, -7, -1, -1, 9223372036854775807, 9223372036854775807), (9, 5, 0, 0, 0, 0, 0, 0),
            (9223372036854775807, -9223372036854775808, 0, 0, 0, 0, 0, 0), (10, 20, 2147483648, 0, 0, 0, 0, 0);
        CREATE TABLE "odd ""name"" '); --" (a);
        INSERT INTO "odd ""name"" '); --" VALUES (1);
        CREATE TABLE GPU_METRICS (timestamp, typeId, metricId, value);
        INSERT INTO GPU_METRICS VALUES (1, 2, -5, 'x'), (NULL, NULL, NULL, NULL);""")


def main():
    of_2023(ROOT / "inputs" / "nsys_2023.sqlite")
    of_2026(ROOT / "inputs" / "nsys_2026.sqlite")
    corpus = ROOT.parent / "fuzz" / "corpus" / "nsys"
    of_2023(corpus / "old.sqlite", steps=2, layers=1, page_bytes=512)
    of_2026(corpus / "new.sqlite", steps=2, layers=1, page_bytes=512, samples=3)
    hostile(corpus)


if __name__ == "__main__":
    main()
