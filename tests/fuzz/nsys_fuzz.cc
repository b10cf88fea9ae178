// Any bytes as an SQLite export of Nsight Systems, through the whole program: read, import, derive, analyze, render.
#include <cstdint>
#include <string>
#include <string_view>

#include "import/nsys.h"
#include "whole_program.h"

namespace {

using namespace llmprof;

using fuzz::broken;
using fuzz::kOneThread;

void use(std::string_view bytes) {
  constexpr size_t kBytesMax = size_t{1} << 20;  // time of one input
  if (bytes.size() > kBytesMax) return;
  Result<InputFile> input = InputFile::from_memory(bytes, "/nowhere/fuzz.sqlite");
  if (!input) return;
  if (const int sure = nsys::sniff(input->head()); sure < 0 || sure > 100) broken("sniff", std::to_string(sure));
  Trace trace;
  // Small parts: their joining is what is tried.
  if (!nsys::import_in_parts(*input, trace, 16)) return;
  // Pages that a damaged file gives again and again are no more rows than fit into it.
  const size_t rows =
      trace.gpu_ops.size() + trace.api_calls.size() + trace.annotations.size() + trace.gpu_samples.size();
  if (rows > 4 * (bytes.size() / 5 + 1)) broken("reading", "more rows than fit into the file");
  fuzz::finish_and_report(trace, bytes.size() % 8 == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!kOneThread) return 0;
  use(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
