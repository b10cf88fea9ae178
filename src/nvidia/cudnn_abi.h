// The binary interface of cuDNN (8 and 9): element types, the getters of the descriptors that legacy convolution calls
// pass, what describes an operation graph of the backend API, and the functions (of 9) that build such graphs and
// recurrent networks and run them. The values are those of cudnn_graph_v9.h of cuDNN 9.19.0; an attribute never changes
// its number between versions. tests/unit/nvidia_hooks_abi_test.cc and nvidia_cudnn_abi_test.cc hold them against the
// official headers where they are installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llmprof::cudnn {

constexpr int kNotInitialized8 = 1;  // CUDNN_STATUS_NOT_INITIALIZED of cuDNN 8
// cudnnStatus_t: thousands are the category
enum Status : int {
  kSuccess = 0,
  kNotInitialized = 1001,
  kBadParameter = 2000,
  kNotSupported = 3000,
  kInternalError = 4000,
  kExecutionFailed = 5000,
};

// cudnnDataType_t
enum DataType : int {
  kFloat = 0,
  kDouble = 1,
  kHalf = 2,
  kInt8 = 3,
  kInt32 = 4,
  kBfloat16 = 9,
  kInt64 = 10,
  kBoolean = 11,
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
  kMatmul = 18,
  kOpMatmul = 19,
  kReduction = 21,
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
  kTypeHandle = 0,
  kTypeDataType = 1,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypeFloat = 4,
  kTypeVoidPointer = 6,
  kTypeConvolutionMode = 7,
  kTypeHeuristicsMode = 8,
  kTypePointwiseMode = 14,
  kTypeDescriptor = 15,
  kTypeReductionOperator = 18,
  kTypeChar = 24,
};

// cudnnBackendAttributeName_t
enum Attribute : int {
  kPointwiseMode = 0,
  kPointwisePrecision = 1,
  kPointwiseAxis = 9,
  kConvolutionType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspaceBytes = 402,
  kPlanJson = 405,
  kOpConvolutionForwardAlpha = 700,
  kOpConvolutionForwardBeta = 701,
  kOpConvolutionForwardConvolution = 702,
  kOpConvolutionForwardW = 703,
  kOpConvolutionForwardX = 704,
  kOpConvolutionForwardY = 705,
  kOpPointwiseDescriptor = 750,
  kOpPointwiseX = 751,
  kOpPointwiseB = 752,
  kOpPointwiseY = 753,
  kOpPointwiseT = 758,  // the condition of a selection
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorVectorCount = 904,
  kTensorUniqueId = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kTensorRaggedOffset = 913,
  kPackUniqueIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kPackOverrideUniqueIds = 1010,
  kPackOverrideShapes = 1011,
  kPackOverrideStrides = 1012,
  kEngineGraph = 1300,
  kMatmulType = 1500,
  kOpMatmulA = 1520,
  kOpMatmulB = 1521,
  kOpMatmulC = 1522,
  kOpMatmulDescriptor = 1523,
  kOpMatmulM = 1525,  // tensors with the sizes of this execution
  kOpMatmulN = 1526,
  kOpMatmulK = 1527,
  kReductionOperator = 1600,
  kReductionType = 1601,
  kOpReductionX = 1610,
  kOpReductionY = 1611,
  kOpReductionDescriptor = 1612,
  kOpPagedCacheLoadContainer = 1950,  // since 9.5, as the three that follow: out of a cache of pages
  kOpPagedCacheLoadY = 1951,
  kOpPagedCacheLoadLengths = 1952,
  kOpPagedCacheLoadTable = 1953,
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
  kDivide = 6,
  kSubtract = 9,
  kExp = 13,
  kLog = 15,
  kReluForward = 100,
  kGeluForward = 104,
  kCompareGe = 303,
  kCompareLess = 304,
  kAnd = 400,
  kGenIndex = 501,
  kBinarySelect = 601,
};

// ---- building and running graphs and recurrent networks

using Handle = struct HandleStruct*;
using Descriptor = void*;  // of the backend API
using Stream = struct StreamStruct*;
using TensorDescriptor = struct TensorStruct*;  // of the API before it
using RnnDescriptor = struct RnnStruct*;
using RnnDataDescriptor = struct RnnDataStruct*;
using DropoutDescriptor = struct DropoutStruct*;

// cudnnBackendHeurMode_t
constexpr int kHeuristicsA = 3;
constexpr int kHeuristicsFallback = 2;
// cudnnReduceTensorOp_t
constexpr int kReduceAdd = 0;
constexpr int kReduceMax = 3;
constexpr int kCrossCorrelation = 1;  // cudnnConvolutionMode_t

