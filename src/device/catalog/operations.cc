// Every operation that can be measured: a row each.
#include <array>

#include "device/cost.h"
#include "device/cpu/ops/ops.h"
#include "device/cuda/ops/ops.h"
#include "device/op.h"

namespace llmprof::device {
namespace {

constexpr std::array kGemmAxes = {Axis{"m", 4096, "rows of the activations: tokens"},
                                  Axis{"n", 4096, "rows of the weights: outputs"},
                                  Axis{"k", 4096, "columns of both: inputs"}};
constexpr std::array kGemmTypes = {DType::kBf16, DType::kFp32, DType::kTf32, DType::kFp16,
                                   DType::kFp64, DType::kFp8,  DType::kInt8};
constexpr std::array kMemoryAxes = {Axis{"bytes", 256 << 20, "of each array"}};
constexpr std::array kMemoryTypes = {DType::kFp32};
constexpr std::array<std::string_view, 4> kMemoryVariants = {"copy", "read", "write", "triad"};
constexpr std::array kRegistersAxes = {Axis{"mflop", 1000, "millions of FLOPs in one execution, all units together"}};
constexpr std::array kRegistersTypes = {DType::kFp32, DType::kFp64, DType::kTf32, DType::kFp16,
                                        DType::kBf16, DType::kFp8,  DType::kInt8};

constexpr std::array kLaunchTypes = {DType::kFp32};
constexpr std::array<std::string_view, 5> kLaunchVariants = {"fork_join", "eager", "graph_node", "stream_sync",
                                                             "event_sync"};
constexpr std::array kMemcpyAxes = {Axis{"bytes", 256 << 20, "of one copy"}};
constexpr std::array<std::string_view, 4> kMemcpyVariants = {"h2d", "d2h", "h2d_pageable", "d2h_pageable"};

std::optional<std::string> unsupported_gemm(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return cpu::gemm_unsupported(params);
  return cuda::gemm_unsupported(device, params);
}

std::optional<std::string> unsupported_memory(const DeviceIdentity&, const OpParams&) { return std::nullopt; }

std::optional<std::string> unsupported_registers(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return cpu::registers_unsupported(params);
  return cuda::registers_unsupported(device, params);
}

std::optional<std::string> unsupported_launch(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return cpu::launch_unsupported(params);
  return params.variant == "fork_join" ? std::optional<std::string>("fork_join is a way of CPUs") : std::nullopt;
}

std::optional<std::string> unsupported_memcpy(const DeviceIdentity& device, const OpParams&) {
  if (device.kind == DeviceKind::kCpu) return "copies between host and GPU need a GPU";
  return std::nullopt;
}

// Bytes that cross the link, once: what its bandwidth is quoted as.
Cost memcpy_cost(const OpParams& params) {
  Cost cost;
  cost.write_bytes = static_cast<double>(params.axis("bytes"));
  return cost;
}
int64_t memcpy_footprint(const OpParams& params) { return 2 * params.axis("bytes"); }

// No arithmetic and no traffic to speak of.
Cost launch_cost(const OpParams&) { return {}; }
int64_t launch_footprint(const OpParams&) { return 0; }

constexpr std::array kOperations = {
    Operation{"gemm",
              "linear layer: activations [m, k] times weights [n, k]",
              kGemmAxes,
              kGemmTypes,
              {},
              gemm_cost,
              gemm_footprint,
              unsupported_gemm,
              cpu::prepare_gemm,
              cuda::prepare_gemm},
    Operation{"memory", "arrays read, written, copied, or two of them combined", kMemoryAxes, kMemoryTypes,
              kMemoryVariants, memory_cost, memory_footprint, unsupported_memory, cpu::prepare_memory,
              cuda::prepare_memory},
    Operation{"registers",
              "multiply-adds that never leave the registers",
              kRegistersAxes,
              kRegistersTypes,
              {},
              registers_cost,
              registers_footprint,
              unsupported_registers,
              cpu::prepare_registers,
              cuda::prepare_registers},
    Operation{"memcpy", "copies between host and GPU; GB/s count the bytes once", kMemcpyAxes, kMemoryTypes,
              kMemcpyVariants, memcpy_cost, memcpy_footprint, unsupported_memcpy, nullptr, cuda::prepare_memcpy},
    Operation{"launch",
              "starting work, and waiting for it",
              {},
              kLaunchTypes,
              kLaunchVariants,
              launch_cost,
              launch_footprint,
              unsupported_launch,
              cpu::prepare_launch,
              cuda::prepare_launch},
};

}  // namespace

std::span<const Operation> operations() { return kOperations; }

const Operation* find_operation(std::string_view name) {
  for (const Operation& operation : kOperations)
    if (operation.name == name) return &operation;
  return nullptr;
}

}  // namespace llmprof::device
