// docs/metrics.md and `llmprof list metrics`: every table, column, result, diagnostic and finding, generated from the
// declarations, so that no name in a CSV or JSON is without a sentence.
#pragma once

#include <string>
#include <vector>

#include "base/fields.h"

namespace llmprof {

// A table or a record, as it was declared: its own sentence, then its columns.
struct MetricSection {
  FieldSentence about;
  std::vector<FieldSentence> fields;
};

// All of them, in the order of the document.
std::vector<MetricSection> metric_sections();
std::string metrics_markdown();
// The same as plain lines "table.column [unit]  sentence".
std::string metrics_text();

}  // namespace llmprof
