#include "import/session_names.h"

#include <cxxabi.h>

#include <cstdlib>
#include <iterator>
#include <memory>

namespace llmprof::session_importer {

DType dtype_of_cuda(int32_t cuda_data_type) {
  switch (cuda_data_type) {  // cudaDataType_t
    case 0:
      return DType::kFp32;
    case 1:
      return DType::kFp64;
    case 2:
      return DType::kFp16;
    case 3:  // signed
    case 8:  // unsigned
      return DType::kInt8;
    case 10:
    case 12:
      return DType::kInt32;
    case 14:
      return DType::kBf16;
    case 16:
    case 18:
      return DType::kInt4;
    case 20:
    case 22:
      return DType::kInt16;
    case 24:
    case 26:
      return DType::kInt64;
    case 28:  // E4M3
    case 29:  // E5M2
      return DType::kFp8;
    case 33:  // E2M1
      return DType::kFp4;
    default:
      return DType::kUnknown;
  }
}

DType operand_dtype(int32_t cuda_data_type, int32_t compute_type) {
  constexpr int32_t kComputeFastTf32 = 77;  // cublasComputeType_t
  const DType dtype = dtype_of_cuda(cuda_data_type);
  return dtype == DType::kFp32 && compute_type == kComputeFastTf32 ? DType::kTf32 : dtype;
}

std::string memcpy_name(const spool::Memcpy& copy) {
  static constexpr std::string_view kKinds[] = {"Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                                "AtoD",    "DtoA", "DtoD", "HtoH", "PtoP"};
  static constexpr std::string_view kMemories[] = {"Unknown", "Pageable", "Pinned",        "Device",
                                                   "Array",   "Managed",  "Device Static", "Managed Static"};
  const auto memory = [&](uint8_t kind) { return kMemories[kind < std::size(kMemories) ? kind : 0]; };
  std::string name = "Memcpy ";
  name += kKinds[copy.copy_kind < std::size(kKinds) ? copy.copy_kind : 0];
  name += " (";
  name += memory(copy.source_kind);
  name += " -> ";
  name += memory(copy.dest_kind);
  name += ')';
  return name;
}

std::string_view sync_name(uint8_t kind) {
  static constexpr std::string_view kNames[] = {"Unknown", "Event Sync", "Stream Wait Event", "Stream Sync",
                                                "Context Sync"};
  return kNames[kind < std::size(kNames) ? kind : 0];
}

std::string demangled(std::string_view name) {
  if (!name.starts_with("_Z")) return std::string(name);
  const std::string text(name);
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(abi::__cxa_demangle(text.c_str(), nullptr, nullptr, &status),
                                                     std::free);
  return status == 0 && plain != nullptr ? std::string(plain.get()) : text;
}

}  // namespace llmprof::session_importer
