// Which cases `llmprof bench` measures: those that were named, with every combination of the axes swept over; the
// default suite; or those of an earlier run.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bench/case_rows.h"
#include "kernels/op.h"

namespace llmprof::bench {

struct CasePlan {
  const kernels::Operation* operation = nullptr;
  kernels::OpParams params;
  // What was taken because nobody asked for anything else and the device cannot do the usual; empty if it can.
  std::string chosen;  // "launch as eager"
};

using AxisValues = std::vector<std::pair<std::string, int64_t>>;

// Whether that kind of device has a way, and this one supports it.
bool possible(const kernels::Operation& operation, const device::DeviceIdentity& device,
              const kernels::OpParams& params);

// One case on that device. Where no variant or data type is asked for, the first that the device supports; axes that
// are not given have their usual values, those of a GPU where it needs other ones. Errors: those of make_params.
Result<CasePlan> plan_case(const kernels::Operation& operation, const device::DeviceIdentity& device, DType dtype,
                           std::string_view variant, const AxisValues& axes);

struct Sweep {
  std::string axis;
  std::vector<int64_t> values;
};
// "m=1,16,512", "m=1:4096:x2" (doubling), "m=16:128:16" (steps). At most 1,000 values.
Result<Sweep> parse_sweep(const std::string& text);

struct Selection {
  std::vector<std::string> names;  // of operations
  std::vector<std::pair<std::string, int64_t>> axes;
  std::vector<Sweep> sweeps;
  std::vector<DType> dtypes;  // empty: the operation's usual one
  std::vector<std::string> variants;
  uint64_t seed = 1;
};
// Without a device the usual choices are taken, whether it has them or not: enough to see whether the words are right.
// Errors: an axis with two lists of values; a name that no operation has, an axis, data type or variant that the
// operation does not have (each with the nearest), more than 10,000 cases.
Result<std::vector<CasePlan>> plan_cases(std::span<const kernels::Operation> operations, const Selection& selection,
                                         const device::DeviceIdentity* device = nullptr);

// Shapes of LLMs, as many as fit into minutes; operations without shapes of their own here are measured as they come,
// once per variant.
Result<std::vector<CasePlan>> default_suite(std::span<const kernels::Operation> operations,
                                            const device::DeviceIdentity& device, bool quick, uint64_t seed);

// The cases of an earlier run, each once. Error: an operation or axis that there is no more.
Result<std::vector<CasePlan>> plans_of(std::span<const kernels::Operation> operations,
                                       const std::vector<CaseRecord>& records);

// Other words for an operation: what frameworks, papers and other tools call it. `matmul` is measured as gemm.
struct Alias {
  std::string_view word, operation;
};
std::span<const Alias> aliases();

// The operation of that name, or of that other word for it; an error with the nearest names.
Result<const kernels::Operation*> operation_named(std::span<const kernels::Operation> operations,
                                                  const std::string& name);

}  // namespace llmprof::bench
