// What our own words call the processor that the model ran on. Names of the recording are never changed.
#pragma once

#include "analyze/analysis.h"
#include "derive/recorded_spans.h"

namespace llmprof {

// Whether llmprof watched all of a program in a mode that records kernels, unhindered, and saw nothing of a GPU: no
// call, no kernel, no device. What is known is what the program's ranges say of the CPU.
inline bool no_gpu_work(const Trace& trace) {
  for (const char* part : {"options.armed", "options.delay_s", "options.duration_s", "options.capture_range"})
    if (trace.metadata.count(part) != 0) return false;
  for (const DiagnosticId hindered :
       {DiagnosticId::kNoCupti, DiagnosticId::kCuptiHeld, DiagnosticId::kForeignInjection})
    if (trace.diagnostics.count(hindered) != 0) return false;
  const std::map<std::string, std::string>::const_iterator mode = trace.metadata.find("mode");
  if (mode != trace.metadata.end() && mode->second == "light") return false;
  return is_live_recording(trace) && trace.gpu_ops.empty() && trace.graph_launches.empty() && trace.api_calls.empty() &&
         trace.recurring_calls.empty() && trace.library_calls.empty() && trace.devices.empty() &&
         trace.gpu_samples.empty() && trace.nvml_samples.empty();
}
inline bool on_cpu(const Context& context) {
  return context.device != nullptr ? context.device->cpu : no_gpu_work(context.trace);
}
inline const char* processor(const Context& context) {
  if (context.device != nullptr) return context.device->processor();
  return on_cpu(context) ? "CPU" : "GPU";
}

}  // namespace llmprof
