#!/usr/bin/env python3
"""Writes tests/golden/inputs/nccl_job.log: what four processes on two hosts print with NCCL_DEBUG=INFO, mixed with their own output.

The lines have the forms of NCCL's public sources (docs/formats/nccl-log.md says which). On host-a the two GPUs reach each other over shared
memory, on host-b directly; the hosts are connected by InfiniBand. Ranks 0 and 2 have a second communicator, split from the first.
"""

import pathlib
import random

random.seed(11)
HOSTS, PIDS, BUSES = ["host-a", "host-a", "host-b", "host-b"], [4100, 4101, 5200, 5201], ["18000", "2a000", "18000", "2a000"]
ID = "0x56bea185a98d5193"
CHANNELS = 4
lines = []


def say(rank, text, tid=30):
    lines.append(f"{HOSTS[rank]}:{PIDS[rank]}:{PIDS[rank] + tid} [{rank % 2}] NCCL INFO {text}")


def comm(rank, split=False):
    return f"0x{0x7f00_0000 + rank * 0x1000 + (0x800 if split else 0):x}"


for rank in range(4):
    say(rank, "Bootstrap: Using eth0:10.0.0.7<0>", 0)
    if rank == 0:
        say(rank, "NCCL version 2.27.5+cuda12.9", 0)
    say(rank, f"ncclCommInitRankConfig comm {comm(rank)} rank {rank} nranks 4 cudaDev {rank % 2} nvmlDev {rank % 2} busId {BUSES[rank]} commId {ID} - Init START")
lines.append("INFO 11-24 09:12:55 [parallel_state.py:1004] rank 0 in world size 4 is assigned as DP rank 0")
work = [(rank, text) for rank in range(4) for text in
        [f"{CHANNELS} coll channels, {CHANNELS} collnet channels, 0 nvls channels, 8 p2p channels, 2 p2p channels per peer",
         f"ncclCommInitRankConfig comm {comm(rank)} rank {rank} nranks 4 cudaDev {rank % 2} nvmlDev {rank % 2} busId {BUSES[rank]} commId {ID} - Init COMPLETE"]]
for rank, text in work:
    say(rank, text)
links = []
for channel in range(CHANNELS):
    for a, b in ((0, 1), (1, 0)):
        links.append((a, f"Channel {channel:02d} : {a}[{a % 2}] -> {b}[{b % 2}] via SHM/direct/direct"))
    for a, b in ((2, 3), (3, 2)):
        links.append((a, f"Channel {channel:02d}/0 : {a}[{a % 2}] -> {b}[{b % 2}] via P2P/CUMEM/read"))
    for a, b in ((1, 2), (3, 0)):
        card = channel % 2
        links.append((a, f"Channel {channel:02d}/0 : {a}[{a % 2}] -> {b}[{b % 2}] [send] via NET/IB/{card}/GDRDMA"))
        links.append((b, f"Channel {channel:02d}/0 : {a}[{a % 2}] -> {b}[{b % 2}] [receive] via NET/IB/{card + 2}/GDRDMA"))
random.shuffle(links)
for rank, text in links:
    say(rank, text, 34)
for rank in (0, 2):
    say(rank, f"ncclCommSplit comm {comm(rank, True)} rank {rank // 2} nranks 2 cudaDev 0 nvmlDev 0 busId {BUSES[rank]} parent {comm(rank)} childCount 1 color 77 key {rank} - Init COMPLETE")
for a, b in ((0, 1), (1, 0)):
    say(a * 2, f"Channel 00/0 : {a}[0] -> {b}[0] [send] via NET/Socket/0", 34)
for count in range(40):
    rank = count % 4
    elements = random.choice([1024, 8192, 4194304])
    if rank == 0:
        say(rank, f"AllReduce: {elements * 2} Bytes -> Algo {'TREE' if elements < 5000 else 'RING'} proto {'LL' if elements < 5000 else 'SIMPLE'} channel{{Lo..Hi}}={{0..{0 if elements < 5000 else 3}}}", 0)
    say(rank, f"AllReduce: opCount {count // 4:x} sendbuff 0x7f8bccf79600 recvbuff 0x7f8bccf79600 count {elements} datatype 9 op 0 root 0 comm {comm(rank)} [nranks=4] stream 0xac16b80", 0)
for count in range(6):
    rank = count % 2 * 2
    say(rank, f"AllGather: opCount {count // 2:x} sendbuff 0x7f8bccf79600 recvbuff 0x7f8bccf79600 count {300 + count} datatype 7 op 0 root 0 comm {comm(rank, True)} [nranks=2] stream (nil)", 0)
for _ in range(2):
    lines += ["", f"[2026-11-24 09:13:41] {HOSTS[3]}:{PIDS[3]}:{PIDS[3] + 9} [1] misc/socket.cc:484 (socketProgressOpt) NCCL WARN socketProgressOpt: Call to recv from 10.0.0.7<4711> failed : Connection reset by peer"]
lines.append("host-a:4100:4130 [0] NCCL INFO AllReduce: opCount 1f sendbuff 0x7f8bccf79600 recvbuff")
lines.append("INFO 11-24 09:14:00 [launcher.py:77] Shutting down")
(pathlib.Path(__file__).resolve().parent / "inputs/nccl_job.log").write_text("\n".join(lines) + "\n")
