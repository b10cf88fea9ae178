// Convolutions of images in fp64 over sampled outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "kernels/op.h"

namespace llmprof::kernels {

// out[n][p][q][k] = sum over r, s, c of x[n][p stride + r - padding][q stride + s - padding][c] * w[k][r][s][c]; all
// dense, outside of the image is zero.
struct ConvOperands {
  const Buffer& x;
  const Buffer& w;
  const Buffer& out;
  int64_t batch = 1, channels = 1, height = 1, width = 1, filters = 1, kernel = 1, stride = 1, padding = 0;
  DType dtype = DType::kFp32;
  int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
};
// What sampled outputs must be: 64 places (all of a small image) and 64 filters, the first and the last among them. It
// serves every candidate of a case.
struct ConvExpected {
  std::vector<int64_t> places, filters;      // places of batch * out_height * out_width
  std::vector<double> reference, tolerance;  // of each place's filters, place after place
};
Result<ConvExpected> expect_conv(Device& device, const ConvOperands& operands, uint64_t seed);
// These outputs, and whether others spread over the result were written. `out` was poisoned before the kernel ran.
Result<Check> check_conv(Device& device, const ConvOperands& operands, const ConvExpected& expected);

}  // namespace llmprof::kernels
