// Where the GPU time goes, per stage: operation, time, share, bottleneck.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analyze/analysis.h"
#include "analyze/processor.h"
#include "analyze/roof.h"

namespace llmprof {
namespace {

constexpr size_t kCategories = static_cast<size_t>(Category::kCount);
// A bottleneck is named if it holds for at least half of the category's time.
constexpr double kBottleneckShareMin = 0.5;

struct CategorySums {
  int64_t kernels = 0, total_ns = 0;
  double flops = 0, bytes = 0, roof_ns = 0, roofed_ns = 0;  // roofed: time of kernels with a known roof
  double helper_ns = 0;                                     // of others of the same operators
  bool work = false;
  std::array<double, static_cast<size_t>(Bound::kCount)> bound_ns{};
};

}  // namespace

void analyze_categories(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Groups& groups = context.groups;
  std::vector<CategorySums> all(groups.stages.size() * kCategories);
  for (uint32_t k = 0; k < groups.kernels.size(); ++k) {
    const KernelKey& key = groups.kernel_keys.key(k);
    const KernelSums& kernel = groups.kernels[k];
    CategorySums& sums = all[key.stage * kCategories + static_cast<size_t>(key.category)];
    const double total_ns = static_cast<double>(kernel.total_ns);
    sums.kernels += kernel.calls;
    sums.total_ns += kernel.total_ns;
    const KernelRoof roof = kernel_roof(context, k);
    sums.bound_ns[static_cast<size_t>(kernel_bound(context, k, roof))] += total_ns;
    if (!roof.known) {
      // A product that is split over blocks has a second kernel, which adds the parts up: its time is the product's.
      if (is_arithmetic(key.category)) sums.helper_ns += static_cast<double>(kernel.covered_ns);
      continue;
    }
    sums.work = true;
    sums.flops += roof.flops;
    sums.bytes += roof.bytes;
    if (!roof.point.roof_ns) continue;
    sums.roof_ns += *roof.point.roof_ns;
    sums.roofed_ns += total_ns;
  }
  int64_t unknown_ns = 0;
  for (uint32_t s = 0; s < groups.stages.size(); ++s) {
    std::vector<CategoryRecord> rows;
    for (size_t c = 0; c < kCategories; ++c) {
      const CategorySums& sums = all[s * kCategories + c];
      if (sums.kernels == 0) continue;
      CategoryRecord& row = rows.emplace_back();
      row.category = category_name(static_cast<Category>(c));
      row.stage = stage_name(context.trace, groups, s);
      row.device = groups.stages[s].device;
      row.kernels = sums.kernels;
      row.time_ms.ns = sums.total_ns;
      const double total_ns = static_cast<double>(sums.total_ns);
      row.share = groups.stages[s].gpu_ns > 0 ? total_ns / static_cast<double>(groups.stages[s].gpu_ns) : 0;
      const int64_t recorded_ns = groups.stages[s].wall_ns - groups.stages[s].not_recorded_ns;
      if (recorded_ns > 0) row.wall_share = total_ns / static_cast<double>(recorded_ns);
      row.mean_us = total_ns / static_cast<double>(sums.kernels) / 1e3;
      if (sums.work) {
        row.flops = sums.flops;
        row.bytes = sums.bytes;
      }
      if (sums.roofed_ns > 0) row.of_roof_frac = sums.roof_ns / (sums.roofed_ns + sums.helper_ns);
      const auto most = std::max_element(sums.bound_ns.begin(), sums.bound_ns.end());
      const Bound bound = static_cast<Bound>(most - sums.bound_ns.begin());
      if (bound != Bound::kUnknown && *most >= kBottleneckShareMin * total_ns) row.bottleneck = bound;
      if (static_cast<Category>(c) == Category::kOther) unknown_ns += sums.total_ns;
    }
    std::stable_sort(rows.begin(), rows.end(),
                     [](const CategoryRecord& a, const CategoryRecord& b) { return a.time_ms.ns > b.time_ms.ns; });
    for (CategoryRecord& row : rows) report.categories.push_back(std::move(row));
  }
  if (groups.gpu_ns > 0 && unknown_ns > groups.gpu_ns / 20)
    cannot_tell.push_back(
        {"What are the kernels listed as `other` for?",
         fmt::format("no rule names them, and they take more than 5 % of the {} time", processor(context)),
         "see their names in kernels.csv"});
}

}  // namespace llmprof
