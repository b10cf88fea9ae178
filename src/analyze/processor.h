// What our own words call the processor that the model ran on. Names of the recording are never changed.
#pragma once

#include "analyze/analysis.h"

namespace llmprof {

inline bool on_cpu(const Context& context) { return context.device != nullptr && context.device->cpu; }
inline const char* processor(const Context& context) {
  return context.device != nullptr ? context.device->processor() : "GPU";
}

}  // namespace llmprof
