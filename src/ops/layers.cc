#include "ops/layers.h"

#include <fmt/format.h>

#include "ops/product.h"

namespace llmprof::ops {

ConvSizes::ConvSizes(const OpParams& params)
    : batch(params.axis("batch")),
      channels(params.axis("in")),
      height(params.axis("height")),
      width(params.axis("width")),
      filters(params.axis("out")),
      kernel(params.axis("kernel")),
      stride(params.axis("stride")),
      padding(params.variant == "same" ? kernel / 2 : 0) {}

std::optional<std::string> filter_too_large(const ConvSizes& of) {
  if (of.height + 2 * of.padding >= of.kernel && of.width + 2 * of.padding >= of.kernel) return std::nullopt;
  return fmt::format("a filter of {} x {} does not fit an image of {} x {}", of.kernel, of.kernel, of.height, of.width);
}

Cost conv2d_cost(const OpParams& params) {
  const ConvSizes of(params);
  const double images = static_cast<double>(of.batch), channels = static_cast<double>(of.channels);
  const Gemm gemm{1, images * static_cast<double>(of.out_height()) * static_cast<double>(of.out_width()),
                  static_cast<double>(of.filters), channels * static_cast<double>(of.kernel * of.kernel)};
  const double bytes = dtype_bytes(params.dtype);
  Cost cost;
  cost.flops = gemm.flops();
  cost.read_bytes =
      bytes * (images * channels * static_cast<double>(of.height) * static_cast<double>(of.width) + gemm.b_elements());
  cost.write_bytes = bytes * gemm.result_elements();
  cost.matrix = true;
  return cost;
}

// cuDNN may ask for as much again.
int64_t conv2d_footprint(const OpParams& params) { return static_cast<int64_t>(2 * conv2d_cost(params).bytes()); }

LstmSizes::LstmSizes(const OpParams& params)
    : steps(params.axis("tokens")),
      batch(params.axis("batch")),
      input(params.axis("input")),
      hidden(params.axis("hidden")),
      layers(params.axis("layers")) {}

int64_t LstmSizes::weights() const {
  return 4 * hidden * (input + hidden + 2) + (layers - 1) * 4 * hidden * (2 * hidden + 2);
}

Cost lstm_cost(const OpParams& params) {
  const LstmSizes of(params);
  const double rows = static_cast<double>(of.steps) * static_cast<double>(of.batch);
  const double input = static_cast<double>(of.input), hidden = static_cast<double>(of.hidden);
  const double bytes = dtype_bytes(params.dtype);
  Cost cost;
  cost.flops = 2 * rows * 4 * hidden * (input + hidden + static_cast<double>(of.layers - 1) * 2 * hidden);
  cost.read_bytes = bytes * (static_cast<double>(of.weights()) + rows * input);
  cost.write_bytes = bytes * rows * hidden;
  cost.matrix = true;
  return cost;
}

// Gates of all steps in scratch memory.
int64_t lstm_footprint(const OpParams& params) {
  const LstmSizes of(params);
  return static_cast<int64_t>(lstm_cost(params).bytes()) + 8 * 4 * of.steps * of.batch * of.hidden;
}

}  // namespace llmprof::ops
