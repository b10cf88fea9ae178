// Our declarations of cuDNN's calling side against the official headers, where they are installed.
#include <gtest/gtest.h>

#include <type_traits>

#include "nvidia/cudnn_abi.h"

#if __has_include(<cudnn.h>) && __has_include(<cuda_runtime_api.h>)
#include <cudnn.h>
#define LLMPROF_HAS_CUDNN 1
#endif

namespace llmprof {
namespace {

#ifdef LLMPROF_HAS_CUDNN
#define LLMPROF_SAME_IN_CUDNN(ours, theirs) \
  static_assert(static_cast<int64_t>(ours) == static_cast<int64_t>(theirs), #ours " differs from " #theirs)

LLMPROF_SAME_IN_CUDNN(cudnn::kNotInitialized, CUDNN_STATUS_NOT_INITIALIZED);
LLMPROF_SAME_IN_CUDNN(cudnn::kBadParameter, CUDNN_STATUS_BAD_PARAM);
LLMPROF_SAME_IN_CUDNN(cudnn::kNotSupported, CUDNN_STATUS_NOT_SUPPORTED);
LLMPROF_SAME_IN_CUDNN(cudnn::kInternalError, CUDNN_STATUS_INTERNAL_ERROR);
LLMPROF_SAME_IN_CUDNN(cudnn::kExecutionFailed, CUDNN_STATUS_EXECUTION_FAILED);
LLMPROF_SAME_IN_CUDNN(cudnn::kBoolean, CUDNN_DATA_BOOLEAN);
LLMPROF_SAME_IN_CUDNN(cudnn::kMatmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
LLMPROF_SAME_IN_CUDNN(cudnn::kReduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
LLMPROF_SAME_IN_CUDNN(cudnn::kTypeHandle, CUDNN_TYPE_HANDLE);
LLMPROF_SAME_IN_CUDNN(cudnn::kTypeFloat, CUDNN_TYPE_FLOAT);
LLMPROF_SAME_IN_CUDNN(cudnn::kTypeHeuristicsMode, CUDNN_TYPE_HEUR_MODE);
LLMPROF_SAME_IN_CUDNN(cudnn::kTypeReductionOperator, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
LLMPROF_SAME_IN_CUDNN(cudnn::kPointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC);
LLMPROF_SAME_IN_CUDNN(cudnn::kConvolutionType, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
LLMPROF_SAME_IN_CUDNN(cudnn::kConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE);
LLMPROF_SAME_IN_CUDNN(cudnn::kHeuristicsMode, CUDNN_ATTR_ENGINEHEUR_MODE);
LLMPROF_SAME_IN_CUDNN(cudnn::kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
LLMPROF_SAME_IN_CUDNN(cudnn::kPlanWorkspaceBytes, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
LLMPROF_SAME_IN_CUDNN(cudnn::kOpConvolutionForwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA);
LLMPROF_SAME_IN_CUDNN(cudnn::kOpConvolutionForwardBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
LLMPROF_SAME_IN_CUDNN(cudnn::kGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
LLMPROF_SAME_IN_CUDNN(cudnn::kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
LLMPROF_SAME_IN_CUDNN(cudnn::kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES);
LLMPROF_SAME_IN_CUDNN(cudnn::kPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
LLMPROF_SAME_IN_CUDNN(cudnn::kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
LLMPROF_SAME_IN_CUDNN(cudnn::kMatmulType, CUDNN_ATTR_MATMUL_COMP_TYPE);
LLMPROF_SAME_IN_CUDNN(cudnn::kReductionOperator, CUDNN_ATTR_REDUCTION_OPERATOR);
LLMPROF_SAME_IN_CUDNN(cudnn::kReductionType, CUDNN_ATTR_REDUCTION_COMP_TYPE);
LLMPROF_SAME_IN_CUDNN(cudnn::kOpReductionX, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
LLMPROF_SAME_IN_CUDNN(cudnn::kOpReductionY, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
LLMPROF_SAME_IN_CUDNN(cudnn::kOpReductionDescriptor, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
#if CUDNN_VERSION >= 90500
LLMPROF_SAME_IN_CUDNN(cudnn::kOpPagedCacheLoad, CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR);
LLMPROF_SAME_IN_CUDNN(cudnn::kOpPagedCacheLoadContainer, CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC);
LLMPROF_SAME_IN_CUDNN(cudnn::kOpPagedCacheLoadY, CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC);
LLMPROF_SAME_IN_CUDNN(cudnn::kOpPagedCacheLoadLengths, CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC);
LLMPROF_SAME_IN_CUDNN(cudnn::kOpPagedCacheLoadTable, CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC);
#endif
LLMPROF_SAME_IN_CUDNN(cudnn::kHeuristicsA, CUDNN_HEUR_MODE_A);
LLMPROF_SAME_IN_CUDNN(cudnn::kHeuristicsFallback, CUDNN_HEUR_MODE_FALLBACK);
LLMPROF_SAME_IN_CUDNN(cudnn::kDivide, CUDNN_POINTWISE_DIV);
LLMPROF_SAME_IN_CUDNN(cudnn::kSubtract, CUDNN_POINTWISE_SUB);
LLMPROF_SAME_IN_CUDNN(cudnn::kLog, CUDNN_POINTWISE_LOG);
LLMPROF_SAME_IN_CUDNN(cudnn::kCompareLess, CUDNN_POINTWISE_CMP_LT);
LLMPROF_SAME_IN_CUDNN(cudnn::kAnd, CUDNN_POINTWISE_LOGICAL_AND);
LLMPROF_SAME_IN_CUDNN(cudnn::kReduceAdd, CUDNN_REDUCE_TENSOR_ADD);
LLMPROF_SAME_IN_CUDNN(cudnn::kReduceMax, CUDNN_REDUCE_TENSOR_MAX);
LLMPROF_SAME_IN_CUDNN(cudnn::kCrossCorrelation, CUDNN_CROSS_CORRELATION);
LLMPROF_SAME_IN_CUDNN(cudnn::kMathDefault, CUDNN_DEFAULT_MATH);
LLMPROF_SAME_IN_CUDNN(cudnn::kMathTensorCores, CUDNN_TENSOR_OP_MATH);
LLMPROF_SAME_IN_CUDNN(cudnn::kRnnStandard, CUDNN_RNN_ALGO_STANDARD);
LLMPROF_SAME_IN_CUDNN(cudnn::kRnnPersistStatic, CUDNN_RNN_ALGO_PERSIST_STATIC);
LLMPROF_SAME_IN_CUDNN(cudnn::kRnnPersistStaticSmall, CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H);
LLMPROF_SAME_IN_CUDNN(cudnn::kRnnLstm, CUDNN_LSTM);
LLMPROF_SAME_IN_CUDNN(cudnn::kRnnDoubleBias, CUDNN_RNN_DOUBLE_BIAS);
LLMPROF_SAME_IN_CUDNN(cudnn::kRnnUnidirectional, CUDNN_UNIDIRECTIONAL);
LLMPROF_SAME_IN_CUDNN(cudnn::kRnnLinearInput, CUDNN_LINEAR_INPUT);
LLMPROF_SAME_IN_CUDNN(cudnn::kRnnInference, CUDNN_FWD_MODE_INFERENCE);
LLMPROF_SAME_IN_CUDNN(cudnn::kRnnSequenceMajor, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED);
LLMPROF_SAME_IN_CUDNN(cudnn::kRnnPaddedIo, CUDNN_RNN_PADDED_IO_ENABLED);

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
  static_assert(SameShape<decltype(cudnn::Api::member), decltype(&::name)>::value(), #name " differs");
LLMPROF_CUDNN_FUNCTIONS(LLMPROF_SAME_CALL)

TEST(CudnnAbi, IsThatOfTheHeaders) { EXPECT_GE(CUDNN_VERSION, 90000); }
#else
TEST(CudnnAbi, IsThatOfTheHeaders) { GTEST_SKIP() << "no headers of cuDNN here"; }
#endif

}  // namespace
}  // namespace llmprof
