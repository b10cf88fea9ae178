// Who is told where a stage of a run begins and ends: the recording, and NVTX.
#pragma once

#include <string_view>

namespace llmprof::workload {

class StageListener {
 public:
  virtual ~StageListener() = default;
  virtual void begin(std::string_view stage) = 0;
  virtual void end() = 0;
};

}  // namespace llmprof::workload
