// Our declarations of cuDNN's calling side against the official headers, where they are installed.
#include <gtest/gtest.h>

#include <type_traits>

#include "device/abi/cudnn_graph_abi.h"

#if __has_include(<cudnn.h>) && __has_include(<cuda_runtime_api.h>)
#include <cudnn.h>
#define LLMPROF_HAS_CUDNN 1
#endif

namespace llmprof {
namespace {

#ifdef LLMPROF_HAS_CUDNN
#define LLMPROF_SAME_IN_CUDNN(ours, theirs) \
  static_assert(static_cast<int64_t>(ours) == static_cast<int64_t>(theirs), #ours " differs from " #theirs)

LLMPROF_SAME_IN_CUDNN(cudnn_abi::kNotInitialized, CUDNN_STATUS_NOT_INITIALIZED);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kBadParameter, CUDNN_STATUS_BAD_PARAM);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kNotSupported, CUDNN_STATUS_NOT_SUPPORTED);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kInternalError, CUDNN_STATUS_INTERNAL_ERROR);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kExecutionFailed, CUDNN_STATUS_EXECUTION_FAILED);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kBoolean, CUDNN_DATA_BOOLEAN);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kMatmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kReduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kTypeHandle, CUDNN_TYPE_HANDLE);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kTypeFloat, CUDNN_TYPE_FLOAT);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kTypeHeuristicsMode, CUDNN_TYPE_HEUR_MODE);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kTypeReductionOperator, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kPointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kConvolutionType, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kHeuristicsMode, CUDNN_ATTR_ENGINEHEUR_MODE);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kPlanWorkspaceBytes, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kOpConvolutionForwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kOpConvolutionForwardBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kMatmulType, CUDNN_ATTR_MATMUL_COMP_TYPE);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kReductionOperator, CUDNN_ATTR_REDUCTION_OPERATOR);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kReductionType, CUDNN_ATTR_REDUCTION_COMP_TYPE);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kOpReductionX, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kOpReductionY, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kOpReductionDescriptor, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
#if CUDNN_VERSION >= 90500
LLMPROF_SAME_IN_CUDNN(cudnn::kOpPagedCacheLoad, CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kOpPagedCacheLoadContainer, CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kOpPagedCacheLoadY, CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kOpPagedCacheLoadLengths, CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kOpPagedCacheLoadTable, CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC);
#endif
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kHeuristicsA, CUDNN_HEUR_MODE_A);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kHeuristicsFallback, CUDNN_HEUR_MODE_FALLBACK);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kDivide, CUDNN_POINTWISE_DIV);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kSubtract, CUDNN_POINTWISE_SUB);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kLog, CUDNN_POINTWISE_LOG);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kCompareLess, CUDNN_POINTWISE_CMP_LT);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kAnd, CUDNN_POINTWISE_LOGICAL_AND);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kReduceAdd, CUDNN_REDUCE_TENSOR_ADD);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kReduceMax, CUDNN_REDUCE_TENSOR_MAX);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kCrossCorrelation, CUDNN_CROSS_CORRELATION);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kMathDefault, CUDNN_DEFAULT_MATH);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kMathTensorCores, CUDNN_TENSOR_OP_MATH);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kRnnStandard, CUDNN_RNN_ALGO_STANDARD);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kRnnPersistStatic, CUDNN_RNN_ALGO_PERSIST_STATIC);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kRnnPersistStaticSmall, CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kRnnLstm, CUDNN_LSTM);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kRnnDoubleBias, CUDNN_RNN_DOUBLE_BIAS);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kRnnUnidirectional, CUDNN_UNIDIRECTIONAL);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kRnnLinearInput, CUDNN_LINEAR_INPUT);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kRnnInference, CUDNN_FWD_MODE_INFERENCE);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kRnnSequenceMajor, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED);
LLMPROF_SAME_IN_CUDNN(cudnn_abi::kRnnPaddedIo, CUDNN_RNN_PADDED_IO_ENABLED);

// As many parameters, each as large as ours: a pointer for a pointer, four bytes for an enumeration.
template <class Ours, class Theirs>
struct SameShape;
template <class OurResult, class... Ours, class TheirResult, class... Theirs>
struct SameShape<OurResult (*)(Ours...), TheirResult (*)(Theirs...)> {
  static constexpr bool value() {
    if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
      return false;
    } else {
      return sizeof(OurResult) == sizeof(TheirResult) && ((sizeof(Ours) == sizeof(Theirs)) && ...) &&
             ((std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>)&&...);
    }
  }
};
#define LLMPROF_SAME_CALL(member, name, parameters) \
  static_assert(SameShape<decltype(cudnn_abi::Api::member), decltype(&::name)>::value(), #name " differs");
LLMPROF_CUDNN_FUNCTIONS(LLMPROF_SAME_CALL)

TEST(DeviceCudaCudnnAbi, IsThatOfTheHeaders) { EXPECT_GE(CUDNN_VERSION, 90000); }
#else
TEST(DeviceCudaCudnnAbi, IsThatOfTheHeaders) { GTEST_SKIP() << "no headers of cuDNN here"; }
#endif

}  // namespace
}  // namespace llmprof
