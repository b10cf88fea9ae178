#!/usr/bin/env python3
"""What becomes of a CUDA graph when CUPTI comes and goes around it, and what each state of CUPTI costs it (docs/adr 24).

    python3 benchmarks/graphs_and_cupti.py [--orders ORDER,ORDER] [--state FILE]

Each order runs in a process of its own: a graph of 600 small kernels is captured, launched and checked while CUPTI is out, subscribed,
recording, silent again, and gone. After each change: how long the launch takes on the host, how long the graph takes on the GPU where it is
launched to an idle GPU and where it was queued behind other work, whether its result is right, and the ids of its nodes in CUPTI's
records. Needs PyTorch; llmprof is not involved. About 10 seconds an order.
"""
import argparse
import ctypes as C
import glob
import json
import os
import statistics
import subprocess
import sys
import time

NODES = 600
KERNELS, RESOURCES, DRIVER = 10, 3, 2  # CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL; callback domains
ALL_KINDS = (10, 1, 22, 2, 17)         # as llmprof: kernels, copies, copies between GPUs, memsets, overhead
GRAPH_CALLBACKS = {RESOURCES: range(5, 17), DRIVER: (307, 442, 652, 653, 514, 515)}  # nodes; launches of kernels and graphs


class Cupti:
    """Called from Python, on one thread."""
    def __init__(self, folder):
        self.library = C.CDLL(self.path(folder))
        self.rows, self.free, self.kept, self.failed = [], [], [], []
        self.subscriber, self.kinds = C.c_void_p(), (KERNELS,)
        self.callback = C.CFUNCTYPE(None, C.c_void_p, C.c_uint32, C.c_uint32, C.c_void_p)(lambda *_: None)
        self.request = C.CFUNCTYPE(None, C.POINTER(C.c_void_p), C.POINTER(C.c_size_t), C.POINTER(C.c_size_t))(self.give_buffer)
        self.complete = C.CFUNCTYPE(None, C.c_void_p, C.c_uint32, C.c_void_p, C.c_size_t, C.c_size_t)(self.take_buffer)

    @staticmethod
    def path(folder):
        with open("/proc/self/maps") as maps:
            loaded = [line.split()[-1] for line in maps if "libcupti.so" in line]
        found = loaded or glob.glob(os.path.join(folder, "../nvidia/**/libcupti.so*"), recursive=True)
        if not found:
            sys.exit("expected libcupti.so beside PyTorch, found none")
        return found[0]

    def give_buffer(self, buffer, size, records):
        if not self.free:
            self.kept.append(C.create_string_buffer(8 << 20))
            self.free.append(C.addressof(self.kept[-1]))
        buffer[0], size[0], records[0] = self.free.pop(), 8 << 20, 0

    def take_buffer(self, _context, _stream, buffer, _size, valid):
        record = C.c_void_p(None)
        while self.library.cuptiActivityGetNextRecord(C.c_void_p(buffer), C.c_size_t(valid), C.byref(record)) == 0:
            at = lambda offset, kind: C.cast(record.value + offset, C.POINTER(kind))[0]
            if at(0, C.c_uint32) == KERNELS:  # start, node, graph, correlation of CUpti_ActivityKernel
                self.rows.append((at(16, C.c_uint64), at(144, C.c_uint64), at(156, C.c_uint32), at(92, C.c_uint32)))
        self.free.append(buffer)

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            self.failed.append(f"{name}: {result}")

    def subscribe(self):
        self.call("cuptiSubscribe", C.byref(self.subscriber), self.callback, None)
        self.call("cuptiActivityRegisterCallbacks", self.request, self.complete)

    def callbacks(self):
        for domain, ids in GRAPH_CALLBACKS.items():
            for one in ids:
                self.library.cuptiEnableCallback(1, self.subscriber, domain, one)

    def on(self):
        for kind in self.kinds:
            self.call("cuptiActivityEnable", kind)

    def off(self):
        for kind in self.kinds:
            self.call("cuptiActivityDisable", kind)

    def flush(self, forced=1):
        self.call("cuptiActivityFlushAll", forced)

    def unsubscribe(self):
        self.call("cuptiUnsubscribe", self.subscriber)

    def finalize(self):
        self.call("cuptiFinalize")


