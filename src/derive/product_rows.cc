#include "derive/product_rows.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace llmprof {
namespace {

constexpr double kMostPrompts = 0.9;

// The recorded ranges of one text on one thread.
struct Ranges {
  int64_t most_of_tokens = -1;
  std::vector<int64_t> of_prompts;
  size_t tokens = 0;
  bool others = false;  // kinds that rows do not tell apart

  bool rows_tell() const {
    if (others || tokens == 0 || of_prompts.empty()) return false;
    const auto above =
        std::count_if(of_prompts.begin(), of_prompts.end(), [&](int64_t rows) { return rows > most_of_tokens; });
    return static_cast<double>(above) >= kMostPrompts * static_cast<double>(of_prompts.size());
  }
};

}  // namespace

ProductRowsOf::ProductRowsOf(const Trace& trace, ThreadId thread) {
  const ProductRows& all = trace.product_rows;
  for (Row row = 0; row < all.size(); ++row)
    if (all.thread[row] == thread) products_.push_back({all.time_ns[row], all.tokens[row]});
  std::stable_sort(products_.begin(), products_.end(),
                   [](const Product& a, const Product& b) { return a.time_ns < b.time_ns; });
}

ProductRowsOf::Product ProductRowsOf::within(int64_t from_ns, int64_t to_ns) const {
  Product most;
  for (auto next = std::lower_bound(products_.begin(), products_.end(), from_ns,
                                    [](const Product&product, int64_t time) { return product.time_ns < time; });
       next != products_.end() && next->time_ns <= to_ns; ++next)
    if (next->rows > most.rows) most = *next;
  return most;
}

void settle_by_product_rows(const Trace& trace, std::vector<StepDraft>& steps) {
  if (trace.product_rows.empty()) return;
  std::map<ThreadId, ProductRowsOf> threads;
  const auto rows_of = [&](const StepDraft& step) {
    const auto found = threads.try_emplace(step.thread, trace, step.thread).first;
    return found->second.within(step.begin_ns, step.end_ns - 1).rows;
  };
  std::map<std::pair<ThreadId, std::string>, Ranges> texts;
  for (const StepDraft& step : steps) {
    if (!step.recurs || step.unseen || step.thread == kNoRow || step.kind == StageKind::kOther) continue;
    Ranges& ranges = texts[{step.thread, step.stage}];
    if (step.kind == StageKind::kDecode) {
      ranges.most_of_tokens = std::max(ranges.most_of_tokens, rows_of(step));
      ++ranges.tokens;
    } else if (step.kind == StageKind::kPrefill) {
      ranges.of_prompts.push_back(rows_of(step));
    } else {
      ranges.others = true;
    }
  }
  for (StepDraft& step : steps) {
    if (!step.recurs || !step.unseen || step.kind != StageKind::kOther) continue;
    const auto ranges = texts.find({step.thread, step.stage});
    if (ranges == texts.end() || !ranges->second.rows_tell()) continue;
    const int64_t rows = rows_of(step);
    // Without a product it is a graph of tokens, or nothing that is known.
    if (rows < 0 && ranges->second.most_of_tokens >= 0) continue;
    step.kind = rows > ranges->second.most_of_tokens ? StageKind::kPrefill : StageKind::kDecode;
  }
}

}  // namespace llmprof
