#!/usr/bin/env python3
"""Writes tests/golden/inputs/nccl_inspector_*.json: what NCCL's Inspector writes in two processes of one host, of four ranks on two.

The lines have the forms of NCCL's public sources (docs/formats/nccl-inspector.md says which): the first file has those of format 4.0, in which
each line has a header, the second those of 4.3, in which a line of statistics has it for the lines behind it, with sends, verbose traces and
a trace of a proxy. Bandwidths are those that the Inspector computes from size and time; of one operation the second file states another.
"""

import json
import pathlib
import random

random.seed(31)
FOLDER = pathlib.Path(__file__).resolve().parent / "inputs"
RANKS = 4
SIZES = {"AllReduce": (65536, 16777216), "AllGather": (262144,), "ReduceScatter": (1048576,)}
GROUP = "0x7f8c496ae9f661"


def header(rank, communicator=GROUP, ranks=RANKS, name=None):
    out = {"id": communicator, "comm_name": name, "rank": rank, "n_ranks": ranks, "nnodes": 2}
    return {key: value for key, value in out.items() if value is not None}


def metadata(rank, version):
    return {"inspector_output_format_version": version, "git_rev": "", "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": 1748030377748202 + rank, "hostname": "host-a", "pid": 4100 + rank}


def rates(operation, size, us, ranks):
    traffic = size * ranks if operation in ("AllGather", "ReduceScatter") else size
    factor = {"AllReduce": 2 * (ranks - 1) / ranks, "AllGather": (ranks - 1) / ranks, "ReduceScatter": (ranks - 1) / ranks}.get(operation, 1)
    rate = traffic / 1e9 / (us / 1e6)
    return float(f"{rate:.6f}"), float(f"{rate * factor:.6f}")


def collective(number, algorithms):
    operation = random.choice(["AllReduce"] * 3 + ["AllGather", "ReduceScatter"])
    size = random.choice(SIZES[operation])
    us = max(1, round((12 + size / 90e3) * random.uniform(0.95, 1.3)))
    algorithm, bus = rates(operation, size, us, RANKS)
    out = {"coll": operation, "coll_algo": "RING", "coll_proto": "LL" if size < 100000 else "SIMPLE", "coll_sn": number, "coll_msg_size_bytes": size,
           "coll_exec_time_us": us, "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": algorithm, "coll_busbw_gbs": bus}
    if not algorithms:
        del out["coll_algo"], out["coll_proto"]
    return out


def line(value):
    return json.dumps(value, separators=(",", ":"))


older = [line({"header": header(0), "metadata": metadata(0, "v4.0"), "coll_perf": collective(number, False)}) for number in range(120)]
(FOLDER / "nccl_inspector_4100.json").write_text("\n".join(older) + "\n")

newer = []
for batch in range(3):
    stats = {"coll_records": 40, "coll_dropped_total": 7 * batch, "coll_dropped_since_last_dump": 7, "p2p_records": 10, "p2p_dropped_total": 0,
             "p2p_dropped_since_last_dump": 0, "proxy_records": 1}
    newer.append(line({"header": header(1), "metadata": metadata(1, "v4.3"), "dump_stats": stats}))
    for number in range(40):
        record = collective(batch * 40 + number, True)
        if batch == 1 and number == 5:
            record["coll_algobw_gbs"] *= 2
        if batch == 2 and number == 6:
            record["event_trace_sn"] = {"coll_start_sn": 1, "kernel_events": [{"channel_id": 0, "kernel_start_sn": 3}]}
        newer.append(line({"coll_perf": record}))
    newer.append(line({"header": header(0, "0x11", 2, "PP Group 1"), "metadata": metadata(1, "v4.3"), "dump_stats": {"coll_records": 0, "p2p_records": 10}}))
    for number in range(10):
        us = random.randrange(300, 420)
        algorithm, bus = rates("Send", 8388608, us, 2)
        newer.append(line({"p2p_perf": {"p2p": random.choice(["Send", "Recv"]), "p2p_sn": number, "p2p_peer": 1, "p2p_msg_size_bytes": 8388608,
                                        "p2p_exec_time_us": us, "p2p_timing_source": "kernel_gpu", "p2p_algobw_gbs": algorithm, "p2p_busbw_gbs": bus}}))
    newer.append(line({"proxy_trace": {"record_type": "proxy_step", "parent_sn": 3}}))
(FOLDER / "nccl_inspector_4101.json").write_text("\n".join(newer) + "\n")
