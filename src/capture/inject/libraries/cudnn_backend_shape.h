// What a cuDNN operation graph computes, told by its operations: one convolution, one matrix product, or attention, be
// it the single operation of cuDNN 9.13 and later or two products around a softmax, as cudnn-frontend composes it.
//
// Strict: what is not understood leaves the graph unknown. An attention whose lengths are read by the kernel from
// tensors has no lengths here, only the greatest they may have; one with a mask whose content cannot be seen says so.
// Numbers of descriptors, attributes and types are cuDNN's (nvidia/cudnn_abi.h).
#pragma once

#include <cstdint>

#include "capture/inject/libraries/library_calls.h"

namespace llmprof::inject {

constexpr int kBackendDimensionsMax = 8;

// Zero-filled is the state of a new descriptor, here and below.
struct BackendTensor {
  int64_t uid;
  int64_t dims[kBackendDimensionsMax];
  int32_t type;   // cudnnDataType_t
  uint8_t count;  // of dims, 0: not told
  bool has_uid, has_type;
  bool is_virtual;  // exists only inside the kernel
  bool by_value;    // a number passed with the call
  bool ragged;      // its sequences are as long as a tensor says
  bool odd;         // an attribute of it was not understood
};

// Of the descriptors that pointwise and convolution operations refer to.
struct BackendParameters {
  int32_t mode;  // cudnnPointwiseMode_t
  int32_t axis;
  int32_t stride[3], padding[3], padding_behind[3], dilation[3];
  uint8_t spatial;
  uint8_t told;  // of the five attributes of a convolution
  bool has_mode;
  bool odd;
};

enum class OperationKind : uint8_t {
  kUnknown,
  kLight,  // reductions, reshapes, random numbers, scales: no arithmetic that counts, and no mask
  kMatmul,
  kConvolution,
  kPointwise,
  kSoftmax,
  kBandMask,
  kAttention
};
OperationKind operation_kind(int descriptor_type);

// Which tensor is which in BackendOperation::tensors.
enum Role : uint8_t {
  kMatmulA = 0,
  kMatmulB = 1,
  kMatmulC = 2,
  kConvolutionX = 0,
  kConvolutionW = 1,
  kConvolutionY = 2,
  kPointwiseX = 0,
  kPointwiseB = 1,
  kPointwiseT = 2,
  kPointwiseY = 3,
  kAttentionQ = 0,
  kAttentionK = 1,
  kAttentionV = 2,
  kAttentionO = 3,
  kRoleMax = 4
};

struct BackendOperation {
  OperationKind kind;
  uint8_t given;  // bit i: tensors[i] is set
  uint8_t mask;   // attention and band masks: kMask... of library_calls.h
  bool has_parameters;
  bool lengths_at_run;  // sizes are read from tensors
  bool paged;           // attention: keys and values lie in pages
  bool odd;             // an attribute of it was not understood
  BackendParameters parameters;
  BackendTensor tensors[kRoleMax];
};

constexpr int kBackendOperationsMax = 64;  // of a graph; attention has up to about 30

struct GraphShape {
  CallShape shape;
  bool known = false;  // `shape` holds
  uint8_t mask = 0;    // of a graph that only changes scores: what it hides
  bool lengths_at_run = false;
};

// cudnnDataType_t as cudaDataType_t, -1 for the ones that have no equal.
int32_t cuda_type(int cudnn_type);

// Of null operations nothing is known.
GraphShape graph_shape(const BackendOperation* const* operations, int count);

}  // namespace llmprof::inject
