// Programs of two GPUs, or of several streams, as recordings: every start is its latest predecessor and a latency.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "derive_trace_builder.h"

namespace llmprof {

// Two ranks, a process and a GPU each, whose layers end in a collective that begins with the later of them. The first
// rank's host has work of its own in each step; graphs or single launches.
struct TwoRanks {
  int64_t code_ns = 0;
  bool graphs = false;
  int64_t kernel_ns = 20'000;

  static constexpr int kLayers = 16, kSteps = 8;
  static constexpr int64_t kTogetherNs = 15'000, kCallNs = 5'000, kCodeNs = 3'000, kNodeNs = 500, kStartNs = 4'000,
                           kApartNs = 1'000, kReturnNs = 3'000;

  TestTrace made() const {
    TestTrace b;
    const ThreadId other = TraceBuilder(b.trace).add<Threads>({.process_id = 2, .thread_id = 200});
    struct Rank {
      ThreadId thread;
      StreamId stream;
      int64_t host = 0, gpu = -1'000'000, begin = 0;
      std::vector<uint64_t> calls{};
      std::vector<int64_t> at{};  // when the calls were made
    };
    std::array<Rank, 2> ranks{Rank{0, StreamId(0)}, Rank{other, b.stream(1, 7)}};
    for (int s = 0; s < kSteps; ++s) {
      for (Rank& rank : ranks) {
        rank.begin = rank.host;
        rank.calls.clear(), rank.at.clear();
        if (rank.thread == ThreadId(0)) rank.host += code_ns;
        for (int i = 0; i < (graphs ? 1 : 2 * kLayers); ++i) {
          rank.at.push_back(rank.host);
          rank.calls.push_back(
              b.api(graphs ? "cudaGraphLaunch" : "cudaLaunchKernel", rank.host, kCallNs, 0, rank.thread));
          b.names(rank.stream);
          rank.host += kCallNs + kCodeNs;
        }
      }
      const auto start = [&](const Rank& rank, int i) {
        if (graphs && i > 0) return rank.gpu + kNodeNs;
        return std::max(rank.at[static_cast<size_t>(i)] + kStartNs, rank.gpu + kApartNs);
      };
      const auto ran = [&](Rank& rank, int i, std::string_view name, int64_t from, int64_t to) {
        const uint64_t call = rank.calls[graphs ? 0 : static_cast<size_t>(i)];
        b.node_kernel(name, from, to - from, call, graphs ? static_cast<uint64_t>(i) + 1 : 0, rank.stream);
        rank.gpu = to;
      };
      for (int layer = 0; layer < kLayers; ++layer) {
        for (Rank& rank : ranks) {
          const int64_t from = start(rank, 2 * layer);
          ran(rank, 2 * layer, "gemm", from, from + kernel_ns);
        }
        const std::array<int64_t, 2> from{start(ranks[0], 2 * layer + 1), start(ranks[1], 2 * layer + 1)};
        const int64_t to = std::max(from[0], from[1]) + kTogetherNs;
        for (size_t r = 0; r < 2; ++r) ran(ranks[r], 2 * layer + 1, "ncclDevKernel_AllReduce", from[r], to);
      }
      for (Rank& rank : ranks) {
        const int64_t returned = std::max(rank.host, rank.gpu) + kReturnNs;
        b.api("cudaStreamSynchronize", rank.host, returned - rank.host, 0, rank.thread);
        b.names(rank.stream);
        rank.host = returned;
        b.annotation("decode", rank.begin, rank.host - rank.begin, AnnotationKind::kUser, rank.thread);
        rank.host += 20'000;
      }
    }
    return b;
  }
};

// Lots that go through one GPU and then the other, driven by one thread. Both, or the first alone, are waited for
// behind each half of each lot, or none: streams wait for what the other one hands over all the same. What is read is
// read once all lots are done. Without ranges each lot ends in a choice of tokens, and is a step.
struct Relay {
  size_t waited = 2;
  bool ranges = true;
  int64_t kernel_ns = 60'000, second_ns = 0;  // of the kernels of the second GPU, where they are others

