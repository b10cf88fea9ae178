#include "bench/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/nearest.h"

namespace llmprof::bench {
namespace {

using kernels::Operation;
using Axes = AxisValues;

constexpr size_t kSweepValuesMax = 1000, kCasesMax = 10'000;

bool parse_int(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

tl::unexpected<Error> bad_sweep(const std::string& text, const std::string& found) {
  return fail(fmt::format("expected AXIS=1,2,4 or AXIS=FROM:TO:x2 or AXIS=FROM:TO:STEP, found {}", found),
              "--sweep " + text, "--sweep m=1:4096:x2", ExitCode::kUsage);
}

// FROM:TO:x2 and FROM:TO:STEP; false if it is neither.
bool range_of(std::string_view text, std::vector<int64_t>& values) {
  const std::vector<std::string_view> parts = split(text, ':');
  int64_t from = 0, to = 0, step = 0;
  if (parts.size() != 3 || !parse_int(parts[0], from) || !parse_int(parts[1], to)) return false;
  const bool factor = !parts[2].empty() && parts[2][0] == 'x';
  if (!parse_int(factor ? parts[2].substr(1) : parts[2], step)) return false;
  if (from < 1 || to < from || step < (factor ? 2 : 1)) return false;
  for (int64_t value = from; value <= to && values.size() <= kSweepValuesMax;) {
    values.push_back(value);
    if (factor ? value > to / step : value > to - step) break;
    value = factor ? value * step : value + step;
  }
  return true;
}

// Every combination of the sweeps' values, the last one fastest.
std::vector<Axes> combinations(const Axes& fixed, const std::vector<Sweep>& sweeps) {
  std::vector<Axes> out = {fixed};
  for (const Sweep& sweep : sweeps) {
    std::vector<Axes> next;
    for (const Axes& axes : out) {
      for (const int64_t value : sweep.values) {
        next.push_back(axes);
        next.back().emplace_back(sweep.axis, value);
      }
    }
    out = std::move(next);
  }
  return out;
}

// A value beside a sweep of the same axis would be dropped, and two sweeps of one axis multiply.
Status check_given_once(const Selection& selection) {
  std::set<std::string> given;
  for (const auto& [axis, value] : selection.axes) given.insert(axis);
  for (const Sweep& sweep : selection.sweeps)
    if (!given.insert(sweep.axis).second)
      return fail(fmt::format("expected an axis once, found two lists of values for {}", sweep.axis), "--sweep",
                  fmt::format("--{} 16,32", sweep.axis), ExitCode::kUsage);
  return {};
}

tl::unexpected<Error> too_many_cases() {
  return fail(fmt::format("more than {} cases", kCasesMax), "--sweep", "fewer values", ExitCode::kUsage);
}

AxisValues with_usual(const Operation& operation, const device::DeviceIdentity& device, AxisValues axes) {
  if (device.kind == device::DeviceKind::kCpu) return axes;
  for (const kernels::Axis& usual : operation.axes) {
    if (usual.usual_on_gpu == 0) continue;
    const bool given =
        std::any_of(axes.begin(), axes.end(), [&](const auto& axis) { return axis.first == usual.name; });
    if (!given) axes.emplace_back(usual.name, usual.usual_on_gpu);
  }
  return axes;
}

}  // namespace

bool possible(const Operation& operation, const device::DeviceIdentity& device, const kernels::OpParams& params) {
  const bool cpu = device.kind == device::DeviceKind::kCpu;
  if ((cpu ? operation.prepare_cpu : operation.prepare_cuda) == nullptr) return false;
  return operation.unsupported == nullptr || !operation.unsupported(device, params);
}

Result<CasePlan> plan_case(const Operation& operation, const device::DeviceIdentity& device, DType dtype,
                           std::string_view variant, const AxisValues& axes) {
  const AxisValues all = with_usual(operation, device, axes);
  LLMPROF_ASSIGN(kernels::OpParams usual, kernels::make_params(operation, dtype, variant, all));
  CasePlan plan{&operation, usual, {}};
  if (possible(operation, device, usual)) return plan;
  std::vector<std::string_view> variants(operation.variants.begin(), operation.variants.end());
  if (variants.empty() || !variant.empty()) variants = {usual.variant};
  std::vector<DType> dtypes(operation.dtypes.begin(), operation.dtypes.end());
  if (dtype != DType::kUnknown) dtypes = {dtype};
  for (const std::string_view one : variants) {
    for (const DType type : dtypes) {
      LLMPROF_ASSIGN(const kernels::OpParams params, kernels::make_params(operation, type, one, all));
      if (!possible(operation, device, params)) continue;
      plan.params = params;
      if (type != usual.dtype) plan.chosen = fmt::format("{} in {}", operation.name, dtype_name(type));
      if (one != usual.variant) plan.chosen += fmt::format("{} as {}", plan.chosen.empty() ? operation.name : "", one);
      return plan;
    }
  }
  return plan;  // its row will say why it is not supported
}

Result<Sweep> parse_sweep(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return bad_sweep(text, "no AXIS=");
  Sweep sweep{text.substr(0, equals), {}};
  std::replace(sweep.axis.begin(), sweep.axis.end(), '-', '_');
  const std::string_view values = std::string_view(text).substr(equals + 1);
  if (values.find(':') != std::string_view::npos) {
    if (!range_of(values, sweep.values)) return bad_sweep(text, fmt::format("\"{}\"", values));
  } else {
    for (const std::string_view part : split(values, ',')) {
      int64_t value = 0;
      if (!parse_int(part, value) || value < 1) return bad_sweep(text, fmt::format("\"{}\"", part));
      sweep.values.push_back(value);
    }
  }
  if (sweep.values.size() > kSweepValuesMax) return bad_sweep(text, fmt::format("over {} values", kSweepValuesMax));
  return sweep;
}

namespace {
constexpr Alias kAliases[] = {{"matmul", "gemm"},
                              {"mm", "gemm"},
                              {"linear", "gemm"},
                              {"dense", "gemm"},
                              {"addmm", "gemm"},
                              {"bmm", "gemm_batched"},
                              {"scaled_mm", "gemm_w8a8"},
                              {"w8a8", "gemm_w8a8"},
                              {"grouped_mm", "gemm_grouped"},
                              {"router", "moe_routing"},
                              {"bandwidth", "memory"},
                              {"stream", "memory"},
                              {"silu_and_mul", "swiglu"},
                              {"rotary", "rope"},
                              {"flash", "attention"},
                              {"flash_attention", "attention"},
                              {"sdpa", "attention"},
                              {"scaled_dot_product_attention", "attention"},
                              {"prefill_attention", "attention"},
                              {"flash_decoding", "attention_decode"},
                              {"paged_attention", "attention_decode"},
                              {"decode_attention", "attention_decode"},
                              {"conv", "conv2d"},
                              {"convolution", "conv2d"},
                              {"quantize", "quantise"},
                              {"dequantize", "dequantise"}};
}  // namespace

std::span<const Alias> aliases() { return kAliases; }

Result<const Operation*> operation_named(std::span<const Operation> operations, const std::string& name) {
  std::vector<std::string> names;
  const std::string folded = fold_name(name);  // "RMSNorm", "rms-norm", "rms_norm"
  std::string_view meant;
  for (const Alias& alias : kAliases)
    if (fold_name(alias.word) == folded) meant = alias.operation;
  for (const Operation& operation : operations) {
    if (operation.name == name || fold_name(operation.name) == folded || operation.name == meant) return &operation;
    names.emplace_back(operation.name);
  }
  for (const Alias& alias : kAliases) names.emplace_back(alias.word);
  const std::vector<std::string> near = nearest_names(name, names, 1);
  return fail(
      fmt::format("no benchmark \"{}\"", name), {},
      near.empty() ? "llmprof list benchmarks" : "llmprof bench " + near[0] + "  (all: llmprof list benchmarks)",
      ExitCode::kUsage);
}

Result<std::vector<CasePlan>> plan_cases(std::span<const Operation> operations, const Selection& selection,
                                         const device::DeviceIdentity* device) {
  std::vector<CasePlan> plans;
  LLMPROF_CHECK(check_given_once(selection));
  size_t points = 1;
  for (const Sweep& sweep : selection.sweeps) {
    points *= sweep.values.size();
    if (points > kCasesMax) return too_many_cases();
  }
  const std::vector<Axes> all_axes = combinations(selection.axes, selection.sweeps);
  const std::vector<DType> dtypes = selection.dtypes.empty() ? std::vector{DType::kUnknown} : selection.dtypes;
  const std::vector<std::string> variants =
      selection.variants.empty() ? std::vector<std::string>{""} : selection.variants;
  const auto one = [&](const Operation& operation, DType dtype, const std::string& variant,
                       const Axes& axes) -> Result<CasePlan> {
    if (device != nullptr) return plan_case(operation, *device, dtype, variant, axes);
    LLMPROF_ASSIGN(kernels::OpParams params, kernels::make_params(operation, dtype, variant, axes));
    return CasePlan{&operation, std::move(params), {}};
  };
  for (const std::string& name : selection.names) {
    LLMPROF_ASSIGN(const Operation* operation, operation_named(operations, name));
    for (const DType dtype : dtypes) {
      for (const std::string& variant : variants) {
        for (const Axes& axes : all_axes) {
          if (plans.size() >= kCasesMax) return too_many_cases();
          LLMPROF_ASSIGN(CasePlan plan, one(*operation, dtype, variant, axes));
          plan.params.seed = selection.seed;
          plans.push_back(std::move(plan));
        }
      }
    }
  }
  return plans;
}

Result<std::vector<CasePlan>> plans_of(std::span<const Operation> operations, const std::vector<CaseRecord>& records) {
  std::vector<CasePlan> plans;
  std::set<std::string> seen;
  for (const CaseRecord& record : records) {
    if (!seen.insert(record.case_key()).second) continue;
    LLMPROF_ASSIGN(const Operation* operation, operation_named(operations, record.row.name));
    Axes axes;
    for (const std::string_view part : split(record.row.shape, ' ')) {
      const size_t equals = part.find('=');
      int64_t value = 0;
      if (equals == std::string_view::npos || !parse_int(part.substr(equals + 1), value)) continue;
      axes.emplace_back(part.substr(0, equals), value);
    }
    const DType dtype = parse_dtype(record.row.dtype).value_or(DType::kUnknown);
    LLMPROF_ASSIGN(kernels::OpParams params, kernels::make_params(*operation, dtype, record.row.variant, axes));
    params.seed = static_cast<uint64_t>(record.row.seed);
    plans.push_back({operation, std::move(params), {}});
  }
  return plans;
}

}  // namespace llmprof::bench
