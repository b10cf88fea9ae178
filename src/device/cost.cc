#include "device/cost.h"

namespace llmprof::device {
namespace {

double axis(const OpParams& params, std::string_view name) { return static_cast<double>(params.axis(name)); }

// As gemm_out_dtype of the reference has it.
double out_bytes(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kTf32:
      return 4;
    case DType::kFp8:
    case DType::kFp4:
      return 2;
    default:
      return dtype_bytes(dtype);
  }
}

}  // namespace

Cost gemm_cost(const OpParams& params) {
  const double m = axis(params, "m"), n = axis(params, "n"), k = axis(params, "k");
  const double bytes = dtype_bytes(params.dtype);
  Cost cost;
  cost.flops = 2 * m * n * k;
  cost.read_bytes = (m * k + n * k) * bytes;
  cost.write_bytes = m * n * out_bytes(params.dtype);
  cost.matrix = true;
  return cost;
}

int64_t gemm_footprint(const OpParams& params) {
  const Cost cost = gemm_cost(params);
  // Libraries keep a copy of the weights in a layout of their own.
  const double packed = axis(params, "n") * axis(params, "k") * dtype_bytes(params.dtype);
  return static_cast<int64_t>(cost.bytes() + packed);
}

Cost memory_cost(const OpParams& params) {
  const double bytes = axis(params, "bytes");
  Cost cost;
  if (params.variant != "write") cost.read_bytes = params.variant == "triad" ? 2 * bytes : bytes;
  if (params.variant != "read") cost.write_bytes = bytes;
  if (params.variant == "triad") cost.flops = 2 * bytes / dtype_bytes(params.dtype);
  return cost;
}

int64_t memory_footprint(const OpParams& params) { return static_cast<int64_t>(memory_cost(params).bytes()); }

Cost registers_cost(const OpParams& params) {
  Cost cost;
  cost.flops = axis(params, "mflop") * 1e6;
  return cost;
}

// Results of each lane, a few kB per thread or block.
int64_t registers_footprint(const OpParams&) { return int64_t{16} << 20; }

}  // namespace llmprof::device
