// The limit of the arithmetic units: chains of multiply-adds on values that stay in registers. Twelve independent
// chains of the widest vectors per thread hide the latency of 4 to 5 cycles on two units. A pair of steps multiplies by
// 3/4 and by nearly 4/3, so that values neither grow nor vanish, and shrinks each lane by 2^-22: each lane has a start
// of its own and a missing pair shows. All lanes are written at the end, so that the compiler keeps each.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "device/cpu/cpu_device.h"
#include "device/elements.h"
#include "kernels/cpu/buffer_sets.h"
#include "kernels/cpu/ops.h"
#include "kernels/reference/compare.h"

namespace llmprof::kernels::cpu {
namespace {

constexpr int kChains = 12;
// Their product is 1 - 2^-22; the second term takes back the first.
constexpr double kDown = 0.75, kUp = (1 - 0x1p-22) / kDown, kShift = 0.3, kBack = -kShift * kUp;

using Loop = void (*)(void* values, int64_t pairs);  // values: kChains vectors, start and result
struct RegisterKernel {
  const char* name;
  Loop loop;
  int lanes;  // of one vector
};

template <class T>
T pair_of_steps(T value) {
  value = std::fma(value, static_cast<T>(kDown), static_cast<T>(kShift));
  return std::fma(value, static_cast<T>(kUp), static_cast<T>(kBack));
}

template <class T>
void plain_loop(void* values, int64_t pairs) {
  T x[kChains];
  auto* at = static_cast<T*>(values);
  std::copy(at, at + kChains, x);
  for (int64_t pair = 0; pair < pairs; ++pair)
    for (T& value : x) value = pair_of_steps(value);
  std::copy(x, x + kChains, at);
}

#if defined(__x86_64__)
#define LLMPROF_FMA_LOOP(NAME, TARGET, VECTOR, TYPE, LANES, SET, LOAD, STORE, FMA)              \
  __attribute__((target(TARGET))) void NAME(void* values, int64_t pairs) {                      \
    auto* at = static_cast<TYPE*>(values);                                                      \
    const VECTOR down = SET(static_cast<TYPE>(kDown)), shift = SET(static_cast<TYPE>(kShift));  \
    const VECTOR up = SET(static_cast<TYPE>(kUp)), back = SET(static_cast<TYPE>(kBack));        \
    VECTOR x0 = LOAD(at + 0 * LANES), x1 = LOAD(at + 1 * LANES), x2 = LOAD(at + 2 * LANES);     \
    VECTOR x3 = LOAD(at + 3 * LANES), x4 = LOAD(at + 4 * LANES), x5 = LOAD(at + 5 * LANES);     \
    VECTOR x6 = LOAD(at + 6 * LANES), x7 = LOAD(at + 7 * LANES), x8 = LOAD(at + 8 * LANES);     \
    VECTOR x9 = LOAD(at + 9 * LANES), x10 = LOAD(at + 10 * LANES), x11 = LOAD(at + 11 * LANES); \
    for (int64_t pair = 0; pair < pairs; ++pair) {                                              \
      x0 = FMA(x0, down, shift);                                                                \
      x1 = FMA(x1, down, shift);                                                                \
      x2 = FMA(x2, down, shift);                                                                \
      x3 = FMA(x3, down, shift);                                                                \
      x4 = FMA(x4, down, shift);                                                                \
      x5 = FMA(x5, down, shift);                                                                \
      x6 = FMA(x6, down, shift);                                                                \
      x7 = FMA(x7, down, shift);                                                                \
      x8 = FMA(x8, down, shift);                                                                \
      x9 = FMA(x9, down, shift);                                                                \
      x10 = FMA(x10, down, shift);                                                              \
      x11 = FMA(x11, down, shift);                                                              \
      x0 = FMA(x0, up, back);                                                                   \
      x1 = FMA(x1, up, back);                                                                   \
      x2 = FMA(x2, up, back);                                                                   \
      x3 = FMA(x3, up, back);                                                                   \
      x4 = FMA(x4, up, back);                                                                   \
      x5 = FMA(x5, up, back);                                                                   \
      x6 = FMA(x6, up, back);                                                                   \
      x7 = FMA(x7, up, back);                                                                   \
      x8 = FMA(x8, up, back);                                                                   \
      x9 = FMA(x9, up, back);                                                                   \
      x10 = FMA(x10, up, back);                                                                 \
      x11 = FMA(x11, up, back);                                                                 \
    }                                                                                           \
    STORE(at + 0 * LANES, x0);                                                                  \
    STORE(at + 1 * LANES, x1);                                                                  \
    STORE(at + 2 * LANES, x2);                                                                  \
    STORE(at + 3 * LANES, x3);                                                                  \
    STORE(at + 4 * LANES, x4);                                                                  \
    STORE(at + 5 * LANES, x5);                                                                  \
    STORE(at + 6 * LANES, x6);                                                                  \
    STORE(at + 7 * LANES, x7);                                                                  \
    STORE(at + 8 * LANES, x8);                                                                  \
    STORE(at + 9 * LANES, x9);                                                                  \
    STORE(at + 10 * LANES, x10);                                                                \
    STORE(at + 11 * LANES, x11);                                                                \
  }
LLMPROF_FMA_LOOP(avx512_fp32, "avx512f", __m512, float, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps,
                 _mm512_fmadd_ps)
LLMPROF_FMA_LOOP(avx512_fp64, "avx512f", __m512d, double, 8, _mm512_set1_pd, _mm512_loadu_pd, _mm512_storeu_pd,
                 _mm512_fmadd_pd)
LLMPROF_FMA_LOOP(avx2_fp32, "avx2,fma", __m256, float, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps,
                 _mm256_fmadd_ps)
LLMPROF_FMA_LOOP(avx2_fp64, "avx2,fma", __m256d, double, 4, _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd,
                 _mm256_fmadd_pd)
#undef LLMPROF_FMA_LOOP
#endif

std::vector<RegisterKernel> kernels_of(const device::cpu::Instructions& has, DType dtype) {
  const bool wide = dtype == DType::kFp64;
  std::vector<RegisterKernel> kernels;
#if defined(__x86_64__)
  if (has.avx512) kernels.push_back({"own AVX-512 multiply-adds", wide ? avx512_fp64 : avx512_fp32, wide ? 8 : 16});
  if (has.avx2) kernels.push_back({"own AVX2 multiply-adds", wide ? avx2_fp64 : avx2_fp32, wide ? 4 : 8});
#else
  static_cast<void>(has);
#endif
  if (kernels.empty()) kernels.push_back({"own multiply-adds", wide ? plain_loop<double> : plain_loop<float>, 1});
  return kernels;
}

// Where a lane starts: different for every lane.
double start_of(size_t lane) { return 0.5 + static_cast<double>(lane % 1021) / 1024; }

template <class T>
double expected_end(size_t lane, int64_t pairs) {
  T x = static_cast<T>(start_of(lane));
  for (int64_t pair = 0; pair < pairs; ++pair) x = pair_of_steps(x);
  return static_cast<double>(x);
}

class RegistersOp : public PreparedOp {
 public:
  RegistersOp(device::cpu::CpuDevice& device, DType dtype, double flops)
      : device_(device), dtype_(dtype), flops_(flops), element_bytes_(static_cast<size_t>(dtype_bytes(dtype))) {
    for (const RegisterKernel& kernel : kernels_of(device.instructions(), dtype))
      candidates_.push_back({kernel.name, [this, kernel](int) {
                               run(kernel);
                               return Status();
                             }});
    results_.resize(static_cast<size_t>(device.team().threads()) * kThreadBytes);
  }
  std::vector<Candidate>& candidates() override { return candidates_; }
  size_t bytes_per_set() const override { return 0; }
  Status prepare_sets(int) override { return {}; }

