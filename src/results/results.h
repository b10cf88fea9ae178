// What commands answer, one declared record each. A renderer (report/render.h) takes any of them.
// Adding one: docs/howto/add-a-result.md.
#pragma once

#include <string_view>
#include <variant>

#include "results/bench.h"
#include "results/diff.h"
#include "results/doctor.h"
#include "results/model.h"
#include "results/peaks.h"
#include "results/report.h"
#include "results/runs.h"

namespace llmprof {

struct ResultInfo {
  std::string_view name;    // of the file: "report" as in report.json
  std::string_view schema;  // of its JSON; empty: none is said
  // The list that is all of its CSV, one file; empty: a file for each list, in a folder.
  std::string_view one_table;
};
constexpr ResultInfo result_info(const Report&) { return {"report", "llmprof.report/1", {}}; }
constexpr ResultInfo result_info(const bench::BenchResult&) { return {"bench", bench::kBenchSchema, "cases"}; }
constexpr ResultInfo result_info(const bench::ComparisonResult&) {
  return {"comparison", "llmprof.bench.comparison/1", "comparison"};
}
constexpr ResultInfo result_info(const bench::PeaksResult&) { return {"peaks", "llmprof.peaks/1", {}}; }
constexpr ResultInfo result_info(const DiffResult&) { return {"diff", "llmprof.diff/1", {}}; }
constexpr ResultInfo result_info(const DoctorResult&) { return {"doctor", {}, "checks"}; }
constexpr ResultInfo result_info(const ModelResult&) { return {"model", "llmprof.model/1", "model_operators"}; }
constexpr ResultInfo result_info(const RunList&) { return {"runs", "llmprof.runs/1", "runs"}; }
constexpr ResultInfo result_info(const RunShown&) { return {"manifest", "llmprof.manifest/1", "files"}; }
constexpr ResultInfo result_info(const PrunedRuns&) { return {"pruned", "llmprof.runs.pruned/1", "steps"}; }
constexpr ResultInfo result_info(const VerifiedRuns&) { return {"verified", "llmprof.runs.verified/1", "problems"}; }

using ResultRecord = std::variant<const Report*, const bench::BenchResult*, const bench::ComparisonResult*,
                                  const bench::PeaksResult*, const ModelResult*, const DoctorResult*, const RunList*,
                                  const RunShown*, const PrunedRuns*, const VerifiedRuns*, const DiffResult*>;

// One of them, whichever it is; it must outlive this.
class AnyResult {
 public:
  template <class Record>
  AnyResult(const Record& record) : record_(&record) {}
  // Calls visitor(const Record&).
  template <class Visitor>
  auto visit(Visitor&& visitor) const {
    return std::visit([&visitor](const auto* record) { return visitor(*record); }, record_);
  }

 private:
  ResultRecord record_;
};

}  // namespace llmprof
