// Matrix products by cuBLASLt. Row-major out[m,n] = a[m,k] w[n,k]^T is, in its column-major terms, an n x m product of
// the transposed weights with the activations: the form ("TN") that 8-bit types need and PyTorch's linear layers use.
#include "device/reference/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>

#include "device/cuda/ops/cuda_op.h"
#include "device/cuda/ops/ops.h"

namespace llmprof::device::cuda {
namespace {

namespace lt = cublaslt_abi;

constexpr int kRequested = 32;
// The first choice and the fastest of the others are offered; more would cost more checking than they bring.
constexpr size_t kOffered = 6;
constexpr int kScreenRounds = 3;
// What the screen may take, and how many algorithms of a slow product it looks at all the same.
constexpr double kScreenUs = 150'000;
constexpr size_t kScreenedMin = 4;
// An algorithm that takes so much longer than the best one is not looked at again.
constexpr double kHopeless = 1.3;

struct Types {
  int in, out, compute, scale;
};
std::optional<Types> types_of(DType dtype) {
  switch (dtype) {
    case DType::kFp64:
      return Types{cublas::kR64F, cublas::kR64F, cublas::kCompute64F, cublas::kR64F};
    case DType::kFp32:
      return Types{cublas::kR32F, cublas::kR32F, cublas::kCompute32F, cublas::kR32F};
    case DType::kTf32:
      return Types{cublas::kR32F, cublas::kR32F, cublas::kCompute32FFastTf32, cublas::kR32F};
    case DType::kFp16:
      return Types{cublas::kR16F, cublas::kR16F, cublas::kCompute32F, cublas::kR32F};
    case DType::kBf16:
      return Types{cublas::kR16BF, cublas::kR16BF, cublas::kCompute32F, cublas::kR32F};
    case DType::kFp8:
      return Types{cublas::kR8FE4M3, cublas::kR16BF, cublas::kCompute32F, cublas::kR32F};
    case DType::kInt8:
      return Types{cublas::kR8I, cublas::kR32I, lt::kCompute32I, cublas::kR32I};
    default:
      return std::nullopt;
  }
}

Status lt_check(lt::Status status, std::string_view doing) {
  if (status == lt::kSuccess) return {};
  return fail(fmt::format("{}: cuBLASLt says {}", doing, cublaslt_status_text(status)));
}

// One and zero in the type that scales: cuBLASLt reads them from the host at the call.
struct Factors {
  double one64 = 1, zero64 = 0;
  float one32 = 1, zero32 = 0;
  int32_t one_int = 1, zero_int = 0;
  const void* one(int type) const {
    return type == cublas::kR64F   ? static_cast<const void*>(&one64)
           : type == cublas::kR32I ? static_cast<const void*>(&one_int)
                                   : &one32;
  }
  const void* zero(int type) const {
    return type == cublas::kR64F   ? static_cast<const void*>(&zero64)
           : type == cublas::kR32I ? static_cast<const void*>(&zero_int)
                                   : &zero32;
  }
};
constexpr Factors kFactors;

// Handles of one product; freed together.
class Plan {
 public:
  explicit Plan(const lt::Api& api) : api_(api) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    for (const lt::Layout layout : {w, a, out})
      if (layout != nullptr) api_.layout_destroy(layout);
    if (desc != nullptr) api_.desc_destroy(desc);
  }
  template <class T>
  Status set(int attribute, T value) {
    return lt_check(api_.desc_set(desc, attribute, &value, sizeof value), "describing the product");
  }
  lt::MatmulDesc desc = nullptr;
  lt::Layout w = nullptr, a = nullptr, out = nullptr;

 private:
  const lt::Api& api_;
};

class GemmOp : public CudaOp {
 public:
  using CudaOp::CudaOp;

  Status prepare() {
    m_ = params_.axis("m");
    n_ = params_.axis("n");
    k_ = params_.axis("k");
    const std::optional<Types> types = types_of(params_.dtype);
    if (!types) return fail(fmt::format("products of {} are not measured on a GPU", dtype_name(params_.dtype)));
    types_ = *types;
    LLMPROF_ASSIGN(lt_, context_.cublaslt());
    device_.note_library(lt_->library.about);
    const double in_bytes = dtype_bytes(params_.dtype), out_bytes = dtype_bytes(gemm_out_dtype(params_.dtype));
    const Fill numbers{Fill::Kind::kUniform, params_.dtype, 1, 0};
    LLMPROF_CHECK(begin({{"a", bytes_of(m_, k_, in_bytes), Role::kInput, numbers},
                         {"w", bytes_of(n_, k_, in_bytes), Role::kInput, numbers},
                         {"out", bytes_of(m_, n_, out_bytes), Role::kOutput, {}}}));
    if (params_.dtype == DType::kFp8) LLMPROF_CHECK(make_scales());
    LLMPROF_CHECK(add_algorithms(false));
    // Sums in fewer bits between promotions: faster, and what fp8 inference usually runs.
    if (params_.dtype == DType::kFp8) LLMPROF_CHECK(add_algorithms(true));
    return keep_fastest();
  }

