// `llmprof bench` as text: a table per operation, the sentence of each sweep, and comparisons.
#pragma once

#include <string>
#include <vector>

#include "base/page.h"
#include "bench/case_rows.h"
#include "bench/compare.h"
#include "bench/plan.h"

namespace llmprof::bench {

std::string cases_text(const std::vector<CaseRecord>& records, const TextStyle& style);
std::string comparisons_text(const std::vector<Comparison>& comparisons, const std::vector<std::string>& changed,
                             const TextStyle& style);

// Where the throughput of a sweep over `axis` stops rising, and what limits it from there on: one sentence per
// operation, variant, data type and setting of the other axes. Needs three values.
std::vector<std::string> plateau_sentences(const std::vector<CaseRecord>& records, const std::string& axis);

}  // namespace llmprof::bench
