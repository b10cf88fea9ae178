// Any bytes as metrics pages of servers, through the whole program: read, import, derive, analyze, render.
#include <cmath>
#include <string>
#include <string_view>

#include "import/prometheus.h"
#include "one_format.h"
#include "trace/sample_labels.h"

namespace llmprof::fuzz {

void use(std::string_view bytes) {
  // No file of that name, whose last change would be a time.
  Trace trace;
  if (!imported(bytes, "fuzz/no such file.prom", metrics_pages::sniff, metrics_pages::import, trace)) return;
  const ScrapedValues& rows = trace.scraped_values;
  // The shortest sample is "a 1" and the end of its line; compressed bytes stand for more.
  if (more_than_text(bytes, rows.size(), 4)) broken("reading", "more samples than text");
  for (size_t row = 0; row < rows.size(); ++row) {
    if (trace.text(rows.name[row]).empty()) broken("reading", "a sample without a name");
    if (rows.time_ns[row] < 0) broken("reading", "a sample before 1970");
    const std::string labels(trace.text(rows.labels[row]));
    if (labels_text(labels_of(labels)) != labels) broken("labels do not read back", labels);
  }
  finish_and_report(trace, true);
}

}  // namespace llmprof::fuzz
