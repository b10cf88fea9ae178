#include "results/bench.h"

#include <fmt/format.h>

namespace llmprof::bench {

std::string CaseRecord::case_key() const {
  return fmt::format("{} {} {} {} {}", row.name, row.variant, row.shape, row.dtype, row.seed);
}
std::string CaseRecord::key() const { return fmt::format("{} {}", case_key(), name_of(row.regime)); }

}  // namespace llmprof::bench
