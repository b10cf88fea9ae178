// The binary interface of cuDNN (8 and 9), as far as the hooks need it: element types, and the getters of the
// descriptors that legacy convolution calls pass. tests/unit/capture_abi_hooks_test.cc holds it against the official
// headers where they are installed.
#pragma once

namespace llmprof::cudnn {

enum Status : int { kSuccess = 0, kNotInitialized = 1 };

// cudnnDataType_t
enum DataType : int {
  kFloat = 0,
  kDouble = 1,
  kHalf = 2,
  kInt8 = 3,
  kInt32 = 4,
  kBfloat16 = 9,
  kFp8E4m3 = 12,
  kFp8E5m2 = 13,
};

constexpr int kDimensionsMax = 8;  // CUDNN_DIM_MAX

// cudnnGetTensorNdDescriptor, cudnnGetFilterNdDescriptor, cudnnGetConvolutionNdDescriptor,
// cudnnGetConvolutionGroupCount
using GetTensor = int (*)(const void* tensor, int requested, int* type, int* count, int* dims, int* strides);
using GetFilter = int (*)(const void* filter, int requested, int* type, int* format, int* count, int* dims);
using GetConvolution = int (*)(const void* convolution, int requested, int* count, int* padding, int* strides,
                               int* dilation, int* mode, int* compute_type);
using GetGroups = int (*)(const void* convolution, int* groups);

}  // namespace llmprof::cudnn
