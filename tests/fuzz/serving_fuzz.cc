// Any bytes as a result of a server benchmark, through the whole program: read, import, derive, analyze, render.
#include <cmath>
#include <string>
#include <string_view>

#include "import/serving.h"
#include "one_format.h"

namespace llmprof::fuzz {

static void check_rows(const Trace& trace) {
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
  Trace trace;
  if (!imported(bytes, "fuzz.jsonl", serving::sniff, serving::import, trace)) return;
  // A value takes at least a digit and a comma; compressed bytes stand for more.
  const size_t rows = trace.client_requests.size() + trace.client_intervals.size() + trace.client_figures.size();
  if (more_than_text(bytes, rows, 1)) broken("reading", "more rows than text");
  check_rows(trace);
  finish_and_report(trace, true);
}

}  // namespace llmprof::fuzz
