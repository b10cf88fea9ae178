// Who is told where a stage of a run begins and ends: the recording, and NVTX.
#pragma once

#include <cstdint>
#include <string_view>

namespace llmprof::workload {

// What a run of the decoder is over; 0 sequences: it is none.
struct StageWork {
  int64_t sequences = 0;
  int64_t tokens = 0;   // of all sequences together
  int64_t context = 0;  // tokens that the last one of a sequence sees
};

class StageListener {
 public:
  virtual ~StageListener() = default;
  virtual void begin(std::string_view stage, const StageWork& work) = 0;
  virtual void end() = 0;
};

}  // namespace llmprof::workload
