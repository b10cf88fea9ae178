#include "capture/blas_log/names.h"

#include "nvidia/cublas_abi.h"

namespace llmprof::blas_log {
namespace {

struct Named {
  std::string_view name;
  int32_t value;
};

template <size_t kCount>
int32_t find(const Named (&table)[kCount], std::string_view name) {
  for (const Named& entry : table)
    if (entry.name == name) return entry.value;
  return -1;
}

template <size_t kCount>
std::string_view name_in(const Named (&table)[kCount], int32_t value) {
  for (const Named& entry : table)
    if (entry.value == value) return entry.name;
  return {};
}

constexpr Named kDataTypes[] = {
    {"R_16F", 2},      {"R_16BF", 14},     {"R_32F", 0},      {"R_64F", 1},   {"R_8F_E4M3", 28}, {"R_8F_E5M2", 29},
    {"R_4F_E2M1", 33}, {"R_6F_E2M3", 31},  {"R_6F_E3M2", 32}, {"R_8I", 3},    {"R_32I", 10},     {"R_8U", 8},
    {"C_32F", 4},      {"C_64F", 5},       {"C_16F", 6},      {"C_16BF", 15}, {"R_4I", 16},      {"R_4U", 18},
    {"R_16I", 20},     {"R_8F_UE8M0", 30}, {"C_8I", 7},
};

constexpr Named kComputeTypes[] = {
    {"COMPUTE_16F", 64},
    {"COMPUTE_16F_PEDANTIC", 65},
    {"COMPUTE_32F", 68},
    {"COMPUTE_32F_PEDANTIC", 69},
    {"COMPUTE_32F_FAST_16F", 74},
    {"COMPUTE_32F_FAST_16BF", 75},
    {"COMPUTE_32F_FAST_TF32", 77},
    {"COMPUTE_32F_EMULATED_16BFX9", 78},
    {"COMPUTE_64F", 70},
    {"COMPUTE_64F_PEDANTIC", 71},
    {"COMPUTE_64F_EMULATED_FIXEDPOINT", 79},
    {"COMPUTE_32I", 72},
    {"COMPUTE_32I_PEDANTIC", 73},
};

constexpr Named kOperations[] = {{"OP_N", cublas::kOpN}, {"OP_T", cublas::kOpT}, {"OP_C", cublas::kOpC}};

constexpr Named kEpilogues[] = {
#define LLMPROF_EPILOGUE(value, name) {"EPILOGUE_" #name, value},
    LLMPROF_CUBLASLT_EPILOGUES(LLMPROF_EPILOGUE)
#undef LLMPROF_EPILOGUE
};

constexpr Named kScaleModes[] = {
    {"SCALAR_32F", cublas::kScaleScalar},      {"VEC16_UE4M3", cublas::kScaleVec16Ue4m3},
    {"VEC32_UE8M0", cublas::kScaleVec32Ue8m0}, {"OUTER_VEC_32F", cublas::kScaleOuterVec},
    {"VEC128_32F", cublas::kScaleVec128},      {"BLK128x128_32F", cublas::kScaleBlock128x128},
};

constexpr const char* kMatmuls[] = {
    "cublasLtMatmul",    "cublasLtTSTMatmul", "cublasLtHSHMatmul", "cublasLtSSSMatmul", "cublasLtTSSMatmul",
    "cublasLtHSSMatmul", "cublasLtHHHMatmul", "cublasLtBSSMatmul", "cublasLtBIIMatmul", "cublasLtACCMatmul",
    "cublasLtCCCMatmul", "cublasLtDDDMatmul", "cublasLtZZZMatmul",
};

#define LLMPROF_GEMMS(letter, type, compute)                                \
  {"cublas" #letter "gemm", Form::kGemm, type, type, compute},              \
      {"cublas" #letter "gemmBatched", Form::kGemm, type, type, compute}, { \
    "cublas" #letter "gemmStridedBatched", Form::kGemm, type, type, compute \
  }
#define LLMPROF_GEMV_BATCHES(letters, type, out, compute)                   \
  {"cublas" #letters "gemvBatched", Form::kGemv, type, out, compute}, {     \
    "cublas" #letters "gemvStridedBatched", Form::kGemv, type, out, compute \
  }
#define LLMPROF_GEMVS(letter, type, compute) \
  {"cublas" #letter "gemv", Form::kGemv, type, type, compute}, LLMPROF_GEMV_BATCHES(letter, type, type, compute)

// Those that are hooked where the library can be preloaded.
constexpr KnownFunction kFunctions[] = {
    {"cublasGemmEx", Form::kGemm, -1, -1, -1},
    {"cublasGemmStridedBatchedEx", Form::kGemm, -1, -1, -1},
    {"cublasGemmBatchedEx", Form::kGemm, -1, -1, -1},
    {"cublasGemmGroupedBatchedEx", Form::kGrouped, -1, -1, -1},
    LLMPROF_GEMMS(S, cublas::kR32F, cublas::kCompute32F),
    LLMPROF_GEMMS(D, cublas::kR64F, cublas::kCompute64F),
    LLMPROF_GEMMS(C, cublas::kC32F, cublas::kCompute32F),
    LLMPROF_GEMMS(Z, cublas::kC64F, cublas::kCompute64F),
    LLMPROF_GEMMS(H, cublas::kR16F, cublas::kCompute16F),
    {"cublasSgemmEx", Form::kGemm, -1, -1, cublas::kCompute32F},
    {"cublasCgemmEx", Form::kGemm, -1, -1, cublas::kCompute32F},
    {"cublasSgemmGroupedBatched", Form::kGrouped, cublas::kR32F, cublas::kR32F, cublas::kCompute32F},
    {"cublasDgemmGroupedBatched", Form::kGrouped, cublas::kR64F, cublas::kR64F, cublas::kCompute64F},
    LLMPROF_GEMVS(S, cublas::kR32F, cublas::kCompute32F),
    LLMPROF_GEMVS(D, cublas::kR64F, cublas::kCompute64F),
    LLMPROF_GEMVS(C, cublas::kC32F, cublas::kCompute32F),
    LLMPROF_GEMVS(Z, cublas::kC64F, cublas::kCompute64F),
    LLMPROF_GEMV_BATCHES(HSH, cublas::kR16F, cublas::kR16F, cublas::kCompute32F),
    LLMPROF_GEMV_BATCHES(HSS, cublas::kR16F, cublas::kR32F, cublas::kCompute32F),
    LLMPROF_GEMV_BATCHES(TST, cublas::kR16BF, cublas::kR16BF, cublas::kCompute32F),
    LLMPROF_GEMV_BATCHES(TSS, cublas::kR16BF, cublas::kR32F, cublas::kCompute32F),
};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

const KnownFunction* known_function(std::string_view name) {
  if (name.find("gem") == std::string_view::npos && name.find("Gem") == std::string_view::npos) return nullptr;
  if (ends_with(name, "_64")) name.remove_suffix(3);
  if (ends_with(name, "_v2")) name.remove_suffix(3);
  for (const KnownFunction& function : kFunctions)
    if (name == function.name) return &function;
  return nullptr;
}

const char* known_matmul(std::string_view name) {
  for (const char* known : kMatmuls)
    if (name == known) return known;
  // A private one of a later version counts as the public one.
  const bool product = name.substr(0, 8) == "cublasLt" && ends_with(name, "Matmul");
  return product && name.size() <= 24 ? kMatmuls[0] : nullptr;
}

int32_t data_type(std::string_view name) { return find(kDataTypes, name); }
int32_t compute_type(std::string_view name) { return find(kComputeTypes, name); }
int32_t operation(std::string_view name) { return find(kOperations, name); }
int32_t epilogue(std::string_view name) { return find(kEpilogues, name); }
int32_t scale_mode(std::string_view name) { return find(kScaleModes, name); }

std::string_view name_of_compute_type(int32_t value) { return name_in(kComputeTypes, value); }
std::string_view name_of_epilogue(int32_t value) {
  const std::string_view name = name_in(kEpilogues, value);
  return name.substr(name.find('_') == std::string_view::npos ? 0 : name.find('_') + 1);
}

}  // namespace llmprof::blas_log
