// Hooks of cuDNN: the legacy convolution calls, whose descriptors tell their shapes, and the backend API, whose plans
// cannot be asked: what they were built from is followed from the calls that build them (cudnn_backend.h).
#include "capture/inject/libraries/cudnn_backend.h"
#include "capture/inject/libraries/library_calls.h"
#include "nvidia/cudnn_abi.h"

namespace llmprof::inject {

namespace {

constexpr const char* kCudnn = "libcudnn";  // version 8 and 9 split it: libcudnn_cnn.so, libcudnn_cnn_infer.so, ...

RealSymbol get_tensor{"cudnnGetTensorNdDescriptor", kCudnn};
RealSymbol get_filter{"cudnnGetFilterNdDescriptor", kCudnn};
RealSymbol get_convolution{"cudnnGetConvolutionNdDescriptor", kCudnn};
RealSymbol get_groups{"cudnnGetConvolutionGroupCount", kCudnn};

template <typename Pointer>
Pointer function(RealSymbol& symbol) {
  return symbol.get<std::remove_pointer_t<Pointer>>();
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
  shape.type_a = cuda_type(type_w);
  shape.type_b = cuda_type(type_x);
  shape.type_d = cuda_type(type_y);
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

LLMPROF_CALL_HOOK(cudnnConvolutionForward, kCudnn, cudnn::kNotInitialized8,
                  (void* handle, const void* alpha, const void* x_desc, const void* x, const void* w_desc,
                   const void* w, const void* conv_desc, int algorithm, void* workspace, size_t workspace_bytes,
                   const void* beta, const void* y_desc, void* y),
                  (handle, alpha, x_desc, x, w_desc, w, conv_desc, algorithm, workspace, workspace_bytes, beta, y_desc,
                   y),
                  convolution_shape("cudnnConvolutionForward", x_desc, w_desc, conv_desc, y_desc))

LLMPROF_CALL_HOOK(cudnnConvolutionBiasActivationForward, kCudnn, cudnn::kNotInitialized8,
                  (void* handle, const void* alpha1, const void* x_desc, const void* x, const void* w_desc,
                   const void* w, const void* conv_desc, int algorithm, void* workspace, size_t workspace_bytes,
                   const void* alpha2, const void* z_desc, const void* z, const void* bias_desc, const void* bias,
                   const void* activation_desc, const void* y_desc, void* y),
                  (handle, alpha1, x_desc, x, w_desc, w, conv_desc, algorithm, workspace, workspace_bytes, alpha2,
                   z_desc, z, bias_desc, bias, activation_desc, y_desc, y),
                  convolution_shape("cudnnConvolutionBiasActivationForward", x_desc, w_desc, conv_desc, y_desc))

// ---- operation graphs --------------------------------------------------------------------------------------------
// Descriptors are followed wherever the process is watched, also while nothing is recorded: plans are built once and
// executed later. What a call returns and the program's errno are those of the real one.

namespace {

// False: the hook hands the call on and does nothing else.
bool follows_descriptors() { return watched() && !thread_state.inside; }

RealSymbol create_descriptor{"cudnnBackendCreateDescriptor", kCudnn};
RealSymbol destroy_descriptor{"cudnnBackendDestroyDescriptor", kCudnn};
RealSymbol real_set_attribute{"cudnnBackendSetAttribute", kCudnn};
RealSymbol get_attribute{"cudnnBackendGetAttribute", kCudnn};
RealSymbol finalize{"cudnnBackendFinalize", kCudnn};
RealSymbol execute{"cudnnBackendExecute", kCudnn};
RealSymbol populate_graph{"cudnnBackendPopulateCudaGraph", kCudnn};

}  // namespace

#define LLMPROF_BACKEND_HOOK(name, parameters)                           \
  extern "C" __attribute__((visibility("default"))) int name parameters; \
  extern "C" int name parameters

LLMPROF_BACKEND_HOOK(cudnnBackendCreateDescriptor, (int type, void** descriptor)) {
  auto* real = create_descriptor.get<int(int, void**)>();
  if (real == nullptr) return cudnn::kNotInitialized8;
  const int status = real(type, descriptor);
  if (status == cudnn::kSuccess && follows_descriptors() && descriptor != nullptr) backend_created(type, *descriptor);
  return status;
}

LLMPROF_BACKEND_HOOK(cudnnBackendDestroyDescriptor, (void* descriptor)) {
  auto* real = destroy_descriptor.get<int(void*)>();
  if (real == nullptr) return cudnn::kNotInitialized8;
  // Before: afterwards another thread may be given the same address.
  if (follows_descriptors()) backend_destroyed(descriptor);
  return real(descriptor);
}

LLMPROF_BACKEND_HOOK(cudnnBackendSetAttribute,
                     (void* descriptor, int attribute, int type, int64_t count, const void* elements)) {
  auto* real = real_set_attribute.get<int(void*, int, int, int64_t, const void*)>();
  if (real == nullptr) return cudnn::kNotInitialized8;
  const int status = real(descriptor, attribute, type, count, elements);
  if (status == cudnn::kSuccess && follows_descriptors()) backend_set(descriptor, attribute, type, count, elements);
  return status;
}

LLMPROF_BACKEND_HOOK(cudnnBackendGetAttribute, (const void* descriptor, int attribute, int type, int64_t requested,
                                                int64_t* count, void* elements)) {
  auto* real = get_attribute.get<int(const void*, int, int, int64_t, int64_t*, void*)>();
  if (real == nullptr) return cudnn::kNotInitialized8;
  const int status = real(descriptor, attribute, type, requested, count, elements);
  if (status == cudnn::kSuccess && type == cudnn::kTypeDescriptor && count != nullptr && follows_descriptors())
    backend_got(descriptor, attribute, type, *count < requested ? *count : requested, elements);
  return status;
}

LLMPROF_BACKEND_HOOK(cudnnBackendFinalize, (void* descriptor)) {
  auto* real = finalize.get<int(void*)>();
  if (real == nullptr) return cudnn::kNotInitialized8;
  const int status = real(descriptor);
  if (status == cudnn::kSuccess && follows_descriptors()) backend_finalized(descriptor);
  return status;
}

LLMPROF_BACKEND_HOOK(cudnnBackendExecute, (void* handle, void* plan, void* pack)) {
  auto* real = execute.get<int(void*, void*, void*)>();
  if (real == nullptr) return cudnn::kNotInitialized8;
  CallShape shape;
  if (!hooks_calls() || !plan_shape(plan, pack, shape)) return real(handle, plan, pack);
  CallScope scope{shape};
  const int status = real(handle, plan, pack);
  scope.end(status == cudnn::kSuccess);
  return status;
}

// Puts the plan's kernels into a CUDA graph without a capture; its nodes belong to this call as captured ones do.
LLMPROF_BACKEND_HOOK(cudnnBackendPopulateCudaGraph, (void* handle, void* plan, void* pack, void* graph)) {
  auto* real = populate_graph.get<int(void*, void*, void*, void*)>();
  if (real == nullptr) return cudnn::kNotInitialized8;
  CallShape shape;
  if (!hooks_calls() || !plan_shape(plan, pack, shape)) return real(handle, plan, pack, graph);
  shape.function = "cudnnBackendPopulateCudaGraph";
  CallScope scope{shape};
  const int status = real(handle, plan, pack, graph);
  scope.end(status == cudnn::kSuccess);
  return status;
}

#undef LLMPROF_BACKEND_HOOK

}  // namespace llmprof::inject
