// Any bytes as what `ncu --csv` prints, through the whole program: read, import, derive, analyze, render.
#include <cstdint>
#include <string>
#include <string_view>

#include "import/ncu.h"
#include "whole_program.h"

namespace {

using namespace llmprof;

using fuzz::broken;
using fuzz::kOneThread;

void use(std::string_view bytes) {
  Result<InputFile> input = InputFile::from_memory(bytes, "fuzz.csv");
  Trace trace;
  if (!input) return;
  if (const int sure = ncu::sniff(input->head()); sure < 0 || sure > 100) broken("sniff", std::to_string(sure));
  // What sniff refuses is read as well: the reader relies on nothing that sniff has seen.
  if (!ncu::import(*input, trace)) return;
  // A kernel has a name, a value at least one character; compressed bytes stand for more.
  if (input->compression() == InputFile::Compression::kNone) {
    if (trace.profiled_kernels.size() > bytes.size() / 2) broken("reading", "more kernels than names");
    if (trace.kernel_counters.size() > bytes.size() / 2) broken("reading", "more values than cells");
  }
  for (const StringId name : trace.profiled_kernels.name)
    if (name == StringId::kEmpty) broken("reading", "a kernel without a name");
  fuzz::finish_and_report(trace, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!kOneThread) return 0;
  use(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
