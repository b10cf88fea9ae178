#include <array>

#include "import/importer.h"
#include "import/kineto.h"

namespace llmprof {

std::span<const Importer> importers() {
  static constexpr std::array kImporters = {
      Importer{"kineto", "torch.profiler Chrome trace (.json, .json.gz, .json.zst)", kineto::sniff, kineto::import},
  };
  return kImporters;
}

}  // namespace llmprof
