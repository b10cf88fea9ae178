// Any bytes as a file of measured ceilings: what is read has rates above 0 only, and is written and read again the
// same.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "hardware/measured.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const llmprof::Result<llmprof::MeasuredCeilings> ceilings = llmprof::parse_ceilings(text, "fuzz.json");
  if (!ceilings) {
    if (ceilings.error().text().empty()) __builtin_trap();
    return 0;
  }
  for (const auto& [name, rate] : ceilings->library_tflops)
    if (!(rate.value > 0) || !std::isfinite(rate.value)) __builtin_trap();
  const std::optional<llmprof::MeasuredRate> memory = llmprof::memory_ceiling(*ceilings);
  if (memory && !(memory->value > 0)) __builtin_trap();
  const llmprof::MergedCeilings merged = llmprof::merge_ceilings(*ceilings, *ceilings);
  if (merged.fuller != 0) __builtin_trap();
  const std::string written = llmprof::ceilings_text(merged.ceilings);
  const llmprof::Result<llmprof::MeasuredCeilings> again = llmprof::parse_ceilings(written, "fuzz.json");
  if (!again || llmprof::ceilings_text(*again) != written) __builtin_trap();
  return 0;
}
