#include "derive/product_rows.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "derive/call_counts.h"

namespace llmprof {

ProductRowsOf::ProductRowsOf(const Trace& trace, const std::vector<ThreadId>& threads) {
  const ProductRows& all = trace.product_rows;
  for (Row row = 0; row < all.size(); ++row)
    if (std::binary_search(threads.begin(), threads.end(), all.thread[row]))
      products_.push_back({all.time_ns[row], all.tokens[row]});
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

void PromptsByRows::add(StageKind kind, int64_t rows) {
  switch (kind) {
    case StageKind::kDecode:
      most_of_tokens_ = std::max(most_of_tokens_, rows);
      ++tokens_;
      break;
    case StageKind::kPrefill:
      of_prompts_.push_back(rows);
      break;
    case StageKind::kOther:
      break;
    default:
      others_ = true;
  }
}

std::optional<int64_t> PromptsByRows::most_of_tokens() const {
  constexpr double kNearlyAllOf = 0.9;
  constexpr std::ptrdiff_t kFew = 3;  // of few, one may be a step of a warm-up that is taken for a prompt
  const auto above =
      std::count_if(of_prompts_.begin(), of_prompts_.end(), [&](int64_t rows) { return rows > most_of_tokens_; });
  const std::ptrdiff_t all = static_cast<std::ptrdiff_t>(of_prompts_.size());
  const bool but_one = above >= kFew && all - above <= 1;
  if (others_ || all == 0 || (!but_one && static_cast<double>(above) < kNearlyAllOf * static_cast<double>(all)))
    return {};
  return most_of_tokens_;
}

std::optional<StageKind> PromptsByRows::kind_of(int64_t rows) const {
  const std::optional<int64_t> most = most_of_tokens();
  if (!most) return {};
  if (rows > *most) return StageKind::kPrefill;
  // Without a product it is a graph of tokens, where those have none either.
  if (tokens_ == 0 || (rows < 0 && *most >= 0)) return {};
  return StageKind::kDecode;
}

namespace {

// The recorded ranges of one text.
struct RecordedPasses {
  PromptsByRows rows;
  bool all_recur = true;  // each that makes tokens has a recurring call
};

}  // namespace

void settle_by_product_rows(const Trace& trace, std::vector<StepDraft>& steps) {
  if (trace.product_rows.empty()) return;
  std::map<ThreadId, ProductRowsOf> threads;
  const auto rows_of = [&](const StepDraft& step) {
    const auto found = threads.try_emplace(step.thread, trace, std::vector<ThreadId>{step.thread}).first;
    return found->second.within(step.begin_ns, step.end_ns - 1).rows;
  };
  const CallCounts calls(trace.recurring_calls);
  const auto recurs = [&](const StepDraft& step) {
    return !calls.within(step.thread, step.begin_ns, step.end_ns).empty();
  };
  std::map<std::pair<ThreadId, std::string>, RecordedPasses> texts;
  for (const StepDraft& step : steps) {
    if (!step.recurs || step.unseen || step.thread == kNoRow) continue;
    RecordedPasses& text = texts[{step.thread, step.stage}];
    text.rows.add(step.kind, rows_of(step));
    const bool tokens = step.kind == StageKind::kDecode || step.kind == StageKind::kPrefill;
    text.all_recur = text.all_recur && (!tokens || recurs(step));
  }
  for (StepDraft& step : steps) {
    if (!step.recurs || !step.unseen || step.kind != StageKind::kOther) continue;
    const auto text = texts.find({step.thread, step.stage});
    if (text == texts.end()) continue;
    step.kind_known = text->second.rows.most_of_tokens() && text->second.all_recur && !recurs(step);
    if (step.kind_known) continue;
    if (const std::optional<StageKind> kind = text->second.rows.kind_of(rows_of(step))) step.kind = *kind;
  }
}

}  // namespace llmprof
