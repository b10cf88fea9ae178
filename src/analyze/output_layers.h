// Which products are a language model's output layer.
#pragma once

#include "trace/trace.h"

namespace llmprof {

// The output layer is as wide as a vocabulary (Llama-2 has 32,000) and many times wider than what goes in. So are gate
// and up projections that are one product (Llama-3-70B 57,344 of 8,192, Qwen2.5-7B 37,888 of 3,584), but the vocabulary
// is wider still, and they run once a layer: what may be one is, where it is the widest product of the recording's
// steps and runs fewer than eight times in a step (several heads that guess ahead are as wide).
class OutputLayers {
 public:
  explicit OutputLayers(const Trace& trace);
  bool has(WorkId work) const;

 private:
  const Works& works_;
  int64_t width_ = -1;  // -1: no product is one
};

}  // namespace llmprof
