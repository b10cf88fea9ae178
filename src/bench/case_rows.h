// A measured case as rows: one per regime, held against the measured ceilings and the data sheet.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/protocol.h"
#include "hardware/hardware.h"
#include "hardware/measured.h"
#include "results/bench.h"

namespace llmprof::bench {

// What rows are held against.
struct Ceilings {
  std::optional<MeasuredCeilings> measured;
  std::optional<Gpu> sheet;
  int64_t cache_bytes = 0;  // of the device's last-level cache: what stays in it is not held against memory; 0: unknown
};

// One per timing; one without times where there are none.
std::vector<CaseRecord> records_of(const CaseResult& result, const Ceilings& ceilings);

std::string shape_text(const kernels::OpParams& params);  // "m=4096 n=4096 k=14336"
// "llmprof bench gemm --m 4096 --n 4096 --k 14336 --dtype bf16 --seed 7"
std::string repro_line(const std::string& operation, const kernels::OpParams& params);

}  // namespace llmprof::bench
