#include "trace/copy_names.h"

namespace llmprof {

CopyPath copy_path_of_name(std::string_view name) {
  constexpr std::string_view kPrefix = "Memcpy ";
  if (!name.starts_with(kPrefix)) return CopyPath::kUnknown;
  const std::string_view kind = name.substr(kPrefix.size(), 4);
  if (kind == "HtoD" || kind == "HtoA") return CopyPath::kHostToDevice;
  if (kind == "DtoH" || kind == "AtoH") return CopyPath::kDeviceToHost;
  if (kind == "PtoP") return CopyPath::kPeer;
  if (kind == "DtoD" || kind == "AtoD" || kind == "DtoA" || kind == "AtoA") return CopyPath::kOnDevice;
  return CopyPath::kUnknown;
}

HostMemory host_memory_of_name(std::string_view name) {
  if (name.find("Pageable") != std::string_view::npos) return HostMemory::kPageable;
  return name.find("Pinned") != std::string_view::npos ? HostMemory::kPinned : HostMemory::kUnknown;
}

}  // namespace llmprof
