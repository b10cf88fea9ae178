// Parts of the page of `llmprof bench`.
#pragma once

#include <string>
#include <vector>

#include "base/page.h"
#include "results/bench.h"

namespace llmprof::bench {

// A table per operation, and notes on rows that are not what they should be.
std::string cases_text(const std::vector<CaseRecord>& records, const TextStyle& style);

// Where the throughput of a sweep over `axis` stops rising, and what limits it from there on: one sentence per
// operation, variant, data type and setting of the other axes. Needs three values.
std::vector<std::string> plateau_sentences(const std::vector<CaseRecord>& records, const std::string& axis);

}  // namespace llmprof::bench
