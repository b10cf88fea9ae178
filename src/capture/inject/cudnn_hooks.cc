// Hooks of cuDNN: the legacy convolution calls, whose descriptors tell their shapes. Operation graphs (the backend API,
// attention among them) keep their shapes inside finalized plans that cannot be asked; those kernels are told apart by
// their names instead.
#include "capture/abi/cublas_abi.h"
#include "capture/abi/cudnn_abi.h"
#include "capture/inject/library_calls.h"

namespace llmprof::inject {

namespace {

constexpr const char* kLibrary = "libcudnn";  // version 8 and 9 split it: libcudnn_cnn.so, libcudnn_cnn_infer.so, ...

RealSymbol get_tensor{"cudnnGetTensorNdDescriptor", kLibrary};
RealSymbol get_filter{"cudnnGetFilterNdDescriptor", kLibrary};
RealSymbol get_convolution{"cudnnGetConvolutionNdDescriptor", kLibrary};
RealSymbol get_groups{"cudnnGetConvolutionGroupCount", kLibrary};

template <typename Pointer>
Pointer function(RealSymbol& symbol) {
  return symbol.get<std::remove_pointer_t<Pointer>>();
}

// As cudaDataType_t, -1 for the ones that have no equal.
int32_t element_type(int type) {
  switch (type) {
    case cudnn::kFloat:
      return cublas::kR32F;
    case cudnn::kDouble:
      return cublas::kR64F;
    case cudnn::kHalf:
      return cublas::kR16F;
    case cudnn::kInt8:
      return cublas::kR8I;
    case cudnn::kInt32:
      return cublas::kR32I;
    case cudnn::kBfloat16:
      return cublas::kR16BF;
    case cudnn::kFp8E4m3:
      return cublas::kR8FE4M3;
    case cudnn::kFp8E5m2:
      return cublas::kR8FE5M2;
    default:
      return -1;
  }
}

// As the matrix product it is: m output channels, n output positions of all images, k input channels of a group times
// the filter's size, so that 2 m n k are its FLOPs.
CallShape convolution_shape(const char* name, const void* x, const void* w, const void* convolution, const void* y) {
  CallShape shape;
  shape.function = name;
  shape.kind = kWorkConvolution;
  auto tensor = function<cudnn::GetTensor>(get_tensor);
  auto filter = function<cudnn::GetFilter>(get_filter);
  auto conv = function<cudnn::GetConvolution>(get_convolution);
  auto groups = function<cudnn::GetGroups>(get_groups);
  if (tensor == nullptr || filter == nullptr || conv == nullptr) return shape;
  constexpr int kMax = 5;  // two spatial dimensions, three of video
  int type_x = -1, type_w = -1, type_y = -1, compute = -1, count_x = 0, count_w = 0, count_y = 0, spatial = 0;
  int dims_x[cudnn::kDimensionsMax], dims_w[cudnn::kDimensionsMax], dims_y[cudnn::kDimensionsMax];
  int strides[cudnn::kDimensionsMax], padding[cudnn::kDimensionsMax], stride[cudnn::kDimensionsMax];
  int dilation[cudnn::kDimensionsMax], format = 0, mode = 0, group_count = 1;
  if (tensor(x, kMax, &type_x, &count_x, dims_x, strides) != cudnn::kSuccess) return shape;
  if (tensor(y, kMax, &type_y, &count_y, dims_y, strides) != cudnn::kSuccess) return shape;
  if (filter(w, kMax, &type_w, &format, &count_w, dims_w) != cudnn::kSuccess) return shape;
  if (conv(convolution, kMax - 2, &spatial, padding, stride, dilation, &mode, &compute) != cudnn::kSuccess)
    return shape;
  if (groups != nullptr && groups(convolution, &group_count) != cudnn::kSuccess) group_count = 1;
  if (count_x < 3 || count_x > kMax || count_w != count_x || count_y != count_x) return shape;
  shape.type_a = element_type(type_w);
  shape.type_b = element_type(type_x);
  shape.type_d = element_type(type_y);
  shape.dimensions = static_cast<uint8_t>(count_x);
  shape.conv_groups = group_count;
  shape.m = dims_w[0];
  shape.n = dims_y[0];
  shape.k = dims_w[1];
  for (int i = 0; i < count_x; ++i) {
    shape.input[i] = dims_x[i];
    shape.filter[i] = dims_w[i];
    if (i < 2) continue;
    shape.n *= dims_y[i];
    shape.k *= dims_w[i];
    shape.stride[i - 2] = stride[i - 2];
    shape.padding[i - 2] = padding[i - 2];
    shape.dilation[i - 2] = dilation[i - 2];
  }
  return shape;
}

}  // namespace

LLMPROF_CALL_HOOK(cudnnConvolutionForward, kLibrary, cudnn::kNotInitialized,
                  (void* handle, const void* alpha, const void* x_desc, const void* x, const void* w_desc,
                   const void* w, const void* conv_desc, int algorithm, void* workspace, size_t workspace_bytes,
                   const void* beta, const void* y_desc, void* y),
                  (handle, alpha, x_desc, x, w_desc, w, conv_desc, algorithm, workspace, workspace_bytes, beta, y_desc,
                   y),
                  convolution_shape("cudnnConvolutionForward", x_desc, w_desc, conv_desc, y_desc))

LLMPROF_CALL_HOOK(cudnnConvolutionBiasActivationForward, kLibrary, cudnn::kNotInitialized,
                  (void* handle, const void* alpha1, const void* x_desc, const void* x, const void* w_desc,
                   const void* w, const void* conv_desc, int algorithm, void* workspace, size_t workspace_bytes,
                   const void* alpha2, const void* z_desc, const void* z, const void* bias_desc, const void* bias,
                   const void* activation_desc, const void* y_desc, void* y),
                  (handle, alpha1, x_desc, x, w_desc, w, conv_desc, algorithm, workspace, workspace_bytes, alpha2,
                   z_desc, z, bias_desc, bias, activation_desc, y_desc, y),
                  convolution_shape("cudnnConvolutionBiasActivationForward", x_desc, w_desc, conv_desc, y_desc))

}  // namespace llmprof::inject
