#include "analyze/sorted_chances.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "analyze/finding.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

constexpr int64_t kSortLeastNs = 50'000, kWideLeastNs = 5'000;

bool sorts(std::string_view name) {
  static constexpr std::array<std::string_view, 7> kParts{
      "radix_sort", "RadixSort", "merge_sort", "MergeSort", "bitonicSort", "sort_post", "fill_index_and_segment"};
  return std::any_of(kParts.begin(), kParts.end(),
                     [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

}  // namespace

std::vector<SortedChances> sorted_chances(const Context& context) {
  const Trace& trace = context.trace;
  std::vector<uint8_t> verdicts(trace.strings.size());  // sorts, by name: 0 unseen, 1 yes, 2 no
  struct Open {
    StepId step = kNoRow;
    SortedChances found;
    int64_t sort_ns = 0;
  };
  std::map<StreamId, Open> streams;
  std::vector<SortedChances> out;
  const auto close = [&](Open& open) {
    if (open.sort_ns >= kSortLeastNs) out.push_back(std::move(open.found));
    open = {};
  };
  const auto& dur_ns = trace.gpu_ops.dur_ns;
  for (GpuOpId op = 0; op < trace.gpu_ops.size(); ++op) {
    const StepId step = trace.gpu_links.step[op];
    Open& open = streams[trace.gpu_ops.stream[op]];
    if (open.step != step) {
      close(open);
      open.step = step;
    }
    if (step == kNoRow) continue;
    uint8_t& verdict = verdicts[index(trace.gpu_ops.name[op])];
    if (verdict == 0) verdict = sorts(trace.text(trace.gpu_ops.name[op])) ? 1 : 2;
    SortedChances& found = open.found;
    if (is_arithmetic(trace.gpu_links.category[op])) {  // a model runs on behind it
      close(open);
      open.step = step;
    } else if (verdict == 1) {
      open.sort_ns += dur_ns[op];
      const bool longest = found.stays == kNoRow || dur_ns[op] > dur_ns[found.stays];
      const GpuOpId goes = longest ? found.stays : op;
      if (longest) found.stays = op;
      if (goes != kNoRow) found.gone.push_back(goes);
    } else if (found.stays != kNoRow && dur_ns[op] >= kWideLeastNs) {
      found.narrowed.push_back(op);
    }
  }
  for (auto& [stream, open] : streams) close(open);
  return out;
}

void find_full_sort(const FindingContext& finding) {
  constexpr double kShareMin = 0.05;
  struct Sums {
    double ns = 0, sorts_ns = 0, count = 0;
  };
  const Trace& trace = finding.trace();
  std::map<uint32_t, Sums> stages;
  for (const SortedChances& one : sorted_chances(finding.context)) {
    Sums& sums = stages[finding.stage_of(one.stays)];
    ++sums.count;
    for (const GpuOpId op : one.gone) sums.sorts_ns += static_cast<double>(trace.gpu_ops.dur_ns[op]);
    for (const GpuOpId op : one.narrowed) sums.ns += static_cast<double>(trace.gpu_ops.dur_ns[op]);
  }
  for (const StageView& stage : finding.stages) {
    const auto found = stages.find(stage.stage);
    if (found == stages.end()) continue;
    const Sums& sums = found->second;
    const double ns = sums.ns + sums.sorts_ns;
    if (ns < kShareMin * stage.busy_ns() || !finding.worth(stage, "largest-only", true)) continue;
    Finding& out =
        finding.add("full-sort", &stage,
                    fmt::format("{}sorting all chances, and passes over what is sorted, take {} of the GPU time",
                                stage.label(), format_percent(ns / stage.busy_ns())),
                    ns);
    out.evidence = {counted("sorts per step", sums.count / stage.count(), Unit::kOne),
                    measured("GPU time of sorting per step, but for its longest kernel",
                             stage.per_step_ms(sums.sorts_ns), Unit::kMs),
                    measured("of passes behind it", stage.per_step_ms(sums.ns), Unit::kMs)};
    out.advice = {
        "Take the largest first (topk of as many as are ever drawn from), and sort, sum up and draw among them alone.",
        "Or draw by a fused kernel that searches for the threshold (FlashInfer's top-p and top-k sampling)."};
    out.bound = stage.bound(ns);
  }
}

}  // namespace llmprof
