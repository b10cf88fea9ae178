// Any bytes as the output of `nvidia-smi dmon`, through the whole program: read, import, derive, analyze, render.
#include <cstdint>
#include <string>
#include <string_view>

#include "import/dmon.h"
#include "whole_program.h"

namespace {

using namespace llmprof;

using fuzz::broken;
using fuzz::kOneThread;

void use(std::string_view bytes) {
  Result<InputFile> input = InputFile::from_memory(bytes, "fuzz.txt");
  Trace trace;
  if (!input) return;
  if (const int sure = dmon::sniff(input->head()); sure < 0 || sure > 100) broken("sniff", std::to_string(sure));
  // What sniff refuses is read as well: the reader relies on nothing that sniff has seen.
  if (!dmon::import(*input, trace)) return;
  if (trace.nvml_samples.size() > bytes.size() / 2) broken("reading", "more samples than lines");
  fuzz::finish_and_report(trace, false);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!kOneThread) return 0;
  use(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