// cudnnMathType_t
constexpr int kMathDefault = 0;
constexpr int kMathTensorCores = 1;
constexpr int kMathTensorCoresConvert = 2;
// cudnnRNNAlgo_t
constexpr int kRnnStandard = 0;
constexpr int kRnnPersistStatic = 1;
constexpr int kRnnPersistStaticSmall = 3;
constexpr int kRnnLstm = 2;            // cudnnRNNMode_t
constexpr int kRnnDoubleBias = 2;      // cudnnRNNBiasMode_t
constexpr int kRnnUnidirectional = 0;  // cudnnDirectionMode_t
constexpr int kRnnLinearInput = 0;     // cudnnRNNInputMode_t
constexpr int kRnnInference = 0;       // cudnnForwardMode_t
constexpr int kRnnSequenceMajor = 0;   // cudnnRNNDataLayout_t, padded
constexpr uint32_t kRnnPaddedIo = 1;

// F(member, name, parameters)
#define LLMPROF_CUDNN_FUNCTIONS(F)                                                                                  \
  F(create, cudnnCreate, (Handle * handle))                                                                         \
  F(destroy, cudnnDestroy, (Handle handle))                                                                         \
  F(set_stream, cudnnSetStream, (Handle handle, Stream stream))                                                     \
  F(desc_create, cudnnBackendCreateDescriptor, (int type, Descriptor* descriptor))                                  \
  F(desc_destroy, cudnnBackendDestroyDescriptor, (Descriptor descriptor))                                           \
  F(desc_set, cudnnBackendSetAttribute,                                                                             \
    (Descriptor descriptor, int attribute, int type, int64_t count, const void* elements))                          \
  F(desc_get, cudnnBackendGetAttribute,                                                                             \
    (Descriptor descriptor, int attribute, int type, int64_t requested, int64_t* count, void* elements))            \
  F(desc_finalize, cudnnBackendFinalize, (Descriptor descriptor))                                                   \
  F(execute, cudnnBackendExecute, (Handle handle, Descriptor plan, Descriptor pack))                                \
  F(tensor_create, cudnnCreateTensorDescriptor, (TensorDescriptor * tensor))                                        \
  F(tensor_destroy, cudnnDestroyTensorDescriptor, (TensorDescriptor tensor))                                        \
  F(tensor_set, cudnnSetTensorNdDescriptor,                                                                         \
    (TensorDescriptor tensor, int type, int count, const int* dims, const int* strides))                            \
  F(tensor_get, cudnnGetTensorNdDescriptor,                                                                         \
    (TensorDescriptor tensor, int requested, int* type, int* count, int* dims, int* strides))                       \
  F(rnn_create, cudnnCreateRNNDescriptor, (RnnDescriptor * rnn))                                                    \
  F(rnn_destroy, cudnnDestroyRNNDescriptor, (RnnDescriptor rnn))                                                    \
  F(rnn_set, cudnnSetRNNDescriptor_v8,                                                                              \
    (RnnDescriptor rnn, int algorithm, int cell, int bias, int direction, int input, int type, int precision,       \
     int math, int32_t input_size, int32_t hidden_size, int32_t projected_size, int32_t layers,                     \
     DropoutDescriptor dropout, uint32_t flags))                                                                    \
  F(rnn_data_create, cudnnCreateRNNDataDescriptor, (RnnDataDescriptor * data))                                      \
  F(rnn_data_destroy, cudnnDestroyRNNDataDescriptor, (RnnDataDescriptor data))                                      \
  F(rnn_data_set, cudnnSetRNNDataDescriptor,                                                                        \
    (RnnDataDescriptor data, int type, int layout, int steps, int batch, int size, const int* lengths, void* fill)) \
  F(rnn_weight_bytes, cudnnGetRNNWeightSpaceSize, (Handle handle, RnnDescriptor rnn, size_t * bytes))               \
  F(rnn_weights, cudnnGetRNNWeightParams,                                                                           \
    (Handle handle, RnnDescriptor rnn, int32_t layer, size_t bytes, const void* space, int32_t gate,                \
     TensorDescriptor matrix, void** matrix_at, TensorDescriptor bias, void** bias_at))                             \
  F(rnn_temporary_bytes, cudnnGetRNNTempSpaceSizes,                                                                 \
    (Handle handle, RnnDescriptor rnn, int mode, RnnDataDescriptor x, size_t* workspace, size_t* reserve))          \
  F(rnn_forward, cudnnRNNForward,                                                                                   \
    (Handle handle, RnnDescriptor rnn, int mode, const int32_t* device_lengths, RnnDataDescriptor x_layout,         \
     const void* x, RnnDataDescriptor y_layout, void* y, TensorDescriptor h_layout, const void* hx, void* hy,       \
     TensorDescriptor c_layout, const void* cx, void* cy, size_t weight_bytes, const void* weights,                 \
     size_t workspace_bytes, void* workspace, size_t reserve_bytes, void* reserve))

struct Api {
#define LLMPROF_CUDNN_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
  LLMPROF_CUDNN_FUNCTIONS(LLMPROF_CUDNN_MEMBER)
#undef LLMPROF_CUDNN_MEMBER
  size_t (*version)() = nullptr;                              // 91400 for 9.14.0
  size_t (*cudart_version)() = nullptr;                       // 13000: of the toolkit it was built with
  void (*last_error)(char* message, size_t bytes) = nullptr;  // since 9.0
  const char* (*status_name)(int status) = nullptr;           // cudnnGetErrorString
};

}  // namespace llmprof::cudnn
