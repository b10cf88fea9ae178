// Convolutions of images by cuDNN: one operation of the graph API, channels last, as PyTorch's channels_last runs them.
#include "kernels/reference/conv.h"

#include <fmt/format.h>

#include "kernels/cuda/cudnn_op.h"
#include "kernels/cuda/ops.h"
#include "ops/layers.h"

namespace llmprof::kernels::cuda {
namespace {

constexpr size_t kConvPlans = 8, kConvsChecked = 4;

// out, x, w
class ConvOp : public CudnnOp {
 public:
  using CudnnOp::CudnnOp;
  size_t worth_checking() const override { return kConvsChecked; }

  Status prepare() {
    if (const std::optional<std::string> why = conv2d_unsupported(device_.identity(), params_))
      return fail(*why, {}, {}, ExitCode::kUsage);
    const ops::ConvSizes of(params_);
    LLMPROF_ASSIGN(const device::cuda::Cudnn* const cudnn, open_cudnn_of_device());
    const Fill numbers{Fill::Kind::kUniform, params_.dtype, 1, 0};
    const auto bytes = [&](int64_t images, int64_t rows, int64_t columns, int64_t channels) {
      return static_cast<size_t>(images * rows * columns * channels) * static_cast<size_t>(dtype_bytes(params_.dtype));
    };
    LLMPROF_CHECK(begin({{"out", bytes(of.batch, of.out_height(), of.out_width(), of.filters), Role::kOutput, {}},
                         {"x", bytes(of.batch, of.height, of.width, of.channels), Role::kInput, numbers},
                         {"w", bytes(of.filters, of.kernel, of.kernel, of.channels), Role::kInput, numbers}}));
    graph_.emplace(*cudnn);
    const auto channels_last = [&](int64_t images, int64_t channels, int64_t rows, int64_t columns) {
      return graph_->in_memory(params_.dtype, {images, channels, rows, columns},
                               {rows * columns * channels, 1, columns * channels, channels});
    };
    const CudnnGraph::Tensor x = channels_last(of.batch, of.channels, of.height, of.width);
    const CudnnGraph::Tensor w = channels_last(of.filters, of.channels, of.kernel, of.kernel);
    const CudnnGraph::Tensor out = channels_last(of.batch, of.filters, of.out_height(), of.out_width());
    graph_->convolve(x, w, out, {of.padding, of.padding}, {of.stride, of.stride});
    return add_plans(*graph_, {{out, 0}, {x, 1}, {w, 2}}, kConvPlans);
  }

 protected:
  Result<Check> compare(size_t) override {
    const ops::ConvSizes of(params_);
    const ConvOperands operands{array(0, 1), array(0, 2), array(0, 0), of.batch,  of.channels, of.height,
                                of.width,    of.filters,  of.kernel,   of.stride, of.padding,  params_.dtype};
    if (expected_.places.empty()) {
      LLMPROF_ASSIGN(expected_, expect_conv(device_, operands, params_.seed));
    }
    return check_conv(device_, operands, expected_);
  }

 private:
  std::optional<CudnnGraph> graph_;
  ConvExpected expected_;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_conv2d(Device& device, const OpParams& params) {
  return prepare_as<ConvOp>(device, params);
}

std::optional<std::string> fp32_of_cudnn_unsupported(const OpParams& params) {
  if (params.dtype != DType::kFp32) return std::nullopt;
  return "fp32 is measured on CPUs only: what cuDNN does with fp32 tensors on the matrix units is --dtype tf32";
}

std::optional<std::string> conv2d_unsupported(const DeviceIdentity& device, const OpParams& params) {
  if (std::optional<std::string> why = fp32_of_cudnn_unsupported(params)) return why;
  if (params.dtype != DType::kFp16 && device.cc_major < 8)
    return fmt::format("{} ({}.{}) has no {} matrix units; they come with 8.0", device.name, device.cc_major,
                       device.cc_minor, dtype_name(params.dtype));
  return ops::filter_too_large(ops::ConvSizes(params));
}

}  // namespace llmprof::kernels::cuda
