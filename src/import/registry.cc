#include <array>

#include "import/capture.h"
#include "import/dmon.h"
#include "import/importer.h"
#include "import/kineto.h"
#include "import/trace_importer.h"

namespace llmprof {

std::span<const Importer> importers() {
  static constexpr std::array kImporters = {
      Importer{"kineto", "torch.profiler Chrome trace (.json, .json.gz, .json.zst)", kineto::sniff, kineto::import},
      Importer{"llmprof", "llmprof's own trace file, written by `llmprof analyze --save`", trace_importer::sniff,
               trace_importer::import},
      Importer{"capture", "recording of `llmprof run`: its session folder, or one .spool file of it", capture::sniff,
               capture::import},
      Importer{"dmon", "output of `nvidia-smi dmon`, best with -o DT", dmon::sniff, dmon::import},
  };
  return kImporters;
}

}  // namespace llmprof
