// Labels of a sample on a metrics page, as Prometheus and OpenMetrics write them: le="0.1",model_name="m".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace llmprof {

struct SampleLabel {
  std::string name;
  std::string value;  // without escapes
  friend bool operator==(const SampleLabel&, const SampleLabel&) = default;
};

// What stands behind an opening brace.
struct ReadLabels {
  std::vector<SampleLabel> labels{};  // as they come
  std::string name{};                 // of the metric, where it stands among its labels: {"http.requests", code="200"}
  size_t end = 0;                     // behind the closing brace
  const char* wrong = nullptr;        // what is, if anything
};
ReadLabels read_labels(std::string_view text);

// By name, with the escapes of the formats: as the column `labels` of scraped_values has them.
std::string labels_text(std::vector<SampleLabel> labels);

// The labels of such a text; none if it is no such text.
std::vector<SampleLabel> labels_of(std::string_view text);

}  // namespace llmprof
