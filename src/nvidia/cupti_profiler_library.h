// CUPTI's profiler half, opened at run time. The host functions (metric sets, passes, evaluation)
// need neither a driver nor a GPU; the PM sampling functions need both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/shared_library.h"
#include "nvidia/cupti_profiler_abi.h"

namespace llmprof::nvidia {

using CuptiProfilerApi = cupti_profiler::Api;

class CuptiProfilerLibrary {
 public:
  // Opens one copy of CUPTI; an error if it cannot be loaded. It stays mapped: CUPTI leaves threads behind.
  static Result<CuptiProfilerLibrary> open(const std::string& path);

  const CuptiProfilerApi& api() const { return api_; }
  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }  // CUPTI's own number; 0 if unknown
  bool has_host() const;                         // metric sets can be computed
  bool has_pm_sampling() const;                  // CUDA 12.6 and later
  // "CUPTI_ERROR_HARDWARE_BUSY (26)".
  std::string describe(cupti_profiler::Code result) const;

 private:
  CuptiProfilerApi api_;
  std::string path_;
  uint32_t version_ = 0;
};

// The CUDA toolkit that CUPTI's number belongs to: 24 -> "12.6", 130001 -> "13.0.1"; "unknown" for 0.
std::string cupti_version_text(uint32_t version);

}  // namespace llmprof::nvidia
