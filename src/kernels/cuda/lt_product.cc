#include "kernels/cuda/lt_product.h"

#include <fmt/format.h>

#include <optional>

namespace llmprof::kernels::cuda {
namespace {

namespace lt = cublaslt;

std::optional<int> data_type(DType dtype) {
  switch (dtype) {
    case DType::kFp64:
      return cublas::kR64F;
    case DType::kFp32:
    case DType::kTf32:
      return cublas::kR32F;
    case DType::kFp16:
      return cublas::kR16F;
    case DType::kBf16:
      return cublas::kR16BF;
    case DType::kFp8:
      return cublas::kR8FE4M3;
    case DType::kFp4:
      return cublas::kR4FE2M1;
    case DType::kInt8:
      return cublas::kR8I;
    case DType::kInt32:
      return cublas::kR32I;
    default:
      return std::nullopt;
  }
}

struct Arithmetic {
  int compute, scale;
};
Arithmetic arithmetic_of(DType dtype) {
  switch (dtype) {
    case DType::kFp64:
      return {cublas::kCompute64F, cublas::kR64F};
    case DType::kTf32:
      return {cublas::kCompute32FFastTf32, cublas::kR32F};
    case DType::kInt8:
      return {cublas::kCompute32I, cublas::kR32I};
    default:
      return {cublas::kCompute32F, cublas::kR32F};
  }
}

Status lt_check(lt::Status status, std::string_view doing) {
  if (status == cublas::kSuccess) return {};
  return fail(fmt::format("{}: cuBLASLt says {}", doing, nvidia::cublaslt_status_text(status)));
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

}  // namespace

size_t block_scale_bytes(int64_t rows, int64_t k) {
  const int64_t factors = (k + 15) / 16;
  return static_cast<size_t>((rows + 127) / 128 * 128 * ((factors + 3) / 4 * 4));
}

template <class T>
Status LtProduct::set(int attribute, T value) {
  return lt_check(lt_.library.api.desc_set(desc_, attribute, &value, sizeof value), "describing the product");
}

Result<std::shared_ptr<LtProduct>> LtProduct::make(device::cuda::Context& context, const device::cuda::CublasLt& lt,
                                                   const LtShape& shape) {
  std::shared_ptr<LtProduct> product(new LtProduct(context, lt, shape));
  LLMPROF_CHECK(product->describe());
  return product;
}

LtProduct::~LtProduct() {
  for (const lt::Layout made : {w_, a_, out_})
    if (made != nullptr) lt_.library.api.layout_destroy(made);
  if (desc_ != nullptr) lt_.library.api.desc_destroy(desc_);
}

Status LtProduct::layout(lt::Layout& made, int type, int64_t rows, int64_t columns, std::string_view what) {
  const lt::Api& api = lt_.library.api;
  const std::string doing = fmt::format("describing the {}", what);
  LLMPROF_CHECK(lt_check(
      api.layout_create(&made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows), doing));
  if (shape_.batch == 1) return {};
  const int32_t count = static_cast<int32_t>(shape_.batch);
  const int64_t stride = rows * columns;
  LLMPROF_CHECK(lt_check(api.layout_set(made, cublas::kLayoutBatchCount, &count, sizeof count), doing));
  return lt_check(api.layout_set(made, cublas::kLayoutBatchStride, &stride, sizeof stride), doing);
}

Status LtProduct::describe() {
  const std::optional<int> in = data_type(shape_.dtype), out = data_type(shape_.out_dtype);
  if (!in || !out)
    return fail(
        fmt::format("cuBLASLt has no products of {} to {}", dtype_name(shape_.dtype), dtype_name(shape_.out_dtype)));
  const Arithmetic arithmetic = arithmetic_of(shape_.dtype);
  scale_type_ = arithmetic.scale;
  LLMPROF_CHECK(
      lt_check(lt_.library.api.desc_create(&desc_, arithmetic.compute, arithmetic.scale), "describing the product"));
  LLMPROF_CHECK(set<int32_t>(cublas::kMatmulTransA, shape_.w_across ? cublas::kOpN : cublas::kOpT));
  LLMPROF_CHECK(set<int32_t>(cublas::kMatmulTransB, cublas::kOpN));
  if (shape_.bias != nullptr) {
    LLMPROF_CHECK(
        set<uint32_t>(cublas::kMatmulEpilogue, shape_.gelu ? cublas::kEpilogue_GELU_BIAS : cublas::kEpilogue_BIAS));
    LLMPROF_CHECK(set<const void*>(cublas::kMatmulBiasPointer, shape_.bias));
    LLMPROF_CHECK(set<int32_t>(cublas::kMatmulBiasType, *out));
  }
  if (shape_.scales != LtScales::kNone) {
    LLMPROF_CHECK(set<const void*>(cublas::kMatmulAScale, shape_.w_scale));
    LLMPROF_CHECK(set<const void*>(cublas::kMatmulBScale, shape_.a_scale));
  }
  if (shape_.scales == LtScales::kVectors || shape_.scales == LtScales::kBlocks) {
    const int mode = shape_.scales == LtScales::kVectors ? cublas::kScaleOuterVec : cublas::kScaleVec16Ue4m3;
    LLMPROF_CHECK(set<int32_t>(cublas::kMatmulAScaleMode, mode));
    LLMPROF_CHECK(set<int32_t>(cublas::kMatmulBScaleMode, mode));
  }
  if (shape_.dtype == DType::kFp8)
    LLMPROF_CHECK(set<int8_t>(cublas::kMatmulFastAccum, shape_.fast_accumulation ? 1 : 0));
  LLMPROF_CHECK(
      layout(w_, *in, shape_.w_across ? shape_.n : shape_.k, shape_.w_across ? shape_.k : shape_.n, "weights"));
  LLMPROF_CHECK(layout(a_, *in, shape_.k, shape_.m, "activations"));
  return layout(out_, *out, shape_.n, shape_.m, "output");
}

Result<std::vector<lt::Algo>> LtProduct::algorithms(int requested) const {
  const lt::Api& api = lt_.library.api;
  lt::Preference preference = nullptr;
  LLMPROF_CHECK(lt_check(api.preference_create(&preference), "asking for algorithms"));
  const uint64_t workspace = lt_.workspace_bytes;
  api.preference_set(preference, lt::kPreferenceWorkspaceBytes, &workspace, sizeof workspace);
  std::vector<lt::HeuristicResult> results(static_cast<size_t>(requested));
  int found = 0;
  const lt::Status status =
      api.heuristic(lt_.handle, desc_, w_, a_, out_, out_, preference, requested, results.data(), &found);
  api.preference_destroy(preference);
  const std::string what = fmt::format("{} x {} x {} of {}", shape_.m, shape_.n, shape_.k, dtype_name(shape_.dtype));
  LLMPROF_CHECK(lt_check(status, "choosing an algorithm for " + what));
  std::vector<lt::Algo> usable;
  for (int i = 0; i < found; ++i) {
    const lt::HeuristicResult& result = results[static_cast<size_t>(i)];
    if (result.state == cublas::kSuccess && result.workspace_bytes <= workspace) usable.push_back(result.algo);
  }
  if (usable.empty()) return fail("cuBLASLt has no algorithm for " + what);
  return usable;
}

Status LtProduct::run(const lt::Algo& algo, const void* a, const void* w, const void* residual, void* out) const {
  const void* const c = shape_.residual ? residual : out;
  const void* const beta = shape_.residual ? kFactors.one(scale_type_) : kFactors.zero(scale_type_);
  const lt::Status ran = lt_.library.api.matmul(lt_.handle, desc_, kFactors.one(scale_type_), w, w_, a, a_, beta, c,
                                                out_, out, out_, &algo, reinterpret_cast<void*>(lt_.workspace),
                                                lt_.workspace_bytes, reinterpret_cast<lt::Stream>(context_.stream()));
  return ran == cublas::kSuccess ? Status{} : lt_check(ran, "multiplying");
}

}  // namespace llmprof::kernels::cuda