  static constexpr int kLots = 6, kKernels = 20, kSteps = 8;
  static constexpr int64_t kCallNs = 5'000, kCodeNs = 2'000, kPeerNs = 40'000, kStartNs = 4'000, kApartNs = 1'000,
                           kReturnNs = 3'000;

  TestTrace made() const {
    TestTrace b;
    const std::array<StreamId, 2> streams{StreamId(0), b.stream(1, 7)};
    std::array<int64_t, 2> gpu{-1'000'000, -1'000'000};  // free from then on
    int64_t host = 0;
    const auto call = [&](std::string_view name, int64_t ns) {
      const uint64_t id = b.api(name, host, ns);
      host += ns + kCodeNs;
      return id;
    };
    const auto launch = [&](size_t device, std::string_view name, int64_t ns) {
      const int64_t start = std::max(host + kStartNs, gpu[device] + kApartNs);
      const uint64_t id = call(name.starts_with("Memcpy") ? "cudaMemcpyAsync" : "cudaLaunchKernel", kCallNs);
      b.names(streams[device]);
      b.gpu(name, start, ns, id, streams[device]);
      gpu[device] = start + ns;
    };
    const auto wait = [&](size_t device) {
      const int64_t returned = std::max(host, gpu[device]) + kReturnNs;
      call("cudaDeviceSynchronize", returned - host);
    };
    uint64_t event = 0;
    for (int s = 0; s < kSteps; ++s) {
      const int64_t begin = host;
      for (int lot = 0; lot < kLots; ++lot) {
        for (int i = 0; i < kKernels; ++i) launch(0, "gemm", kernel_ns);
        for (size_t device = 0; device < waited; ++device) wait(device);
        launch(0, "Memcpy PtoP (Device -> Device)", kPeerNs);
        call("cudaEventRecord", 1'000);
        b.names(streams[0], ++event);
        call("cudaStreamWaitEvent", 1'000);
        b.names(streams[1], event);
        gpu[1] = std::max(gpu[1], gpu[0]);
        for (int i = 0; i < kKernels; ++i) launch(1, "gemm", second_ns > 0 ? second_ns : kernel_ns);
        if (!ranges) launch(1, "argmax", 5'000);
        for (size_t device = 0; device < waited && lot + 1 < kLots; ++device) wait(device);
      }
      launch(1, "Memcpy DtoH (Device -> Pinned)", 2'000);
      wait(1);
      if (ranges) b.annotation("prefill", begin, host - begin);
      host += 20'000;
    }
    return b;
  }
};

// Two streams of short kernels, each of which waits for the other's last one, or for nothing but its own. The steps
// begin and end on a third.
struct Turns {
  bool turns = true;
  static constexpr int kParts = 20, kSteps = 8;
  static constexpr int64_t kKernelNs = 30'000, kCallNs = 2'000, kStartNs = 4'000, kApartNs = 1'000, kReturnNs = 3'000;

  TestTrace made() const {
    TestTrace b;
    const std::array<StreamId, 3> streams{StreamId(0), b.stream(0, 13), b.stream(0, 14)};
    std::array<int64_t, 3> gpu{-1'000'000, -1'000'000, -1'000'000};
    int64_t host = 0;
    uint64_t event = 0;
    const auto launch = [&](size_t stream, std::string_view name, int64_t ns, int64_t joined) {
      const int64_t start = std::max({host + kStartNs, gpu[stream] + kApartNs, joined + kApartNs});
      b.gpu(name, start, ns, b.api(name[0] == 'M' ? "cudaMemcpyAsync" : "cudaLaunchKernel", host, kCallNs),
            streams[stream]);
      b.names(streams[stream]);
      gpu[stream] = start + ns;
      host += kCallNs;
    };
    const auto wait_for = [&](size_t waiting, size_t other) {  // from now on
      b.api("cudaEventRecord", host, 500);
      b.names(streams[other], ++event);
      b.api("cudaStreamWaitEvent", host + 500, 500);
      b.names(streams[waiting], event);
      host += 1'000;
      return gpu[other];
    };
    for (int s = 0; s < kSteps; ++s) {
      const int64_t begin = host;
      launch(0, "gemm", 5'000, -1'000'000);
      std::array<int64_t, 3> joined{0, wait_for(1, 0), wait_for(2, 0)};
      for (int part = 0; part < kParts; ++part)
        for (const size_t stream : {size_t{1}, size_t{2}}) {
          if (turns) joined[stream] = std::max(joined[stream], wait_for(stream, 3 - stream));
          launch(stream, "gemm", kKernelNs, joined[stream]);
        }
      const int64_t both = std::max(wait_for(0, 1), wait_for(0, 2));
      launch(0, "Memcpy DtoH (Device -> Pinned)", 2'000, both);
      const int64_t returned = std::max(host, gpu[0]) + kReturnNs;
      b.api("cudaStreamSynchronize", host, returned - host);
      b.names(streams[0]);
      host = returned;
      b.annotation("decode", begin, host - begin);
      host += 20'000;
    }
    return b;
  }
};

// Batches that come up while the one before is computed, and results that go down, on one stream for both ways or on
// one each; what a step reads is copied down behind them, by the same engine. Copies never wait for what they do not
// copy.
struct BothWays {
  bool one_stream = true;
  int64_t up_ns = 400'000, down_ns = 350'000;

  static constexpr int kKernels = 10, kSteps = 10;
  static constexpr int64_t kKernelNs = 45'000, kCallNs = 2'000, kStartNs = 4'000, kApartNs = 1'000, kReturnNs = 3'000;

  TestTrace made() const {
    TestTrace b;
    const std::array<StreamId, 3> streams{StreamId(0), b.stream(0, 13), b.stream(0, 14)};
    const size_t up = 1, down = one_stream ? 1 : 2;
    std::array<int64_t, 3> free{-10'000'000, -10'000'000, -10'000'000};
    int64_t host = 0, engine_down = -10'000'000, arrived = -10'000'000;
    uint64_t event = 0;
    const auto launch = [&](size_t stream, std::string_view name, int64_t ns, int64_t joined) {
      int64_t start = std::max({host + kStartNs, free[stream] + kApartNs, joined + kApartNs});
      if (name.starts_with("Memcpy DtoH")) start = std::max(start, engine_down + kApartNs);
      b.gpu(name, start, ns, b.api(name[0] == 'M' ? "cudaMemcpyAsync" : "cudaLaunchKernel", host, kCallNs),
            streams[stream]);
      b.names(streams[stream]);
      free[stream] = start + ns;
      if (name.starts_with("Memcpy DtoH")) engine_down = start + ns;
      host += kCallNs;
      return start + ns;
    };
    const auto record = [&](size_t stream) {
      b.api("cudaEventRecord", host, 500);
      b.names(streams[stream], ++event);
      host += 500;
      return event;
    };
    const auto wait_for = [&](size_t stream, uint64_t which) {
      b.api("cudaStreamWaitEvent", host, 500);
      b.names(streams[stream], which);
      host += 500;
    };
    arrived = launch(up, "Memcpy HtoD (Pinned -> Device)", up_ns, -10'000'000);
    uint64_t came = record(up);
    for (int s = 0; s < kSteps; ++s) {
      const int64_t begin = host;
      wait_for(0, came);
      int64_t joined = arrived;
      arrived = launch(up, "Memcpy HtoD (Pinned -> Device)", up_ns, -10'000'000);
      came = record(up);
      int64_t last = 0;
      for (int i = 0; i < kKernels; ++i) {
        last = launch(0, "gemm", kKernelNs, i == 0 ? joined : -10'000'000);
        if (i != 1) continue;
        wait_for(down, record(0));
        launch(down, "Memcpy DtoH (Device -> Pinned)", down_ns, last);
      }
      launch(0, "Memcpy DtoH (Device -> Pinned)", 2'000, last);
      const int64_t returned = std::max(host, free[0]) + kReturnNs;
      b.api("cudaStreamSynchronize", host, returned - host);
      b.names(streams[0]);
      host = returned;
      b.annotation("prefill", begin, host - begin);
      host += 20'000;
    }
    return b;
  }
};

}  // namespace llmprof
