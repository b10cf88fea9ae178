// Any bytes as a log of cuBLAS or cuBLASLt, through the whole program: read, import, derive, analyze, render.
#include <cstdint>
#include <string>
#include <string_view>

#include "import/cublas.h"
#include "whole_program.h"

namespace {

using namespace llmprof;

using fuzz::broken;
using fuzz::kOneThread;

void use(std::string_view bytes) {
  Result<InputFile> input = InputFile::from_memory(bytes, "fuzz.log");
  Trace trace;
  if (!input) return;
  if (const int sure = blas_logs::sniff(input->head()); sure < 0 || sure > 100) broken("sniff", std::to_string(sure));
  if (!blas_logs::import(*input, trace)) return;
  // The shortest product has some hundred bytes; compressed bytes stand for more.
  if (input->compression() == InputFile::Compression::kNone && trace.logged_products.size() > bytes.size() / 50)
    broken("reading", "more products than text");
  for (size_t row = 0; row < trace.logged_products.size(); ++row)
    if (trace.logged_products.batch[row] <= 0 || trace.logged_products.k[row] == 0)
      broken("reading", "a product without a size");
  fuzz::finish_and_report(trace, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!kOneThread) return 0;
  use(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
