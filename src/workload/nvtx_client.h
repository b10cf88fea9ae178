// Stages as NVTX ranges, so that `llmprof run -- llmprof workload` (or any other tool) sees them. Does what NVIDIA's
// header does in a program: the library that NVTX_INJECTION64_PATH names fills in the functions; without one, nothing
// happens. Nothing of NVIDIA is needed to build it.
//
// Ranges of the decoder say what they are over, as servers' do: "prefill[bs=1 tok=640 c_sk=640]", "decode[bs=1
// g_sk=641]".
#pragma once

#include "workload/stages.h"

namespace llmprof::workload {

class NvtxStages : public StageListener {
 public:
  NvtxStages();
  bool attached() const { return push_ != nullptr; }
  void begin(std::string_view stage, const StageWork& work) override;
  void end() override;

 private:
  int (*push_)(const char*) = nullptr;
  int (*pop_)() = nullptr;
};

}  // namespace llmprof::workload