  // Every lane of every thread was written; 24 lanes are computed again, one operation after the other.
  Result<Check> check(size_t candidate) override {
    const RegisterKernel kernel = kernels_of(device_.instructions(), dtype_)[candidate];
    std::fill(results_.begin(), results_.end(), static_cast<char>(0xff));
    LLMPROF_CHECK(candidates_[candidate].enqueue(0));
    Comparison comparison(0);
    const auto lanes = static_cast<size_t>(kChains * kernel.lanes);
    const size_t threads = static_cast<size_t>(device_.team().threads());
    const std::vector<int64_t> sampled = sampled_indices(static_cast<int64_t>(lanes), 24, 1);
    std::vector<double> expected;
    for (const int64_t lane : sampled)
      expected.push_back(dtype_ == DType::kFp64 ? expected_end<double>(static_cast<size_t>(lane), pairs(kernel))
                                                : expected_end<float>(static_cast<size_t>(lane), pairs(kernel)));
    for (size_t thread = 0; thread < threads; ++thread) {
      const char* const at = results_.data() + thread * kThreadBytes;
      for (size_t lane = 0; lane < lanes; ++lane)
        if (device::is_poison(dtype_, at, lane)) comparison.add_unwritten(static_cast<int64_t>(thread * lanes + lane));
      for (size_t i = 0; i < sampled.size(); ++i)
        comparison.add(device::element_at(dtype_, at, static_cast<size_t>(sampled[i])), expected[i], 0,
                       static_cast<int64_t>(thread * lanes) + sampled[i]);
    }
    return comparison.finish();
  }

 private:
  // Of one thread, far enough apart not to share lines.
  static constexpr size_t kThreadBytes = 2048;
  static_assert(kThreadBytes >= size_t{kChains} * 64);

  // All threads take the same number; rounded up, a ten-thousandth at most for what is worth timing.
  int64_t pairs(const RegisterKernel& kernel) const {
    const double per_pair = 4.0 * kChains * kernel.lanes * device_.team().threads();
    return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(flops_ / per_pair)));
  }

  void run(const RegisterKernel& kernel) {
    const int64_t count = pairs(kernel);
    device_.team().run([&](int thread) {
      alignas(64) char values[kThreadBytes];
      const auto lanes = static_cast<size_t>(kChains * kernel.lanes);
      for (size_t lane = 0; lane < lanes; ++lane) {
        if (dtype_ == DType::kFp64)
          reinterpret_cast<double*>(values)[lane] = start_of(lane);
        else
          reinterpret_cast<float*>(values)[lane] = static_cast<float>(start_of(lane));
      }
      kernel.loop(values, count);
      std::copy(values, values + lanes * element_bytes_, results_.data() + static_cast<size_t>(thread) * kThreadBytes);
    });
  }

  device::cpu::CpuDevice& device_;
  DType dtype_;
  double flops_;
  size_t element_bytes_;
  std::vector<char> results_;
  std::vector<Candidate> candidates_;
};

}  // namespace

std::optional<std::string> registers_unsupported(const OpParams& params) {
  if (params.dtype == DType::kFp32 || params.dtype == DType::kFp64) return std::nullopt;
  return fmt::format("the units' own limit is measured in fp32 and fp64 on CPUs, not in {}", dtype_name(params.dtype));
}

Result<std::unique_ptr<PreparedOp>> prepare_registers(Device& device, const OpParams& params) {
  return std::unique_ptr<PreparedOp>(std::make_unique<RegistersOp>(
      static_cast<device::cpu::CpuDevice&>(device), params.dtype, static_cast<double>(params.axis("mflop")) * 1e6));
}

}  // namespace llmprof::kernels::cpu