 protected:
  Result<Check> compare(size_t) override {
    const GemmOperands operands{array(0, 0),
                                array(0, 1),
                                array(0, 2),
                                m_,
                                n_,
                                k_,
                                params_.dtype,
                                gemm_out_dtype(params_.dtype),
                                static_cast<double>(scale_) * static_cast<double>(scale_)};
    if (!expected_) {
      LLMPROF_ASSIGN(expected_, expect_gemm(device_, operands, params_.seed));
    }
    return check_gemm(device_, operands, *expected_);
  }

 private:
  static size_t bytes_of(int64_t rows, int64_t columns, double element) {
    return static_cast<size_t>(static_cast<double>(rows) * static_cast<double>(columns) * element);
  }

  // fp8 inputs fill their range of +-448; scaled back to +-1 the outputs fit bf16.
  Status make_scales() {
    Result<std::unique_ptr<Buffer>> buffer = device_.allocate(256);
    if (!buffer) return tl::unexpected<Error>(std::move(buffer.error()));
    scale_buffer_ = std::move(*buffer);
    scale_ = 1.0F / 448.0F;
    return device_.upload(*scale_buffer_, 0, &scale_, sizeof scale_);
  }

  Result<std::shared_ptr<Plan>> make_plan(bool fast_accumulation) {
    const lt::Api& api = lt_->library.api;
    std::shared_ptr<Plan> plan = std::make_shared<Plan>(api);
    LLMPROF_CHECK(lt_check(api.desc_create(&plan->desc, types_.compute, types_.scale), "describing the product"));
    LLMPROF_CHECK(plan->set<int32_t>(cublas::kMatmulTransA, cublas::kOpT));
    LLMPROF_CHECK(plan->set<int32_t>(cublas::kMatmulTransB, cublas::kOpN));
    if (params_.dtype == DType::kFp8) {
      const void* const scale = scale_buffer_->address();
      LLMPROF_CHECK(plan->set<const void*>(lt::kMatmulAScale, scale));
      LLMPROF_CHECK(plan->set<const void*>(lt::kMatmulBScale, scale));
      LLMPROF_CHECK(plan->set<int8_t>(lt::kMatmulFastAccum, fast_accumulation ? 1 : 0));
    }
    const uint64_t m = static_cast<uint64_t>(m_), n = static_cast<uint64_t>(n_), k = static_cast<uint64_t>(k_);
    LLMPROF_CHECK(lt_check(api.layout_create(&plan->w, types_.in, k, n, k_), "describing the weights"));
    LLMPROF_CHECK(lt_check(api.layout_create(&plan->a, types_.in, k, m, k_), "describing the activations"));
    LLMPROF_CHECK(lt_check(api.layout_create(&plan->out, types_.out, n, m, n_), "describing the output"));
    return plan;
  }

  Status add_algorithms(bool fast_accumulation) {
    const lt::Api& api = lt_->library.api;
    LLMPROF_ASSIGN(const std::shared_ptr<Plan> plan, make_plan(fast_accumulation));
    lt::Preference preference = nullptr;
    LLMPROF_CHECK(lt_check(api.preference_create(&preference), "asking for algorithms"));
    const uint64_t workspace = lt_->workspace_bytes;
    api.preference_set(preference, lt::kPreferenceWorkspaceBytes, &workspace, sizeof workspace);
    std::array<lt::HeuristicResult, kRequested> results{};
    int found = 0;
    const lt::Status status = api.heuristic(lt_->handle, plan->desc, plan->w, plan->a, plan->out, plan->out, preference,
                                            kRequested, results.data(), &found);
    api.preference_destroy(preference);
    const std::string what = fmt::format("{} x {} x {} of {}", m_, n_, k_, dtype_name(params_.dtype));
    LLMPROF_CHECK(lt_check(status, "choosing an algorithm for " + what));
    if (found == 0) return fail("cuBLASLt has no algorithm for " + what);
    for (int i = 0; i < found; ++i) {
      const lt::HeuristicResult& result = results[static_cast<size_t>(i)];
      if (result.state != lt::kSuccess || result.workspace_bytes > workspace) continue;
      add(fmt::format("cuBLASLt #{}{}", i, fast_accumulation ? " fast accumulation" : ""),
          [this, plan, algo = result.algo](int set) {
            const lt::Status ran = lt_->library.api.matmul(
                lt_->handle, plan->desc, kFactors.one(types_.scale), array(set, 1).address(), plan->w,
                array(set, 0).address(), plan->a, kFactors.zero(types_.scale), array(set, 2).address(), plan->out,
                array(set, 2).address(), plan->out, &algo, reinterpret_cast<void*>(lt_->workspace),
                lt_->workspace_bytes, reinterpret_cast<lt::Stream>(context_.stream()));
            return ran == lt::kSuccess ? Status{} : lt_check(ran, "multiplying");
          });
    }
    return {};
  }

