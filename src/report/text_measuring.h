// What the pages of bench and peaks have in common.
#pragma once

#include <string>
#include <vector>

#include "base/text_table.h"
#include "report/render.h"

namespace llmprof::bench {

using Align = TextTable::Align;

// "NVIDIA H200 (GPU-5c.., driver 580.1), 132 SMs; cuBLASLt 13.1.0"
std::string device_line(const MeasuredDevice& device);

// Nothing where the value is not known.
std::string fixed_text(const OptNumber& value, int decimals);
std::string percent_text(const OptNumber& fraction);
std::string rate_text(const OptNumber& value);
std::string us_text(const OptNumber& us);

// Columns that no row fills are left out: a CPU has no data sheet and no power.
std::string filled_columns(const std::vector<TextTable::Column>& columns,
                           const std::vector<std::vector<std::string>>& rows, const TextStyle& style);

}  // namespace llmprof::bench
