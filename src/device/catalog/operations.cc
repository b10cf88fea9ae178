// Every operation that can be measured: a row each.
#include <array>

#include "device/cost.h"
#include "device/cpu/ops/ops.h"
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
constexpr std::array<std::string_view, 1> kLaunchVariants = {"fork_join"};

std::optional<std::string> unsupported_gemm(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return cpu::gemm_unsupported(params);
  return std::nullopt;
}

std::optional<std::string> unsupported_memory(const DeviceIdentity&, const OpParams&) { return std::nullopt; }

std::optional<std::string> unsupported_registers(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return cpu::registers_unsupported(params);
  return std::nullopt;
}

std::optional<std::string> unsupported_launch(const DeviceIdentity& device, const OpParams& params) {
  if (device.kind == DeviceKind::kCpu) return cpu::launch_unsupported(params);
  return params.variant == "fork_join" ? std::optional<std::string>("fork_join is a way of CPUs") : std::nullopt;
}

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
              nullptr},
    Operation{"memory", "arrays read, written, copied, or two of them combined", kMemoryAxes, kMemoryTypes,
              kMemoryVariants, memory_cost, memory_footprint, unsupported_memory, cpu::prepare_memory, nullptr},
    Operation{"registers",
              "multiply-adds that never leave the registers",
              kRegistersAxes,
              kRegistersTypes,
              {},
              registers_cost,
              registers_footprint,
              unsupported_registers,
              cpu::prepare_registers,
              nullptr},
    Operation{"launch",
              "starting work, and waiting for it",
              {},
              kLaunchTypes,
              kLaunchVariants,
              launch_cost,
              launch_footprint,
              unsupported_launch,
              cpu::prepare_launch,
              nullptr},
};

}  // namespace

std::span<const Operation> operations() { return kOperations; }

const Operation* find_operation(std::string_view name) {
  for (const Operation& operation : kOperations)
    if (operation.name == name) return &operation;
  return nullptr;
}

}  // namespace llmprof::device