class Order:
    def __init__(self):
        import torch
        self.torch = torch
        self.input = torch.randn(8, 4096, device="cuda")
        self.right = self.body()
        torch.cuda.synchronize()
        self.cupti = Cupti(os.path.dirname(torch.__file__))
        self.rows = []

    def body(self):
        out = self.input
        for _ in range(NODES):
            out = out * 1.0001
        return out

    def capture(self):
        side = self.torch.cuda.Stream()
        with self.torch.cuda.stream(side):
            self.body()
            side.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            out = self.body()
        return graph, out

    def timed(self, graph, behind_work):
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        if behind_work:
            self.torch.cuda._sleep(4_000_000)
        begin.record()
        called = time.perf_counter_ns()
        graph.replay()
        host_us = (time.perf_counter_ns() - called) / 1e3
        end.record()
        end.synchronize()
        return host_us, begin.elapsed_time(end) * 1e3

    def look(self, state, **graphs):
        """False once a launch has failed: the process's CUDA is then of no use."""
        for name, (graph, out) in graphs.items():
            row = {"state": state, "graph": name}
            self.rows.append(row)
            try:
                idle = [self.timed(graph, False) for _ in range(60)]
                queued = [self.timed(graph, True) for _ in range(12)]
                row |= {"host_us": round(statistics.median(host for host, _ in idle), 1),
                        "idle_us": round(statistics.median(gpu for _, gpu in idle), 1),
                        "queued_us": round(statistics.median(gpu for _, gpu in queued), 1),
                        "right": bool(self.torch.equal(out, self.right))}
            except RuntimeError as error:
                row["failed"] = str(error).splitlines()[0]
                return False
        return True

    def nodes(self):
        """Of the last launch of each graph in the records so far: how many nodes, the first's and the last's id, whether ids follow execution."""
        self.torch.cuda.synchronize()
        self.cupti.flush()
        launches = {}
        for _, node, graph, correlation in sorted(self.cupti.rows):
            if graph:
                launches.setdefault((graph, correlation), []).append(node)
        self.cupti.rows.clear()
        for graph, ids in {graph: ids for (graph, _), ids in launches.items()}.items():
            self.rows.append({"records_of_graph": graph, "nodes": len(ids), "first": hex(ids[0]), "last": hex(ids[-1]),
                              "in_order": all(a < b for a, b in zip(ids, ids[1:]))})

    def leave(self, off=True):
        self.torch.cuda.synchronize()
        if off:
            self.cupti.off()
        self.cupti.flush(1 if off else 0)
        self.cupti.finalize()

    # ---- the orders --------------------------------------------------------------------------------------------------

    def captured_out(self):
        a = self.capture()
        self.look("alone", a=a)
        for turn in "first", "second":
            self.cupti.subscribe()
            self.look(f"{turn}: subscribed", a=a)
            self.cupti.on()
            self.look(f"{turn}: on", a=a)
            self.nodes()
            self.leave()
            self.look(f"{turn}: left", a=a)

    def captured_in(self):
        self.cupti.subscribe()
        self.cupti.callbacks()
        self.cupti.on()
        a = self.capture()
        self.look("captured on", a=a)
        self.nodes()
        self.leave()
        self.look("left", a=a)
        b = self.capture()
        self.cupti.subscribe()
        self.cupti.on()
        self.look("on again", a=a, b=b)
        self.nodes()
        self.leave()
        self.look("left again", a=a, b=b)

    def left_while_on(self):
        self.cupti.kinds = ALL_KINDS
        a = self.capture()
        for turn in range(4):
            self.cupti.subscribe()
            self.cupti.callbacks()
            self.cupti.on()
            self.look(f"{turn}: on", a=a)
            self.leave(off=False)
            self.look(f"{turn}: left", a=a)

    def off_then_on(self):
        a = self.capture()
        self.cupti.subscribe()
        self.look("off", a=a)
        self.cupti.on()
        self.look("on", a=a)
        self.leave(off=False)
        self.look("left", a=a)

    def on_then_off(self):
        a = self.capture()
        self.cupti.subscribe()
        self.cupti.on()
        self.look("on", a=a)
        self.cupti.off()
        self.look("off", a=a)
        self.leave()
        self.look("left", a=a)

    def on_then_unsubscribed(self):
        a = self.capture()
        self.cupti.subscribe()
        self.cupti.on()
        self.look("on", a=a)
        self.cupti.off()
        self.cupti.flush()
        self.cupti.unsubscribe()
        self.look("unsubscribed", a=a)
        self.cupti.subscribe()
        self.leave()
        self.look("left", a=a)

    def left_in_flight(self):
        self.cupti.subscribe()
        self.cupti.on()
        a, b = self.capture(), self.capture()
        self.look("on", a=a)
        self.torch.cuda._sleep(20_000_000)
        a[0].replay()
        b[0].replay()
        self.cupti.finalize()
        self.look("left", a=a, b=b)

    def first_launches(self):
        a = self.capture()
        def milliseconds():
            times = []
            for _ in range(5):
                began = time.perf_counter()
                a[0].replay()
                self.torch.cuda.synchronize()
                times.append(round((time.perf_counter() - began) * 1e3, 2))
            return times
        self.rows.append({"state": "alone", "launches_ms": milliseconds()})
        for turn in range(3):
            self.cupti.subscribe()
            self.cupti.on()
            self.rows.append({"state": f"{turn}: on", "launches_ms": milliseconds()})
            self.leave()
            self.rows.append({"state": f"{turn}: left", "launches_ms": milliseconds()})


ORDERS = ("captured_out", "captured_in", "left_while_on", "off_then_on", "on_then_off", "on_then_unsubscribed", "left_in_flight",
          "first_launches")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", default=",".join(ORDERS), help="of " + ", ".join(ORDERS))
    parser.add_argument("--state", default="graphs_and_cupti.json", help="file for the results")
    parser.add_argument("--one", choices=ORDERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        order = Order()
        getattr(order, args.one)()
        print(json.dumps({"rows": order.rows, "cupti_failed": order.cupti.failed}))
        return 0
    if unknown := set(args.orders.split(",")) - set(ORDERS):
        parser.error(f"no order {', '.join(sorted(unknown))}; there are {', '.join(ORDERS)}")
    results = {}
    for name in args.orders.split(","):
        done = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        results[name] = json.loads(lines[-1]) if lines else {"error": done.stderr.strip()[-300:]}
        print(name)
        for row in results[name].get("rows", [results[name]]):
            print("   ", ", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        with open(args.state, "w") as file:
            json.dump(results, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
