// One case measured on the CPU as `llmprof bench` measures it, on one set of buffers, as harnesses of libraries have
// it.
//
//   measure_once OPERATION DTYPE VARIANT|- SECONDS [AXIS=VALUE...]
// prints "BACKEND<tab>GFLOP/s<tab>GB/s" of the median sample, and "unsupported<tab>why" where the CPU cannot.
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/protocol.h"
#include "device/cpu/cpu_device.h"
#include "kernels/op.h"

using namespace llmprof;

int main(int count, char** arguments) {
  if (count < 5) {
    std::fputs("usage: measure_once OPERATION DTYPE VARIANT|- SECONDS [AXIS=VALUE...]\n", stderr);
    return 2;
  }
  const kernels::Operation* const operation = kernels::find_operation(arguments[1]);
  const std::optional<DType> dtype = parse_dtype(arguments[2]);
  if (operation == nullptr || !dtype) return 2;
  std::vector<std::pair<std::string, int64_t>> axes;
  for (int i = 5; i < count; ++i) {
    const std::string argument = arguments[i];
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) return 2;
    axes.emplace_back(argument.substr(0, equals), std::atoll(argument.c_str() + equals + 1));
  }
  const std::string variant = arguments[3];
  const Result<kernels::OpParams> params = make_params(*operation, *dtype, variant == "-" ? "" : variant, axes);
  const Result<std::unique_ptr<device::Device>> cpu = device::cpu::open_cpu(0);
  if (!params || !cpu) {
    std::fputs((params ? cpu.error() : params.error()).text().c_str(), stderr);
    return 1;
  }
  bench::Protocol protocol;
  protocol.cold = false;
  protocol.sustained_min_s = std::atof(arguments[4]);
  protocol.settle_max_s = 0.1;
  protocol.wall_max_s = 2 * protocol.sustained_min_s;
  protocol.sets_max = 1;
  const std::atomic<bool> stop = false;
  const bench::CaseResult result = bench::measure(**cpu, *operation, *params, protocol, stop);
  if (result.status == bench::CaseStatus::kUnsupported) {
    fmt::print("unsupported\t{}\n", result.note);
    return 0;
  }
  if (result.status != bench::CaseStatus::kPassed || result.timings.empty()) {
    fmt::print(stderr, "{}: {}\n", name_of(result.status), result.note);
    return 1;
  }
  const double us = result.timings[0].summary.median;
  fmt::print("{}\t{:.3f}\t{:.3f}\n", result.backend, result.cost.flops / us * 1e-3, result.cost.bytes() / us * 1e-3);
  return 0;
}
