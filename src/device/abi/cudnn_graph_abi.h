// The functions of cuDNN (9) that build operation graphs and recurrent networks and run them, and the attributes that
// only a caller sets; descriptors and attributes that the recorder knows too are in capture/abi/cudnn_abi.h.
// tests/unit/device_cuda_cudnn_abi_test.cc holds it against the official headers where they are installed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "capture/abi/cudnn_abi.h"

namespace llmprof::cudnn_abi {

using Handle = struct HandleStruct*;
using Descriptor = void*;  // of the backend API
using Stream = struct StreamStruct*;
using TensorDescriptor = struct TensorStruct*;  // of the API before it
using RnnDescriptor = struct RnnStruct*;
using RnnDataDescriptor = struct RnnDataStruct*;
using DropoutDescriptor = struct DropoutStruct*;

// cudnnStatus_t: thousands are the category
enum Status : int {
  kSuccess = 0,
  kNotInitialized = 1001,
  kBadParameter = 2000,
  kNotSupported = 3000,
  kInternalError = 4000,
  kExecutionFailed = 5000,
};

constexpr int kBoolean = 11;  // cudnnDataType_t

// cudnnBackendDescriptorType_t
constexpr int kMatmul = 18;
constexpr int kReduction = 21;
// cudnnBackendAttributeType_t
constexpr int kTypeHandle = 0;
constexpr int kTypeFloat = 4;
constexpr int kTypeHeuristicsMode = 8;
constexpr int kTypeReductionOperator = 18;
// cudnnBackendAttributeName_t
constexpr int kPointwisePrecision = 1;
constexpr int kConvolutionType = 100;
constexpr int kConvolutionMode = 101;
constexpr int kHeuristicsMode = 200;
constexpr int kPlanHandle = 400;
constexpr int kPlanWorkspaceBytes = 402;
constexpr int kOpConvolutionForwardAlpha = 700;
constexpr int kOpConvolutionForwardBeta = 701;
constexpr int kGraphHandle = 800;
constexpr int kTensorAlignment = 900;
constexpr int kTensorStrides = 903;
constexpr int kPackPointers = 1001;
constexpr int kPackWorkspace = 1003;
constexpr int kMatmulType = 1500;
constexpr int kReductionOperator = 1600;
constexpr int kReductionType = 1601;
constexpr int kOpReductionX = 1610;
constexpr int kOpReductionY = 1611;
constexpr int kOpReductionDescriptor = 1612;
// Since 9.5: the keys or values of a sequence out of a cache of pages, each where the sequence's table says.
constexpr int kOpPagedCacheLoadContainer = 1950;
constexpr int kOpPagedCacheLoadY = 1951;
constexpr int kOpPagedCacheLoadLengths = 1952;
constexpr int kOpPagedCacheLoadTable = 1953;
// cudnnBackendHeurMode_t
constexpr int kHeuristicsA = 3;
constexpr int kHeuristicsFallback = 2;
// cudnnPointwiseMode_t, beside cudnn::Pointwise
constexpr int kDivide = 6;
constexpr int kSubtract = 9;
constexpr int kLog = 15;
constexpr int kCompareLess = 304;
constexpr int kAnd = 400;
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

}  // namespace llmprof::cudnn_abi
