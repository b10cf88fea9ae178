#include "nvidia/cupti_profiler_library.h"

namespace llmprof::nvidia {

using namespace cupti_profiler;

Result<CuptiProfilerLibrary> CuptiProfilerLibrary::open(const std::string& path) {
  SharedLibrary library(path);
  if (!library) return fail("CUPTI cannot be loaded: " + library.error(), path);
  CuptiProfilerLibrary cupti;
#define LLMPROF_LOAD(member, name, type) library.load(cupti.api_.member, #name);
  LLMPROF_CUPTI_PROFILER_FUNCTIONS(LLMPROF_LOAD)
  LLMPROF_CUPTI_HOST_FUNCTIONS(LLMPROF_LOAD)
  LLMPROF_CUPTI_PM_FUNCTIONS(LLMPROF_LOAD)
#undef LLMPROF_LOAD
  if (cupti.api_.get_version == nullptr) return fail("expected CUPTI, found a library without cuptiGetVersion", path);
  if (cupti.api_.get_version(&cupti.version_) != kSuccess) cupti.version_ = 0;
  const std::string file = SharedLibrary::file_of(cupti.api_.get_version);
  cupti.path_ = file.empty() ? path : file;
  library.keep_open();
  return cupti;
}

#define LLMPROF_HAS(member, name, type) &&api_.member != nullptr
bool CuptiProfilerLibrary::has_host() const { return true LLMPROF_CUPTI_HOST_FUNCTIONS(LLMPROF_HAS); }
bool CuptiProfilerLibrary::has_pm_sampling() const { return has_host() LLMPROF_CUPTI_PM_FUNCTIONS(LLMPROF_HAS); }
#undef LLMPROF_HAS

std::string CuptiProfilerLibrary::describe(cupti_profiler::Code result) const {
  const char* text = nullptr;
  if (api_.result_string == nullptr || api_.result_string(result, &text) != kSuccess || text == nullptr)
    return "CUPTI error " + std::to_string(static_cast<int>(result));
  return std::string(text) + " (" + std::to_string(static_cast<int>(result)) + ")";
}

std::string cupti_version_text(uint32_t version) {
  if (version == 0) return "unknown";
  if (version >= 130000) {
    const std::string patch = version % 100 != 0 ? "." + std::to_string(version % 100) : std::string();
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + patch;
  }
  struct Known {
    uint32_t version;
    const char* toolkit;
  };
  static constexpr Known kKnown[] = {{28, "12.9.1"}, {27, "12.9"}, {26, "12.8"}, {24, "12.6"}, {23, "12.5"},
                                     {22, "12.4"},   {21, "12.3"}, {20, "12.2"}, {19, "12.0"}, {18, "11.8"}};
  for (const Known& known : kKnown)
    if (known.version == version) return known.toolkit;
  return "interface " + std::to_string(version);
}

}  // namespace llmprof::nvidia
