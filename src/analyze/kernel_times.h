// What kernels would take if something about them were otherwise (replay::KernelChange), from their recorded shapes and
// the GPU's peaks. Where neither is known nothing changes. A peak of the data sheet is not what kernels reach: of those
// that were not measured, the shares below are taken.
#pragma once

#include <string_view>

#include "analyze/analysis.h"
#include "replay/what_if.h"

namespace llmprof {

// About what large products reach of a data sheet's figures in recordings of an H100 (72 to 82 %): chosen, not fitted.
constexpr double kReachedOfPeak = 0.7, kReachedOfBandwidth = 0.8;

// The least that a kernel takes however little it does.
constexpr int64_t kLeastKernelNs = 2'000;

// Of the roof that kernels are held against, what they reach: of a measured one all.
OptDouble reached_bytes_per_ns(const DeviceReport& device);
OptDouble reached_flops_per_ns(const DeviceReport& device, DType dtype);

replay::KernelTimes kernel_times(const Context& context);

// Products of which a matrix's row is no multiple of 16 bytes, in types of two bytes and less: tensor-core kernels load
// rows 16 bytes at a time, other sizes fall back to slower ones.
bool is_misaligned_product(const Works& works, WorkId work);

// Kernels of PyTorch that concatenate, by name.
inline bool concatenates(std::string_view name) { return name.find("CatArrayBatchedCopy") != std::string_view::npos; }

// Attention of CUTLASS in PyTorch on 4-byte numbers, by name. Each product is three of TF32 (OpMultiplyAddFastF32),
// whose rate is half of that of bf16.
inline bool is_wide_attention(std::string_view name) {
  return name.find("fmha_cutlassF_f32") != std::string_view::npos;
}
// What is left of its time in 16 bits: a sixth by arithmetic, where each sequence of the step has many queries, else
// half by bytes.
double half_precision_part(const Steps& steps, StepId step);

}  // namespace llmprof
