#include <array>

#include "import/cublas.h"
#include "import/dcgm_dmon.h"
#include "import/dmon.h"
#include "import/importer.h"
#include "import/kineto.h"
#include "import/memory_snapshot.h"
#include "import/memory_stats.h"
#include "import/nccl_inspector.h"
#include "import/nccl_log.h"
#include "import/ncu.h"
#include "import/nsys.h"
#include "import/prometheus.h"
#include "import/proton.h"
#include "import/serving.h"
#include "import/session.h"
#include "import/smi_query.h"
#include "import/trace_importer.h"
#include "import/trtexec.h"

namespace llmprof {

std::span<const Importer> importers() {
  static constexpr std::array kImporters = {
      Importer{
          "kineto", "torch.profiler Chrome trace (.json, .json.gz, .json.zst)", kineto::sniff, kineto::import,
          "the file is damaged or cut off: copy it again, or let export_chrome_trace finish before the program ends"},
      Importer{
          "llmprof", "llmprof's own trace file, written by `llmprof analyze --save`", trace_importer::sniff,
          trace_importer::import,
          "the file is damaged or cut off: copy it again, or make it again with llmprof analyze RECORDING --save FILE"},
      Importer{kSessionImporter, "recording of `llmprof run`: its session folder, or one .spool file of it",
               session_importer::sniff, session_importer::import,
               "the session is damaged or cut off: copy the whole folder again, or record again"},
      Importer{kDmonImporter, "output of `nvidia-smi dmon`, best with -o DT", dmon::sniff, dmon::import,
               "the file is damaged or cut off: copy it again"},
      Importer{kSmiQueryImporter, "output of `nvidia-smi --query-gpu=... --format=csv`, with -l or -lms",
               smi_query::sniff, smi_query::import, "the file is damaged or cut off: copy it again"},
      Importer{kDcgmDmonImporter, "output of `dcgmi dmon -e FIELDS` of DCGM", dcgm_dmon::sniff, dcgm_dmon::import,
               "the file is damaged or cut off: copy it again"},
      Importer{kNsysImporter, "Nsight Systems: SQLite of `nsys export`, or a .nsys-rep where nsys is installed",
               nsys::sniff, nsys::import,
               "the file is damaged or cut off: copy it again, or export it again with nsys export"},
      Importer{kNcuImporter, "Nsight Compute: what `ncu --csv` prints, pages raw and details", ncu::sniff, ncu::import,
               "the file is damaged or cut off: copy it again, or print it again with ncu --import FILE.ncu-rep --csv"},
      Importer{kBlasLogImporter, "logs of cuBLAS (CUBLAS_LOGINFO_DBG=1) and of cuBLASLt (CUBLASLT_LOG_LEVEL=2 or more)",
               blas_logs::sniff, blas_logs::import,
               "the file is damaged or cut off: copy it again, or let the program that writes it end"},
      Importer{kServingImporter, "results of server benchmarks: vllm bench serve, SGLang, AIPerf, GenAI-Perf, GuideLLM",
               serving::sniff, serving::import,
               "the file is damaged or cut off: copy it again, or let the benchmark end"},
      Importer{kMetricsPageImporter,
               "metrics pages (Prometheus, OpenMetrics) of vLLM, SGLang, Triton and the DCGM exporter: one or more",
               metrics_pages::sniff, metrics_pages::import,
               "the page is damaged or cut off: ask the server again, curl -s http://HOST:PORT/metrics > page.prom"},
      Importer{kNcclLogImporter, "log of NCCL (NCCL_DEBUG=INFO), alone or in the output of a program", nccl_log::sniff,
               nccl_log::import,
               "the file is damaged or cut off: copy it again, or let the program that writes it end"},
      Importer{kNcclInspectorImporter, "what NCCL's Inspector writes (NCCL_INSPECTOR_ENABLE=1): one file or more",
               nccl_inspector::sniff, nccl_inspector::import,
               "the file is damaged or cut off: copy it again, or let the program that writes it end"},
      Importer{"memory-snapshot", "snapshot of PyTorch's CUDA memory, written by torch.cuda.memory._dump_snapshot()",
               memory_snapshot::sniff, memory_snapshot::import,
               "the file is damaged or cut off: copy it again, or dump it again"},
      Importer{kMemoryStatsImporter, "torch.cuda.memory_stats() as JSON, of one GPU or several", memory_stats::sniff,
               memory_stats::import, "the file is damaged or cut off: write it again with json.dump"},
      Importer{kTrtexecImporter,
               "TensorRT's trtexec as JSON: --exportTimes, --exportProfile, --exportLayerInfo, one or more",
               trtexec::sniff, trtexec::import,
               "the file is damaged or cut off: copy it again, or let trtexec end before it is read"},
      Importer{kProtonImporter, "Triton's profiler Proton: .hatchet (JSON) and .hatchet_msgpack files, one or more",
               proton::sniff, proton::import,
               "the file is damaged or cut off: copy it again, or let proton.finalize() write it"},
  };
  return kImporters;
}

}  // namespace llmprof
