// A measured case as rows: one per regime, held against the measured ceilings and the data sheet.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/protocol.h"
#include "bench/rows.h"
#include "hardware/hardware.h"
#include "hardware/measured.h"

namespace llmprof::bench {

// What rows are held against.
struct Ceilings {
  std::optional<MeasuredCeilings> measured;
  std::optional<Gpu> sheet;
  int64_t cache_bytes = 0;  // of the device's last-level cache: what stays in it is not held against memory; 0: unknown
};

// A row with the samples behind it.
struct CaseRecord {
  CaseRow row;
  std::vector<double> samples_us;

  // What makes two rows the same case: operation, variant, shape, data type, regime, seed.
  std::string key() const;
  bool timed() const { return row.median_us.has_value(); }
};

// One per timing; one without times where there are none.
std::vector<CaseRecord> records_of(const CaseResult& result, const Ceilings& ceilings);

std::string shape_text(const device::OpParams& params);  // "m=4096 n=4096 k=14336"
// "llmprof bench gemm --m 4096 --n 4096 --k 14336 --dtype bf16 --seed 7"
std::string repro_line(const std::string& operation, const device::OpParams& params);

}  // namespace llmprof::bench
