#include "workload/backend.h"

namespace llmprof::workload {

Tensor Tensor::rows_from(int64_t first, int64_t count) const {
  const auto element = static_cast<size_t>(dtype_bytes(dtype));
  return {static_cast<char*>(data) + static_cast<size_t>(first * columns) * element, count, columns, dtype};
}

}  // namespace llmprof::workload
