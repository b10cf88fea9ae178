#include "workload/cuda_linear.h"

#include <fmt/format.h>

namespace llmprof::workload {
namespace {

namespace lt = cublaslt_abi;

int type_of(DType dtype) { return dtype == DType::kBf16 ? cublas::kR16BF : cublas::kR32F; }

Status check(lt::Status status, std::string_view doing) {
  if (status == lt::kSuccess) return {};
  return fail(fmt::format("{}: cuBLASLt says {}", doing, device::cuda::cublaslt_status_text(status)));
}

}  // namespace

Result<std::unique_ptr<CudaLinears>> CudaLinears::open(device::cuda::Context& context) {
  LLMPROF_ASSIGN(const device::cuda::CublasLt* const lt, context.cublaslt());
  return std::unique_ptr<CudaLinears>(new CudaLinears(context, *lt));
}

CudaLinears::~CudaLinears() {
  const lt::Api& api = lt_.library.api;
  for (const Item& item : items_)
    if (item.description != nullptr) api.desc_destroy(item.description);
  for (const auto& [key, shape] : shapes_)
    for (const lt::Layout layout : {shape.weights, shape.in, shape.out})
      if (layout != nullptr) api.layout_destroy(layout);
}

Result<int> CudaLinears::add(const Tensor& weights, const Tensor& bias, DType out_dtype, std::span<const int64_t> rows,
                             const Scratch& scratch) {
  if (bias.data != nullptr && bias.dtype != out_dtype)
    return fail("cuBLASLt adds a bias of the type of the output only");
  items_.push_back({weights, nullptr, {}});
  Item& item = items_.back();
  LLMPROF_CHECK(describe(item, bias));
  for (const int64_t count : rows) {
    const std::string key = fmt::format("{} {} {} {} {}", weights.rows, weights.columns, count, bias.data != nullptr,
                                        dtype_name(out_dtype));
    const auto [found, added] = shapes_.try_emplace(key);
    Shape& shape = found->second;
    item.shapes[count] = &shape;
    if (!added) continue;
    LLMPROF_CHECK(choose(item, count, out_dtype, shape));
    const Tensor x{nullptr, count, weights.columns, weights.dtype}, out{nullptr, count, weights.rows, out_dtype};
    const auto bytes = [](const Tensor& tensor) {
      return static_cast<size_t>(tensor.elements()) * static_cast<size_t>(dtype_bytes(tensor.dtype));
    };
    LLMPROF_ASSIGN(void* const in_memory, scratch(bytes(x)));
    LLMPROF_ASSIGN(void* const out_memory, scratch(bytes(out)));
    LLMPROF_CHECK(multiply(item, shape, in_memory, out_memory));
  }
  return static_cast<int>(items_.size()) - 1;
}

Status CudaLinears::describe(Item& item, const Tensor& bias) const {
  const lt::Api& api = lt_.library.api;
  const std::string_view doing = "describing a product";
  const auto set = [&](int attribute, auto value) {
    return check(api.desc_set(item.description, attribute, &value, sizeof value), doing);
  };
  LLMPROF_CHECK(check(api.desc_create(&item.description, cublas::kCompute32F, cublas::kR32F), doing));
  LLMPROF_CHECK(set(cublas::kMatmulTransA, int32_t{cublas::kOpT}));
  LLMPROF_CHECK(set(cublas::kMatmulTransB, int32_t{cublas::kOpN}));
  if (bias.data == nullptr) return {};
  LLMPROF_CHECK(set(cublas::kMatmulEpilogue, lt::kEpilogueBias));
  LLMPROF_CHECK(set(lt::kMatmulBiasType, int32_t{type_of(bias.dtype)}));
  return set(lt::kMatmulBiasPointer, static_cast<const void*>(bias.data));
}

// Row-major out[rows, out] = x w^T is, in its column-major terms, out x rows = (in x out)^T times in x rows.
Status CudaLinears::choose(const Item& item, int64_t rows, DType out_dtype, Shape& shape) const {
  const lt::Api& api = lt_.library.api;
  const int64_t in = item.weights.columns, out = item.weights.rows;
  const uint64_t wide_in = static_cast<uint64_t>(in), wide_out = static_cast<uint64_t>(out),
                 count = static_cast<uint64_t>(rows);
  const int type = type_of(item.weights.dtype);
  const std::string what = fmt::format("{} x {} x {} of {}", rows, out, in, dtype_name(item.weights.dtype));
  LLMPROF_CHECK(check(api.layout_create(&shape.weights, type, wide_in, wide_out, in), "describing " + what));
  LLMPROF_CHECK(check(api.layout_create(&shape.in, type, wide_in, count, in), "describing " + what));
  LLMPROF_CHECK(check(api.layout_create(&shape.out, type_of(out_dtype), wide_out, count, out), "describing " + what));
  lt::Preference preference = nullptr;
  LLMPROF_CHECK(check(api.preference_create(&preference), "asking for algorithms"));
  const uint64_t workspace = lt_.workspace_bytes;
  api.preference_set(preference, lt::kPreferenceWorkspaceBytes, &workspace, sizeof workspace);
  lt::HeuristicResult result{};
  int found = 0;
  const lt::Status status = api.heuristic(lt_.handle, item.description, shape.weights, shape.in, shape.out, shape.out,
                                          preference, 1, &result, &found);
  api.preference_destroy(preference);
  LLMPROF_CHECK(check(status, "choosing an algorithm for " + what));
  if (found == 0 || result.state != lt::kSuccess) return fail("cuBLASLt has no algorithm for " + what);
  shape.algo = result.algo;
  return {};
}

Status CudaLinears::multiply(const Item& item, const Shape& shape, const void* x, void* out) const {
  const float one = 1, zero = 0;
  const lt::Status status =
      lt_.library.api.matmul(lt_.handle, item.description, &one, item.weights.data, shape.weights, x, shape.in, &zero,
                             out, shape.out, out, shape.out, &shape.algo, reinterpret_cast<void*>(lt_.workspace),
                             lt_.workspace_bytes, reinterpret_cast<lt::Stream>(context_.stream()));
  return status == lt::kSuccess ? Status() : check(status, "multiplying");
}

Status CudaLinears::run(int id, const Tensor& x, const Tensor& out) {
  const Item& item = items_[static_cast<size_t>(id)];
  const std::map<int64_t, const Shape*>::const_iterator found = item.shapes.find(x.rows);
  if (found == item.shapes.end()) return fail("a product with a number of rows that was not prepared");
  return multiply(item, *found->second, x.data, out.data);
}

}  // namespace llmprof::workload
