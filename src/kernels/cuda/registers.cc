// What the arithmetic units reach when nothing has to be fetched: ordinary multiply-adds and mma.sync; on 9.0 wgmma
// too, through which alone the matrix units reach their full rate there.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/ops.h"

namespace llmprof::kernels::cuda {
namespace {

constexpr unsigned kRegisterThreads = 256;
// Fewer steps would measure the start of a kernel.
constexpr double kIterationsMin = 100;
// Twice the steps give twice the sum; sums of floats are rounded at each step.
constexpr uint32_t kCheckIterations = 16;
constexpr double kTolerance = 1e-4;

// wgmma adds fp8 with fewer bits, so that the sums of many equal steps fall behind.
constexpr double kToleranceOfGroupedFp8 = 2e-2;

struct Kind {
  DType dtype;
  const char* name;
  double flops;  // of a warp's step, all chains together
  int cc_from;
  const char* group = nullptr;  // wgmma, if it has the type
};
// FLOPs as in source/registers.cu: kFlops * kChains.
constexpr Kind kKinds[] = {{DType::kFp64, "Fp64Mma", 512.0 * 8, 80},
                           {DType::kFp32, "Fp32Fma", 256.0 * 4, 80},
                           {DType::kTf32, "Tf32Mma", 2048.0 * 8, 80, "Tf32Group"},
                           {DType::kFp16, "Fp16Mma", 4096.0 * 8, 80, "Fp16Group"},
                           {DType::kBf16, "Bf16Mma", 4096.0 * 8, 80, "Bf16Group"},
                           {DType::kFp8, "Fp8Mma", 8192.0 * 8, 89, "Fp8Group"},
                           {DType::kInt8, "Int8Mma", 8192.0 * 8, 80, "Int8Group"}};
// A step of a group of four warps is four tiles of 64 x 256 sums, of the same depth as mma.sync's tiles of 16 x 8,
// which is 32 bytes in every type.
constexpr double kGroupTiles = 4;
double group_flops(const Kind& kind) { return kind.flops / 8 * (64 * 256) / (16 * 8) / 4 * kGroupTiles; }

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
    const bool groups = context_.cc() == 90 && kind->group != nullptr;
    const Status grouped =
        groups ? add_way("own wgmma", std::string("GROUP=") + kind->group, "registers_of_groups", group_flops(*kind),
                         params_.dtype == DType::kFp8 ? kToleranceOfGroupedFp8 : kTolerance)
               : Status{};
    if (context_.lost()) return grouped;
    LLMPROF_CHECK(add_way(params_.dtype == DType::kFp32 ? "own fma" : "own mma.sync", std::string("KIND=") + kind->name,
                          "registers", kind->flops, kTolerance));
    size_t threads = 0;
    for (const Way& way : ways_) threads = std::max(threads, size_t{way.grid} * kRegisterThreads);
    LLMPROF_CHECK(begin({{"sums", 4 * threads, Role::kOutput, {}}}));
    for (const Way& way : ways_)
      add(way.name, [this, way](int set) {
        return context_.launch(way.kernel, way.grid, kRegisterThreads, way.iterations, at(set, 0));
      });
    return {};
  }

 protected:
  Result<Check> compare(size_t candidate) override {
    const Way& way = ways_[candidate];
    LLMPROF_ASSIGN(const std::vector<float> timed, sums(way));
    std::vector<std::vector<float>> few;
    for (const uint32_t times : {1U, 2U}) {
      LLMPROF_CHECK(context_.launch(way.kernel, way.grid, kRegisterThreads, times * kCheckIterations, at(0, 0)));
      LLMPROF_ASSIGN(std::vector<float> some, sums(way));
      few.push_back(std::move(some));
    }
    Check check;
    check.compared = static_cast<int64_t>(timed.size());
    double scale = 0;
    for (const float value : few[1]) scale = std::max(scale, std::fabs(static_cast<double>(value)));
    size_t zeros = 0;
    for (size_t i = 0; i < timed.size(); ++i) {
      const double error = std::fabs(static_cast<double>(few[1][i]) - 2 * static_cast<double>(few[0][i]));
      check.worst_over_tolerance = std::max(check.worst_over_tolerance, error / (way.tolerance * scale));
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
  struct Way {
    std::string name;
    device::cuda::Kernel kernel;
    unsigned grid = 0;
    uint32_t iterations = 0;
    double tolerance = kTolerance;
  };
  // As many steps of so many FLOPs per warp as the case asks for.
  Status add_way(std::string name, std::string define, const char* function, double warp_flops, double tolerance) {
    LLMPROF_ASSIGN(const device::cuda::Kernel kernel, context_.kernel({"registers.cu", {std::move(define)}}, function));
    Way way{std::move(name), kernel,
            static_cast<unsigned>(context_.sms() * context_.blocks_per_sm(kernel, kRegisterThreads))};
    const double step_flops = warp_flops * (kRegisterThreads / 32) * way.grid;
    const double iterations = std::round(static_cast<double>(params_.axis("mflop")) * 1e6 / step_flops);
    if (iterations < kIterationsMin)
      return fail(fmt::format("{} MFLOP are {:.0f} steps of this GPU's units, too few to tell", params_.axis("mflop"),
                              iterations),
                  "--mflop", fmt::format("take {:.0f} or more", std::ceil(kIterationsMin * step_flops / 1e6)));
    if (iterations > 4e9) return fail("too many MFLOP for one execution", "--mflop");
    way.iterations = static_cast<uint32_t>(iterations);
    way.tolerance = tolerance;
    ways_.push_back(std::move(way));
    return {};
  }
  Result<std::vector<float>> sums(const Way& way) {
    std::vector<float> values(size_t{way.grid} * kRegisterThreads);
    LLMPROF_CHECK(device_.download(array(0, 0), 0, values.data(), values.size() * 4));
    return values;
  }

  std::vector<Way> ways_;
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

}  // namespace llmprof::kernels::cuda