  // The first choice stays first; of the others those that a short screen finds fastest, in the heuristic's order.
  // What is offered is checked before it is timed in earnest.
  Status keep_fastest() {
    std::vector<Candidate>& all = candidates();
    std::vector<double> us(all.size(), 0);
    std::vector<size_t> order;
    double best = std::numeric_limits<double>::infinity(), spent = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (order.size() >= kScreenedMin && spent > kScreenUs) break;
      us[i] = std::numeric_limits<double>::infinity();
      for (const int rounds : {1, kScreenRounds - 1}) {
        if (us[i] > kHopeless * best && rounds > 1) break;
        const Result<std::vector<Sample>> samples = device_.time_cold({all[i].enqueue, 1, 1, rounds, false});
        if (!samples) {
          if (context_.lost()) return tl::unexpected<Error>(samples.error());
          break;  // an algorithm that is refused after all
        }
        for (const Sample& sample : *samples) us[i] = std::min(us[i], sample.us);
        spent += us[i] * (rounds + 1);  // and one to warm up
      }
      if (us[i] == std::numeric_limits<double>::infinity()) continue;
      best = std::min(best, us[i]);
      order.push_back(i);
    }
    if (order.empty()) return fail("no algorithm of cuBLASLt ran");
    std::stable_sort(order.begin() + 1, order.end(), [&](size_t a, size_t b) { return us[a] < us[b]; });
    order.resize(std::min(order.size(), kOffered));
    std::sort(order.begin() + 1, order.end());
    std::vector<Candidate> kept;
    for (const size_t i : order) kept.push_back(std::move(all[i]));
    all = std::move(kept);
    return {};
  }

  int64_t m_ = 0, n_ = 0, k_ = 0;
  Types types_{};
  const CublasLt* lt_ = nullptr;
  std::optional<GemmExpected> expected_;
  std::unique_ptr<Buffer> scale_buffer_;
  float scale_ = 1;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_gemm(Device& device, const OpParams& params) {
  return prepare_as<GemmOp>(device, params);
}

std::optional<std::string> gemm_unsupported(const DeviceIdentity& device, const OpParams& params) {
  const int cc = 10 * device.cc_major + device.cc_minor;
  const auto lacks = [&](std::string_view what, std::string_view from) {
    return fmt::format("{} ({}.{}) has no {} matrix units; they come with {}", device.name, device.cc_major,
                       device.cc_minor, what, from);
  };
  switch (params.dtype) {
    case DType::kFp8:
      if (cc < 89) return lacks("fp8", "8.9");
      for (const char* axis : {"m", "n", "k"})
        if (params.axis(axis) % 16 != 0)
          return fmt::format("fp8 products need multiples of 16, {} is {}", axis, params.axis(axis));
      return std::nullopt;
    case DType::kInt8:
      if (cc < 75) return lacks("int8", "7.5");
      for (const char* axis : {"n", "k"})
        if (params.axis(axis) % 4 != 0)
          return fmt::format("int8 products need multiples of 4, {} is {}", axis, params.axis(axis));
      return std::nullopt;
    case DType::kBf16:
    case DType::kTf32:
      if (cc < 80) return lacks(dtype_name(params.dtype), "8.0");
      return std::nullopt;
    case DType::kFp64:
    case DType::kFp32:
    case DType::kFp16:
      return std::nullopt;
    case DType::kFp4:
      return cc < 100 ? lacks("fp4", "10.0") : std::string("fp4 products with block scales are not measured");
    default:
      return fmt::format("products of {} are not measured on a GPU", dtype_name(params.dtype));
  }
}

}  // namespace llmprof::device::cuda
