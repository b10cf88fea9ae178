#include "ops/memory.h"

namespace llmprof::ops {
namespace {

double axis_of(const OpParams& params, std::string_view name) { return static_cast<double>(params.axis(name)); }

}  // namespace

Cost memory_cost(const OpParams& params) {
  const double bytes = axis_of(params, "bytes");
  Cost cost;
  if (params.variant != "write") cost.read_bytes = params.variant == "triad" ? 2 * bytes : bytes;
  if (params.variant != "read") cost.write_bytes = bytes;
  if (params.variant == "triad") cost.flops = 2 * bytes / dtype_bytes(params.dtype);
  return cost;
}

Cost registers_cost(const OpParams& params) {
  Cost cost;
  cost.flops = axis_of(params, "mflop") * 1e6;
  return cost;
}

// Results of each lane, a few kB per thread or block.
int64_t registers_footprint(const OpParams&) { return int64_t{16} << 20; }

}  // namespace llmprof::ops
