// docs/metrics.md and `llmprof list metrics`: every table, column, report record, diagnostic and finding, generated
// from the declarations, so that no name in a CSV is without a sentence.
#pragma once

#include <string>

namespace llmprof {

std::string metrics_markdown();
// The same as plain lines "table.column [unit]  sentence".
std::string metrics_text();

}  // namespace llmprof
