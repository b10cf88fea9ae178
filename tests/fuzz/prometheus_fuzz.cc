// Any bytes as metrics pages of servers, through the whole program: read, import, derive, analyze, render.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "import/prometheus.h"
#include "trace/sample_labels.h"
#include "whole_program.h"

namespace {

using namespace llmprof;

using fuzz::broken;
using fuzz::kOneThread;

void use(std::string_view bytes) {
  // No file of that name, whose last change would be a time.
  Result<InputFile> input = InputFile::from_memory(bytes, "fuzz/no such file.prom");
  Trace trace;
  if (!input) return;
  if (const int sure = metrics_pages::sniff(input->head()); sure < 0 || sure > 100)
    broken("sniff", std::to_string(sure));
  if (!metrics_pages::import(*input, trace)) return;
  const ScrapedValues& rows = trace.scraped_values;
  // The shortest sample is "a 1" and the end of its line; compressed bytes stand for more.
  if (input->compression() == InputFile::Compression::kNone && rows.size() > bytes.size() / 4)
    broken("reading", "more samples than text");
  for (size_t row = 0; row < rows.size(); ++row) {
    if (trace.text(rows.name[row]).empty()) broken("reading", "a sample without a name");
    if (rows.time_ns[row] < 0) broken("reading", "a sample before 1970");
    const std::string labels(trace.text(rows.labels[row]));
    if (labels_text(labels_of(labels)) != labels) broken("labels do not read back", labels);
  }
  fuzz::finish_and_report(trace, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!kOneThread) return 0;
  use(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
