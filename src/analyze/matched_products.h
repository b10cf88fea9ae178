// Matrix products of the logs of cuBLAS and cuBLASLt: a product of both logs once, and its GEMM in the recording beside
// them, where it has GEMMs of the same shapes in the same order on a stream. Matched once for all analyses
// (Context::products). Rules: docs/formats/cublas.md.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

// A product of the program: rows of the two logs, kNoRow where that log does not have it.
struct LoggedProduct {
  Row cublas = kNoRow, lt = kNoRow;
  Row first() const { return cublas != kNoRow ? cublas : lt; }
};

struct MatchedProducts {
  std::vector<LoggedProduct> products{};  // in the order of the program, as far as the logs tell
  std::vector<Row> gpu_of{};              // by product: row in gpu_ops, or kNoRow
  int64_t recorded = 0, matched = 0;      // GEMMs of the recording outside of CUDA graphs, and those that are a product
  int64_t in_graphs = 0;                  // GEMMs that ran in CUDA graphs
  bool shaped = false;                    // the recording knows shapes

  // Whether a row of logged_products, which has `rows`, is in the recording. A product of both logs is in two rows.
  std::vector<bool> rows_found(size_t rows) const;
};

// Empty without logs; without a recording beside them nothing is matched.
MatchedProducts match_products(const Trace& trace);

}  // namespace llmprof
