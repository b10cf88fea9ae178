// What the arithmetic units reach when nothing has to be fetched. mma.sync and ordinary multiply-adds: on 9.0 the
// matrix units reach their full rate only through wgmma, whose rows come first there.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "device/cuda/ops/cuda_op.h"
#include "device/cuda/ops/ops.h"

namespace llmprof::device::cuda {
namespace {

constexpr unsigned kThreads = 256;
// Fewer steps would measure the start of a kernel.
constexpr double kIterationsMin = 100;
// Twice the steps give twice the sum; sums of floats are rounded at each step.
constexpr uint32_t kCheckIterations = 16;
constexpr double kTolerance = 1e-4;

struct Kind {
  DType dtype;
  const char* name;
  double flops;  // of a warp's step, all chains together
  int cc_from;
};
// FLOPs as in kernels/registers.cu: kFlops * kChains.
constexpr Kind kKinds[] = {{DType::kFp64, "Fp64Mma", 512.0 * 8, 80},  {DType::kFp32, "Fp32Fma", 256.0 * 4, 80},
                           {DType::kTf32, "Tf32Mma", 2048.0 * 8, 80}, {DType::kFp16, "Fp16Mma", 4096.0 * 8, 80},
                           {DType::kBf16, "Bf16Mma", 4096.0 * 8, 80}, {DType::kFp8, "Fp8Mma", 8192.0 * 8, 89},
                           {DType::kInt8, "Int8Mma", 8192.0 * 8, 80}};

const Kind* kind_of(DType dtype) {
  for (const Kind& kind : kKinds)
    if (kind.dtype == dtype) return &kind;
  return nullptr;
}

class RegistersOp : public CudaOp {
 public:
  using CudaOp::CudaOp;

  Status prepare() {
    const Kind* kind = kind_of(params_.dtype);
    if (kind == nullptr) return fail(fmt::format("registers are not measured for {}", dtype_name(params_.dtype)));
    LLMPROF_ASSIGN(kernel_, context_.kernel({"registers.cu", {std::string("KIND=") + kind->name}}, "registers"));
    grid_ = static_cast<unsigned>(context_.sms() * context_.blocks_per_sm(kernel_, kThreads));
    const double step_flops = kind->flops * (kThreads / 32) * grid_;
    const double iterations = std::round(static_cast<double>(params_.axis("mflop")) * 1e6 / step_flops);
    if (iterations < kIterationsMin)
      return fail(fmt::format("{} MFLOP are {:.0f} steps of this GPU's units, too few to tell", params_.axis("mflop"),
                              iterations),
                  "--mflop", fmt::format("take {:.0f} or more", std::ceil(kIterationsMin * step_flops / 1e6)));
    if (iterations > 4e9) return fail("too many MFLOP for one execution", "--mflop");
    LLMPROF_CHECK(begin({{"sums", size_t{4} * grid_ * kThreads, Role::kOutput, {}}}));
    add(fmt::format("own {}", kind->cc_from >= 80 && params_.dtype == DType::kFp32 ? "fma" : "mma.sync"),
        [this, count = static_cast<uint32_t>(iterations)](int set) {
          return context_.launch(kernel_, grid_, kThreads, count, at(set, 0));
        });
    return {};
  }

 protected:
  Result<Check> compare(size_t) override {
    LLMPROF_ASSIGN(const std::vector<float> timed, sums());
    std::vector<std::vector<float>> few;
    for (const uint32_t times : {1U, 2U}) {
      LLMPROF_CHECK(context_.launch(kernel_, grid_, kThreads, times * kCheckIterations, at(0, 0)));
      LLMPROF_ASSIGN(std::vector<float> some, sums());
      few.push_back(std::move(some));
    }
    Check check;
    check.compared = static_cast<int64_t>(timed.size());
    double scale = 0;
    for (const float value : few[1]) scale = std::max(scale, std::fabs(static_cast<double>(value)));
    size_t zeros = 0;
    for (size_t i = 0; i < timed.size(); ++i) {
      const double error = std::fabs(static_cast<double>(few[1][i]) - 2 * static_cast<double>(few[0][i]));
      check.worst_over_tolerance = std::max(check.worst_over_tolerance, error / (kTolerance * scale));
      zeros += few[0][i] == 0 ? 1 : 0;
      if (std::isfinite(timed[i])) continue;
      check.note = fmt::format("thread {} was left with {}", i, timed[i]);
      check.status = CheckStatus::kFailed;
      return check;
    }
    const bool right = scale > 0 && check.worst_over_tolerance <= 1 && zeros < timed.size() / 10;
    check.status = right ? CheckStatus::kPassed : CheckStatus::kFailed;
    if (!right) check.note = "twice the steps do not give twice the sum";
    return check;
  }

 private:
  Result<std::vector<float>> sums() {
    std::vector<float> values(size_t{grid_} * kThreads);
    LLMPROF_CHECK(device_.download(array(0, 0), 0, values.data(), values.size() * 4));
    return values;
  }

  Kernel kernel_;
  unsigned grid_ = 0;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_registers(Device& device, const OpParams& params) {
  return prepare_as<RegistersOp>(device, params);
}

std::optional<std::string> registers_unsupported(const DeviceIdentity& device, const OpParams& params) {
  if (std::optional<std::string> why = own_kernel_unsupported(device, params)) return why;
  const Kind* kind = kind_of(params.dtype);
  if (kind == nullptr) return fmt::format("registers are not measured for {}", dtype_name(params.dtype));
  if (10 * device.cc_major + device.cc_minor < kind->cc_from)
    return fmt::format("{} ({}.{}) has no {} matrix units; they come with 8.9", device.name, device.cc_major,
                       device.cc_minor, dtype_name(params.dtype));
  if (device.cc_major == 10 && params.dtype != DType::kFp32 && params.dtype != DType::kFp64)
    return "the matrix units of compute capability 10 are reached by tcgen05, which own kernels do not use";
  return std::nullopt;
}

}  // namespace llmprof::device::cuda
