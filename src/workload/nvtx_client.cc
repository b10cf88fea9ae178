#include "workload/nvtx_client.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "base/shared_library.h"
#include "nvidia/nvtx_abi.h"

namespace llmprof::workload {
namespace {

// The functions that a tool fills in, by nvtx::CoreCallback: one set for the process, as in any program.
constexpr unsigned kSlots = 16;
nvtx::Function functions[kSlots] = {};
nvtx::Function* places[kSlots] = {};

int module_table(nvtx::Module module, nvtx::FunctionTable* table, unsigned int* size) {
  if (module != nvtx::kModuleCore) return 0;
  *table = places;
  *size = kSlots;
  return 1;
}
void set_version(uint32_t) {}

const void* export_table(uint32_t id) {
  static const nvtx::ExportCallbacks callbacks{sizeof(nvtx::ExportCallbacks), &module_table};
  static const nvtx::ExportVersionInfo version{sizeof(nvtx::ExportVersionInfo), 3, 0, &set_version};
  if (id == nvtx::kExportCallbacks) return &callbacks;
  return id == nvtx::kExportVersionInfo ? static_cast<const void*>(&version) : nullptr;
}

}  // namespace

NvtxStages::NvtxStages() {
  const char* const path = std::getenv("NVTX_INJECTION64_PATH");
  if (path == nullptr || *path == '\0') return;
  SharedLibrary library(path);
  int (*initialize)(nvtx::GetExportTable) = nullptr;
  if (!library.load(initialize, "InitializeInjectionNvtx2", "InitializeInjectionNvtx")) return;
  for (unsigned i = 1; i < kSlots; ++i) places[i] = &functions[i];
  if (initialize(&export_table) == 0) return;
  library.keep_open();
  push_ = reinterpret_cast<int (*)(const char*)>(functions[nvtx::kRangePushA]);
  pop_ = reinterpret_cast<int (*)()>(functions[nvtx::kRangePop]);
  if (pop_ == nullptr) push_ = nullptr;
}

void NvtxStages::begin(std::string_view stage, const StageWork& work) {
  if (push_ == nullptr) return;
  std::string text(stage);
  const int64_t seen = work.sequences * work.context;
  if (work.tokens > work.sequences)
    text += fmt::format("[bs={} tok={} c_sk={}]", work.sequences, work.tokens, seen);
  else if (work.sequences > 0)
    text += fmt::format("[bs={} g_sk={}]", work.sequences, seen);
  push_(text.c_str());
}

void NvtxStages::end() {
  if (push_ != nullptr) pop_();
}

}  // namespace llmprof::workload
