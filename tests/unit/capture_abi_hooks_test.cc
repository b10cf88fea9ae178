// Our declarations of NVTX, cuBLAS and cuDNN against the official headers, where they are installed: this file then
// does not compile if they differ.
#include <gtest/gtest.h>

#include "capture/abi/cublas_abi.h"
#include "capture/abi/cudnn_abi.h"
#include "capture/abi/nvtx_abi.h"

#if __has_include(<nvtx3/nvToolsExtPayload.h>)
#define LLMPROF_HAS_NVTX 1
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#endif
#if __has_include(<cublasLt.h>)
#define LLMPROF_HAS_CUBLAS 1
#include <cublasLt.h>
#include <cublas_v2.h>
#endif
#if __has_include(<cudnn.h>)
#define LLMPROF_HAS_CUDNN 1
#include <cudnn.h>
#endif

namespace llmprof {
namespace {

#define LLMPROF_SAME(ours, theirs) static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs))
#define LLMPROF_SAME_MEMBER(Ours, our_member, Theirs, their_member) \
  LLMPROF_SAME(offsetof(Ours, our_member), offsetof(Theirs, their_member))

#ifdef LLMPROF_HAS_NVTX
LLMPROF_SAME(sizeof(nvtx::EventAttributes), sizeof(nvtxEventAttributes_t));
LLMPROF_SAME_MEMBER(nvtx::EventAttributes, payload_type, nvtxEventAttributes_t, payloadType);
LLMPROF_SAME_MEMBER(nvtx::EventAttributes, payload_count, nvtxEventAttributes_t, reserved0);
LLMPROF_SAME_MEMBER(nvtx::EventAttributes, payload, nvtxEventAttributes_t, payload);
LLMPROF_SAME_MEMBER(nvtx::EventAttributes, message_type, nvtxEventAttributes_t, messageType);
LLMPROF_SAME_MEMBER(nvtx::EventAttributes, message, nvtxEventAttributes_t, message);
LLMPROF_SAME(nvtx::kMessageAscii, NVTX_MESSAGE_TYPE_ASCII);
LLMPROF_SAME(nvtx::kMessageUnicode, NVTX_MESSAGE_TYPE_UNICODE);
LLMPROF_SAME(nvtx::kMessageRegistered, NVTX_MESSAGE_TYPE_REGISTERED);
LLMPROF_SAME(nvtx::kPayloadUint64, NVTX_PAYLOAD_TYPE_UNSIGNED_INT64);
LLMPROF_SAME(nvtx::kPayloadInt64, NVTX_PAYLOAD_TYPE_INT64);
LLMPROF_SAME(nvtx::kPayloadDouble, NVTX_PAYLOAD_TYPE_DOUBLE);
LLMPROF_SAME(nvtx::kPayloadUint32, NVTX_PAYLOAD_TYPE_UNSIGNED_INT32);
LLMPROF_SAME(nvtx::kPayloadInt32, NVTX_PAYLOAD_TYPE_INT32);
LLMPROF_SAME(nvtx::kPayloadFloat, NVTX_PAYLOAD_TYPE_FLOAT);
LLMPROF_SAME(nvtx::kPayloadExtended, NVTX_PAYLOAD_TYPE_EXT);
LLMPROF_SAME(nvtx::kNoPushPopTracking, NVTX_NO_PUSH_POP_TRACKING);
LLMPROF_SAME(sizeof(nvtx::PayloadData), sizeof(nvtxPayloadData_t));
LLMPROF_SAME(sizeof(nvtx::SchemaEntry), sizeof(nvtxPayloadSchemaEntry_t));
LLMPROF_SAME_MEMBER(nvtx::SchemaEntry, offset, nvtxPayloadSchemaEntry_t, offset);
LLMPROF_SAME(sizeof(nvtx::SchemaAttributes), sizeof(nvtxPayloadSchemaAttr_t));
LLMPROF_SAME_MEMBER(nvtx::SchemaAttributes, entries, nvtxPayloadSchemaAttr_t, entries);
LLMPROF_SAME_MEMBER(nvtx::SchemaAttributes, pack_align, nvtxPayloadSchemaAttr_t, packAlign);
LLMPROF_SAME_MEMBER(nvtx::SchemaAttributes, schema, nvtxPayloadSchemaAttr_t, schemaId);
LLMPROF_SAME(sizeof(nvtx::EnumAttributes), sizeof(nvtxPayloadEnumAttr_t));
LLMPROF_SAME_MEMBER(nvtx::EnumAttributes, schema, nvtxPayloadEnumAttr_t, schemaId);
LLMPROF_SAME(nvtx::kSchemaName, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME);
LLMPROF_SAME(nvtx::kSchemaEntries, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES);
LLMPROF_SAME(nvtx::kSchemaEntryCount, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES);
LLMPROF_SAME(nvtx::kSchemaStaticSize, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE);
LLMPROF_SAME(nvtx::kSchemaPackAlign, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ALIGNMENT);
LLMPROF_SAME(nvtx::kSchemaId, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID);
LLMPROF_SAME(nvtx::kEnumSchemaId, NVTX_PAYLOAD_ENUM_ATTR_FIELD_SCHEMA_ID);
LLMPROF_SAME(nvtx::kEntryIndirect&(NVTX_PAYLOAD_ENTRY_FLAG_POINTER | NVTX_PAYLOAD_ENTRY_FLAG_IS_ARRAY),
             NVTX_PAYLOAD_ENTRY_FLAG_POINTER | NVTX_PAYLOAD_ENTRY_FLAG_IS_ARRAY);
LLMPROF_SAME(nvtx::kEntryEventMessage, NVTX_PAYLOAD_ENTRY_FLAG_EVENT_MESSAGE);
LLMPROF_SAME(nvtx::kTypeUlonglong, NVTX_PAYLOAD_ENTRY_TYPE_ULONGLONG);
LLMPROF_SAME(nvtx::kTypeUint64, NVTX_PAYLOAD_ENTRY_TYPE_UINT64);
LLMPROF_SAME(nvtx::kTypeInt8, NVTX_PAYLOAD_ENTRY_TYPE_INT8);
LLMPROF_SAME(nvtx::kTypeDouble, NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE);
LLMPROF_SAME(nvtx::kTypeSize, NVTX_PAYLOAD_ENTRY_TYPE_SIZE);
LLMPROF_SAME(nvtx::kTypeFloat64, NVTX_PAYLOAD_ENTRY_TYPE_FLOAT64);
LLMPROF_SAME(nvtx::kTypeRegisteredString, NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE);
LLMPROF_SAME(nvtx::kSchemaIdStatic, NVTX_PAYLOAD_SCHEMA_ID_STATIC_START);
LLMPROF_SAME(nvtx::kSchemaIdDynamic, NVTX_PAYLOAD_SCHEMA_ID_DYNAMIC_START);
LLMPROF_SAME(nvtx::kPayloadModule, NVTX_EXT_PAYLOAD_MODULEID);
LLMPROF_SAME(nvtx::kPayloadSchemaRegister, NVTX3EXT_CBID_nvtxPayloadSchemaRegister);
LLMPROF_SAME(nvtx::kRangePushPayload, NVTX3EXT_CBID_nvtxRangePushPayload);
LLMPROF_SAME(nvtx::kRangeEndPayload, NVTX3EXT_CBID_nvtxRangeEndPayload);
LLMPROF_SAME(sizeof(nvtx::ExtensionModule), sizeof(nvtxExtModuleInfo_t));
LLMPROF_SAME_MEMBER(nvtx::ExtensionModule, segments, nvtxExtModuleInfo_t, segments);
LLMPROF_SAME(sizeof(nvtx::ExtensionSegment), sizeof(nvtxExtModuleSegment_t));
// The tables, whose declarations the header keeps to itself, are exercised by nvtx_header_client.
#endif

#ifdef LLMPROF_HAS_CUBLAS
using namespace cublas;
LLMPROF_SAME(kNotInitialized, CUBLAS_STATUS_NOT_INITIALIZED);
LLMPROF_SAME(kOpT, CUBLAS_OP_T);
LLMPROF_SAME(kOpC, CUBLAS_OP_C);
LLMPROF_SAME(kR32F, CUDA_R_32F);
LLMPROF_SAME(kR64F, CUDA_R_64F);
LLMPROF_SAME(kR16F, CUDA_R_16F);
LLMPROF_SAME(kR8I, CUDA_R_8I);
LLMPROF_SAME(kC32F, CUDA_C_32F);
LLMPROF_SAME(kC64F, CUDA_C_64F);
LLMPROF_SAME(kC16F, CUDA_C_16F);
LLMPROF_SAME(kR32I, CUDA_R_32I);
LLMPROF_SAME(kR16BF, CUDA_R_16BF);
LLMPROF_SAME(kR8FE4M3, CUDA_R_8F_E4M3);
LLMPROF_SAME(kR8FE5M2, CUDA_R_8F_E5M2);
LLMPROF_SAME(kCompute16F, CUBLAS_COMPUTE_16F);
LLMPROF_SAME(kCompute32F, CUBLAS_COMPUTE_32F);
LLMPROF_SAME(kCompute64F, CUBLAS_COMPUTE_64F);
LLMPROF_SAME(kCompute32FFastTf32, CUBLAS_COMPUTE_32F_FAST_TF32);
LLMPROF_SAME(kMathTf32, CUBLAS_TF32_TENSOR_OP_MATH);
LLMPROF_SAME(kLayoutType, CUBLASLT_MATRIX_LAYOUT_TYPE);
LLMPROF_SAME(kLayoutOrder, CUBLASLT_MATRIX_LAYOUT_ORDER);
LLMPROF_SAME(kLayoutRows, CUBLASLT_MATRIX_LAYOUT_ROWS);
LLMPROF_SAME(kLayoutCols, CUBLASLT_MATRIX_LAYOUT_COLS);
LLMPROF_SAME(kLayoutBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
LLMPROF_SAME(kOrderRow, CUBLASLT_ORDER_ROW);
LLMPROF_SAME(kMatmulComputeType, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
LLMPROF_SAME(kMatmulTransA, CUBLASLT_MATMUL_DESC_TRANSA);
LLMPROF_SAME(kMatmulTransB, CUBLASLT_MATMUL_DESC_TRANSB);
LLMPROF_SAME(kMatmulEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
#define LLMPROF_EPILOGUE(value, name) LLMPROF_SAME(value, CUBLASLT_EPILOGUE_##name);
LLMPROF_CUBLASLT_EPILOGUES(LLMPROF_EPILOGUE)
#undef LLMPROF_EPILOGUE
#if CUBLAS_VERSION >= 130000
LLMPROF_SAME(kR4FE2M1, CUDA_R_4F_E2M1);
LLMPROF_SAME(kMatmulAScaleMode, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
LLMPROF_SAME(kMatmulBScaleMode, CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
LLMPROF_SAME(kScaleVec16Ue4m3, CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3);
LLMPROF_SAME(kScaleVec32Ue8m0, CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0);
LLMPROF_SAME(kScaleOuterVec, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
LLMPROF_SAME(kScaleVec128, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
LLMPROF_SAME(kScaleBlock128x128, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
#endif
#endif

#ifdef LLMPROF_HAS_CUDNN
LLMPROF_SAME(cudnn::kNotInitialized, 1);
LLMPROF_SAME(cudnn::kFloat, CUDNN_DATA_FLOAT);
LLMPROF_SAME(cudnn::kDouble, CUDNN_DATA_DOUBLE);
LLMPROF_SAME(cudnn::kHalf, CUDNN_DATA_HALF);
LLMPROF_SAME(cudnn::kInt8, CUDNN_DATA_INT8);
LLMPROF_SAME(cudnn::kInt32, CUDNN_DATA_INT32);
LLMPROF_SAME(cudnn::kBfloat16, CUDNN_DATA_BFLOAT16);
LLMPROF_SAME(cudnn::kDimensionsMax, CUDNN_DIM_MAX);
#endif

TEST(AbiOfHooks, AgainstTheOfficialHeaders) {
#if !defined(LLMPROF_HAS_NVTX) && !defined(LLMPROF_HAS_CUBLAS)
  GTEST_SKIP() << "the CUDA headers are not installed";
#endif
  // The comparison is made by the compiler. What it cannot see: union members share an address.
  nvtx::PayloadValue value;
  value.f64 = 2.5;
  EXPECT_EQ(value.u64, 0x4004000000000000u);
}

}  // namespace
}  // namespace llmprof
