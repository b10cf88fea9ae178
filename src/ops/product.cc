#include "ops/product.h"

#include <algorithm>
#include <cmath>

namespace llmprof::ops {
namespace {

Product product_of(const OpParams& params, std::vector<int64_t> first_row) {
  Product product;
  product.first_row = std::move(first_row);
  product.n = params.axis("n");
  product.k = params.axis("k");
  product.dtype = params.dtype;
  product.out_dtype = gemm_out_dtype(params.dtype);
  return product;
}

}  // namespace

DType gemm_out_dtype(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return DType::kInt32;
    case DType::kFp8:
    case DType::kFp4:
      return DType::kBf16;
    case DType::kTf32:
      return DType::kFp32;
    default:
      return dtype;
  }
}

double expected_experts(int64_t experts, int64_t top_k, int64_t tokens) {
  if (top_k >= experts) return static_cast<double>(experts);
  if (tokens <= 1) return static_cast<double>(top_k * tokens);
  const double all = static_cast<double>(experts);
  return -all * std::expm1(static_cast<double>(tokens) * std::log1p(-static_cast<double>(top_k) / all));
}

Product gemm_product(const OpParams& params) {
  Product product = product_of(params, {0, params.axis("m")});
  product.bias = params.variant == "bias" || params.variant == "bias_gelu";
  product.gelu = params.variant == "bias_gelu";
  product.residual = params.variant == "residual";
  return product;
}

Product gemm_batched_product(const OpParams& params) {
  std::vector<int64_t> first_row;
  for (int64_t i = 0; i <= params.axis("batch"); ++i) first_row.push_back(i * params.axis("m"));
  return product_of(params, std::move(first_row));
}

Product gemm_w8a8_product(const OpParams& params) {
  Product product = product_of(params, {0, params.axis("m")});
  product.out_dtype = DType::kBf16;
  product.scales = true;
  return product;
}

Product gemm_grouped_product(const OpParams& params) {
  const int64_t rows = params.axis("rows"), groups = params.axis("groups");
  double all = 0;
  for (int64_t g = 0; g < groups; ++g) all += 1 / static_cast<double>(g + 1);
  std::vector<int64_t> first_row;
  double before = 0;
  for (int64_t g = 0; g <= groups; ++g) {
    // Rounded sums, so that the last is all rows exactly.
    first_row.push_back(params.variant == "skewed" ? std::llround(static_cast<double>(rows) * before / all)
                                                   : g * (rows / groups) + std::min(g, rows % groups));
    before += 1 / static_cast<double>(g + 1);
  }
  first_row.back() = rows;
  return product_of(params, std::move(first_row));
}

namespace {
constexpr double kFp4FactorBytes = 1.0 / 16;  // of an element: an e4m3 factor for 16
}  // namespace

Cost product_cost(const Product& product) {
  const Gemm gemm{1, static_cast<double>(product.rows()), static_cast<double>(product.n),
                  static_cast<double>(product.k)};
  const double in_bytes = dtype_bytes(product.dtype) + (product.dtype == DType::kFp4 ? kFp4FactorBytes : 0),
               out_bytes = dtype_bytes(product.out_dtype);
  double weights = 0;
  for (int64_t g = 0; g < product.groups(); ++g) weights += product.rows_of(g) > 0 ? gemm.b_elements() : 0;
  Cost cost;
  cost.flops = gemm.flops();
  cost.read_bytes = (gemm.a_elements() + weights) * in_bytes;
  if (product.bias) cost.read_bytes += gemm.n * out_bytes;
  if (product.residual) cost.read_bytes += gemm.result_elements() * out_bytes;
  if (product.scales) cost.read_bytes += (gemm.m + gemm.n) * 4;
  cost.write_bytes = gemm.result_elements() * out_bytes;
  cost.matrix = true;
  return cost;
}

int64_t product_footprint(const Product& product) {
  const double weights = static_cast<double>(product.groups()) * static_cast<double>(product.n) *
                         static_cast<double>(product.k) * dtype_bytes(product.dtype);
  // Sums before they are scaled, where that takes a kernel of its own.
  const double sums = product.scales ? static_cast<double>(product.rows()) * static_cast<double>(product.n) * 4 : 0;
  return static_cast<int64_t>(product_cost(product).bytes() + weights + sums);
}

}  // namespace llmprof::ops
