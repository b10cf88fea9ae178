// libcudnn_cnn.so.9 as far as the hook tests call it. A descriptor is the address of a FakeConvolution.
#include "fake_cudnn.h"

#include <stdint.h>

#include "fake_log.h"

FAKE_EXPORT int cudnnGetTensorNdDescriptor(const void* tensor, int requested, int* type, int* count, int* dims,
                                           int* strides) {
  const FakeTensor& fake = *static_cast<const FakeTensor*>(tensor);
  *type = fake.type;
  *count = fake.count;
  for (int i = 0; i < requested && i < fake.count; ++i) dims[i] = fake.dims[i], strides[i] = 1;
  return 0;
}

FAKE_EXPORT int cudnnGetFilterNdDescriptor(const void* filter, int requested, int* type, int* format, int* count,
                                           int* dims) {
  const FakeTensor& fake = *static_cast<const FakeTensor*>(filter);
  *type = fake.type;
  *format = 0;
  *count = fake.count;
  for (int i = 0; i < requested && i < fake.count; ++i) dims[i] = fake.dims[i];
  return 0;
}

FAKE_EXPORT int cudnnGetConvolutionNdDescriptor(const void* convolution, int requested, int* count, int* padding,
                                                int* strides, int* dilation, int* mode, int* compute_type) {
  const FakeConvolution& fake = *static_cast<const FakeConvolution*>(convolution);
  *count = 2;
  for (int i = 0; i < requested && i < 2; ++i) padding[i] = fake.padding, strides[i] = fake.stride, dilation[i] = 1;
  *mode = 1;
  *compute_type = 0;
  return 0;
}

FAKE_EXPORT int cudnnGetConvolutionGroupCount(const void* convolution, int* groups) {
  *groups = static_cast<const FakeConvolution*>(convolution)->groups;
  return 0;
}

FAKE_EXPORT int cudnnConvolutionForward(void*, const void*, const void*, const void*, const void*, const void*,
                                        const void*, int algorithm, void*, size_t workspace_bytes, const void*,
                                        const void*, void* y) {
  fake_log("cudnnConvolutionForward %d %zu %x", algorithm, workspace_bytes,
           static_cast<unsigned>(reinterpret_cast<uintptr_t>(y)));
  return 0;
}
