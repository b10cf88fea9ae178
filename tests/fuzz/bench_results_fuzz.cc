// Any bytes as results of llmprof bench, or as the journal of a run: what is read is printed, compared with itself, and
// written and read again the same.
#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/compare.h"
#include "bench/results_file.h"
#include "report/render.h"
#include "report/text_bench.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const llmprof::Result<llmprof::bench::ResultsFile> results = llmprof::bench::parse_results(text, "fuzz.json");
  if (!results) {
    if (results.error().text().empty()) __builtin_trap();
    return 0;
  }
  llmprof::bench::cases_text(results->records, {});
  llmprof::bench::plateau_sentences(results->records, "m");
  for (const llmprof::bench::ComparisonRow& one : llmprof::bench::compare_results(*results, *results))
    if (one.verdict == llmprof::bench::Verdict::kFast || one.verdict == llmprof::bench::Verdict::kSlow)
      __builtin_trap();
  const std::string written = llmprof::render_json(llmprof::bench::bench_result(*results, {}));
  const llmprof::Result<llmprof::bench::ResultsFile> again = llmprof::bench::parse_results(written, "fuzz.json");
  if (!again || llmprof::render_json(llmprof::bench::bench_result(*again, {})) != written) __builtin_trap();
  return 0;
}
