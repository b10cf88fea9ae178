// Any bytes as a result of a server benchmark, through the whole program: read, import, derive, analyze, render.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "import/serving.h"
#include "whole_program.h"

namespace {

using namespace llmprof;

using fuzz::broken;
using fuzz::kOneThread;

void check_rows(const Trace& trace) {
  const ClientRequests& requests = trace.client_requests;
  for (size_t row = 0; row < requests.size(); ++row) {
    if (requests.start_ns[row] < 0) broken("reading", "a request before the first");
    if (requests.latency_ns[row] < -1 || requests.ttft_ns[row] < -1) broken("reading", "a negative time");
    if (requests.error[row] != StringId::kEmpty && requests.latency_ns[row] >= 0)
      broken("reading", "a failed request with a latency");
  }
  for (const int64_t length : trace.client_intervals.length_ns)
    if (length < 0) broken("reading", "a negative time between pieces");
  for (const double value : trace.client_figures.value)
    if (std::isnan(value) || value < 0) broken("reading", "a figure that is none");
}

void use(std::string_view bytes) {
  Result<InputFile> input = InputFile::from_memory(bytes, "fuzz.jsonl");
  Trace trace;
  if (!input) return;
  if (const int sure = serving::sniff(input->head()); sure < 0 || sure > 100) broken("sniff", std::to_string(sure));
  if (!serving::import(*input, trace)) return;
  // A value takes at least a digit and a comma; compressed bytes stand for more.
  const size_t rows = trace.client_requests.size() + trace.client_intervals.size() + trace.client_figures.size();
  if (input->compression() == InputFile::Compression::kNone && rows > bytes.size())
    broken("reading", "more rows than text");
  check_rows(trace);
  fuzz::finish_and_report(trace, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!kOneThread) return 0;
  use(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
