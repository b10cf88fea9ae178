// The binary interface of cuDNN (8 and 9), as far as the hooks need it: element types, the getters of the descriptors
// that legacy convolution calls pass, and what describes an operation graph of the backend API. The values are those of
// cudnn_graph_v9.h of cuDNN 9.19.0; an attribute never changes its number between versions.
// tests/unit/capture_abi_hooks_test.cc holds them against the official headers where they are installed.
#pragma once

#include <cstdint>

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
  kInt64 = 10,
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

// ---- operation graphs: cudnnBackendSetAttribute(descriptor, attribute, type, count, elements) ---------------------

// cudnnBackendDescriptorType_t
enum DescriptorType : int {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristics = 4,
  kPlan = 5,
  kOpConvolutionForward = 10,
  kOpPointwise = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kOpMatmul = 19,
  kOpReduction = 22,
  kOpReshape = 31,
  kOpRandom = 33,
  kOpPagedCacheLoad = 35,
  kOpBlockScaleQuantize = 36,
  kOpBlockScaleDequantize = 37,
  kOpAttentionForward = 41,  // since 9.13
  kOpBandMask = 44,          // since 9.20, and after the header that was read
  kOpSoftmax = 45,           // as above
};

// cudnnBackendAttributeType_t
enum AttributeType : int {
  kTypeDataType = 1,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypeVoidPointer = 6,
  kTypeConvolutionMode = 7,
  kTypePointwiseMode = 14,
  kTypeDescriptor = 15,
  kTypeChar = 24,
};

// cudnnBackendAttributeName_t
enum Attribute : int {
  kPointwiseMode = 0,
  kPointwiseAxis = 9,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kConfigEngine = 300,
  kPlanConfig = 401,
  kPlanJson = 405,
  kOpConvolutionForwardConvolution = 702,
  kOpConvolutionForwardW = 703,
  kOpConvolutionForwardX = 704,
  kOpConvolutionForwardY = 705,
  kOpPointwiseDescriptor = 750,
  kOpPointwiseX = 751,
  kOpPointwiseB = 752,
  kOpPointwiseY = 753,
  kOpPointwiseT = 758,  // the condition of a selection
  kGraphOperations = 801,
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorVectorCount = 904,
  kTensorUniqueId = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kTensorRaggedOffset = 913,
  kPackUniqueIds = 1000,
  kPackOverrideUniqueIds = 1010,
  kPackOverrideShapes = 1011,
  kPackOverrideStrides = 1012,
  kEngineGraph = 1300,
  kOpMatmulA = 1520,
  kOpMatmulB = 1521,
  kOpMatmulC = 1522,
  kOpMatmulDescriptor = 1523,
  kOpMatmulM = 1525,  // tensors with the sizes of this execution
  kOpMatmulN = 1526,
  kOpMatmulK = 1527,
  kOpAttentionQ = 2800,
  kOpAttentionK = 2801,
  kOpAttentionV = 2802,
  kOpAttentionO = 2803,
  kOpAttentionStats = 2804,
  kOpAttentionScale = 2805,
  kOpAttentionBlockMask = 2806,
  kOpAttentionPageTableK = 2807,
  kOpAttentionPageTableV = 2808,
  kOpAttentionLengthsQ = 2809,
  kOpAttentionLengthsKv = 2810,
  kOpAttentionSubgraph = 2811,  // since 9.21, as all that follow: operations on the scores
  kOpAttentionSubgraphInput = 2812,
  kOpAttentionSubgraphOutput = 2813,
  kOpAttentionSoftmax = 2814,
  kOpAttentionUnfuseFma = 2819,  // 2815 to 2818 are about dropout
  kOpBandMaskX = 3000,
  kOpBandMaskLengthsKv = 3001,
  kOpBandMaskLengthsQ = 3002,
  kOpBandMaskLeftBound = 3003,
  kOpBandMaskRightShift = 3004,
  kOpBandMaskB = 3005,
  kOpBandMaskY = 3006,
  kOpBandMaskComparison = 3007,
};

// cudnnPointwiseMode_t
enum Pointwise : int {
  kAdd = 0,
  kMultiply = 1,
  kExp = 13,
  kReluForward = 100,
  kGeluForward = 104,
  kCompareGe = 303,
  kGenIndex = 501,
  kBinarySelect = 601,
};

}  // namespace llmprof::cudnn
