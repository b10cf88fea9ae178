#include "derive/other_models.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

namespace llmprof {
namespace {

using Size = std::pair<int64_t, int64_t>;  // features, reduction
using Sizes = std::vector<Size>;

constexpr size_t kRunsOfModelMin = 3;
constexpr size_t kProductsOfPassMin = 8;
constexpr double kLeadingFrac = 0.9;

struct WeightProduct {
  int64_t time_ns = 0, rows = 0;
  Size size;
  bool output = false;
};

std::map<ThreadId, std::vector<WeightProduct>> products_by_thread(const Trace& trace, const LaunchOrder& order) {
  std::map<ThreadId, std::vector<WeightProduct>> out;
  for (size_t i = 0; i < order.size(); ++i) {
    const WorkId work = trace.gpu_links.work[order.gpu[i]];
    if (!is_product(trace.works, work)) continue;
    const Size size(trace.works.n[work], trace.works.k[work]);
    out[order.thread[i]].push_back({order.time_ns[i], trace.works.m[work], size, gives_logits(trace.works, work)});
  }
  return out;
}

std::span<const WeightProduct> products_of(const StepDraft& step,
                                           const std::map<ThreadId, std::vector<WeightProduct>>& products) {
  const auto mine = products.find(step.thread);
  if (mine == products.end()) return {};
  const auto before = [](const WeightProduct& product, int64_t time) { return product.time_ns < time; };
  const auto first = std::lower_bound(mine->second.begin(), mine->second.end(), step.begin_ns, before);
  return {first, std::lower_bound(first, mine->second.end(), step.end_ns, before)};
}

Sizes sizes_of(std::span<const WeightProduct> products) {
  Sizes out;
  for (const WeightProduct& product : products) out.push_back(product.size);
  return out;
}

// A run of the model by itself: the sizes that most detected steps have and that end with an output layer, with the
// rows of most of these.
struct Model {
  Sizes sizes;
  int64_t rows = 0;
};

Model most_run(const std::vector<StepDraft>& steps, const std::map<ThreadId, std::vector<WeightProduct>>& products) {
  std::map<Sizes, std::map<int64_t, size_t>> runs;
  for (const StepDraft& step : steps) {
    const std::span<const WeightProduct> mine = products_of(step, products);
    if (mine.size() >= kProductsOfPassMin && mine.back().output) ++runs[sizes_of(mine)][mine.front().rows];
  }
  Model out;
  size_t most = 0;
  for (const auto& [sizes, rows] : runs) {
    size_t all = 0;
    for (const auto& [m, count] : rows) all += count;
    if (all < kRunsOfModelMin || all <= most) continue;
    most = all;
    const auto usual =
        std::max_element(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    out = {sizes, usual->first};
  }
  return out;
}

struct Found {
  size_t step = 0;
  int64_t cut_ns = 0;
  bool before_prompt = false;
};

}  // namespace

void split_other_models(const Trace& trace, const std::vector<LaunchOrder>& orders, const HostCalls& calls,
                        std::vector<std::vector<StepDraft>>& detected) {
  if (trace.works.empty() || trace.gpu_links.work.empty()) return;
  for (size_t i = 0; i < orders.size(); ++i) {
    std::vector<StepDraft>& steps = detected[i];
    if (steps.empty()) continue;
    const std::map<ThreadId, std::vector<WeightProduct>> products = products_by_thread(trace, orders[i]);
    const Model model = most_run(steps, products);
    if (model.sizes.empty()) continue;
    const std::set<Size> of_model(model.sizes.begin(), model.sizes.end());
    std::map<Sizes, std::vector<Found>> others;  // by their sizes
    for (size_t s = 0; s < steps.size(); ++s) {
      const std::span<const WeightProduct> mine = products_of(steps[s], products);
      if (steps[s].by_period || mine.size() < model.sizes.size() + kProductsOfPassMin) continue;
      const std::span<const WeightProduct> head = mine.first(mine.size() - model.sizes.size()),
                                           tail = mine.last(model.sizes.size());
      const bool other = sizes_of(tail) == model.sizes &&
                         std::none_of(head.begin(), head.end(),
                                      [&](const WeightProduct& product) { return of_model.count(product.size) > 0; });
      if (!other) continue;
      const BlockingCall* const wait = calls.first_blocking(steps[s].thread, head.back().time_ns, tail.front().time_ns);
      if (wait != nullptr) others[sizes_of(head)].push_back({s, wait->end_ns, tail.front().rows > model.rows});
    }
    std::vector<StepDraft> passes;
    for (const auto& [sizes, found] : others) {
      const auto leading =
          std::count_if(found.begin(), found.end(), [](const Found& one) { return one.before_prompt; });
      if (static_cast<double>(leading) >= kLeadingFrac * static_cast<double>(found.size())) {
        for (const Found& one : found)
          if (one.before_prompt) steps[one.step].other_model_end_ns = one.cut_ns;
        continue;
      }
      for (const Found& one : found) {
        StepDraft& step = steps[one.step];
        StepDraft pass = step;
        pass.kind = StageKind::kOther;
        pass.kind_known = true;
        pass.end_ns = step.begin_ns = step.host_start_ns = one.cut_ns;
        passes.push_back(pass);
      }
    }
    if (passes.empty()) continue;
    steps.insert(steps.end(), passes.begin(), passes.end());
    std::sort(steps.begin(), steps.end(),
              [](const StepDraft& a, const StepDraft& b) { return a.begin_ns < b.begin_ns; });
  }
}

}  // namespace llmprof
