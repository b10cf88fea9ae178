// docs/metrics.md and `llmprof list metrics`: every table, column, report record, diagnostic and finding, generated
// from the declarations, so that no name in a CSV is without a sentence.
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
template <class TableOrRecord>
MetricSection metric_section() {
  MetricSection section;
  TableOrRecord::sentences([&](const FieldSentence& line) { section.fields.push_back(line); });
  section.about = section.fields.front();
  section.fields.erase(section.fields.begin());
  return section;
}

// All of them, in the order of the document.
std::vector<MetricSection> metric_sections(const std::vector<MetricSection>& benchmarks);
// `benchmarks`: the records of rooms that this one does not know.
std::string metrics_markdown(const std::vector<MetricSection>& benchmarks);
// The same as plain lines "table.column [unit]  sentence".
std::string metrics_text(const std::vector<MetricSection>& benchmarks);

}  // namespace llmprof
