// Operations, kernels and operators of a stage before and after.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/statistics.h"
#include "diff/match.h"

namespace llmprof::diff {
namespace {

const StageTiming* timing_of_group(const GroupOfRun& of) {
  if (of.group == nullptr) return nullptr;
  for (const StageTiming& stage : of.run->report.stages)
    if (stage.name == of.group->stage && stage.device == of.group->device && stage.count > 0) return &stage;
  return nullptr;
}

bool is_of(const GroupOfRun& of, const std::string& stage, int64_t device) {
  return stage == of.group->stage && device == of.group->device;
}

// Sums of a stage's rows per step, by key; medians over the runs of a side. A run that has none of a key counts as 0.
template <class Key, size_t n>
class PerStep {
 public:
  using Values = std::array<double, n>;

  // `rows(of, add)`: calls add(key, values) for each row of the run's stage.
  template <class Rows>
  PerStep(const GroupsOfSide& side, Rows&& rows) {
    for (const GroupOfRun& of : side) {
      const StageTiming* const timing = timing_of_group(of);
      if (timing == nullptr) continue;
      std::map<Key, Values>& sums = runs_.emplace_back();
      const double steps = static_cast<double>(timing->count);
      rows(of, [&](const Key& key, const Values& values) {
        Values& sum = sums[key];
        for (size_t i = 0; i < n; ++i) sum[i] += values[i] / steps;
      });
    }
  }
  bool empty() const { return runs_.empty(); }
  std::map<Key, Values> medians() const {
    std::set<Key> keys;
    for (const std::map<Key, Values>& run : runs_)
      for (const auto& [key, values] : run) keys.insert(key);
    std::map<Key, Values> out;
    for (const Key& key : keys) {
      for (size_t i = 0; i < n; ++i) {
        std::vector<double> values;
        for (const std::map<Key, Values>& run : runs_) {
          const auto found = run.find(key);
          values.push_back(found == run.end() ? 0 : found->second[i]);
        }
        out[key][i] = median_of(std::move(values));
      }
    }
    return out;
  }

 private:
  std::vector<std::map<Key, Values>> runs_;
};

// Of the recorded part of a step, ms.
std::optional<double> recorded_step_ms(const GroupsOfSide& side) {
  std::vector<double> values;
  for (const GroupOfRun& of : side) {
    const StageTiming* const timing = timing_of_group(of);
    if (timing == nullptr) continue;
    const double ns = static_cast<double>(timing->wall_ms.ns - timing->not_recorded_ms.ns);
    if (ns > 0) values.push_back(ns / 1e6 / static_cast<double>(timing->count));
  }
  return values.empty() ? std::nullopt : std::optional(median_of(std::move(values)));
}

OptDouble share_of(double part, const std::optional<double>& whole) {
  return whole && *whole > 0 ? OptDouble(part / *whole) : std::nullopt;
}

double ms_of(Milliseconds time) { return time.ms(); }

template <class Row>
void largest_first(std::vector<Row>& rows, size_t from) {
  std::stable_sort(rows.begin() + static_cast<ptrdiff_t>(from), rows.end(),
                   [](const Row& a, const Row& b) { return std::abs(a.change_ms) > std::abs(b.change_ms); });
}

// ---- kernels

using KernelName = std::tuple<std::string, std::string, std::string>;  // category, shape, name
using KernelTimes = std::map<KernelName, std::array<double, 2>>;       // calls, ms

KernelTimes kernels_of(const GroupsOfSide& side) {
  return PerStep<KernelName, 2>(side,
                                [](const GroupOfRun& of, auto&& add) {
                                  for (const KernelRecord& row : of.run->report.kernels_topk)
                                    if (is_of(of, row.stage, row.device))
                                      add({row.category, row.shape.value_or(""), row.name},
                                          {static_cast<double>(row.calls), ms_of(row.total_ms)});
                                })
      .medians();
}

// Of one category; a copy by the copy engine is no kernel, and no other kind of copy.
bool can_replace(const KernelName& a, const KernelName& b) {
  const auto is_kernel = [](const std::string& name) {
    return !name.starts_with("Memcpy") && !name.starts_with("Memset");
  };
  return std::get<0>(a) == std::get<0>(b) && is_kernel(std::get<2>(a)) && is_kernel(std::get<2>(b));
}

class KernelMatch {
 public:
  KernelMatch(KernelTimes a, KernelTimes b) : a_(std::move(a)), b_(std::move(b)) {}

  std::vector<DiffKernel> rows(int64_t side, const std::string& kind) {
    side_ = side;
    kind_ = kind;
    // The same kernel in the same role; in another shape; another kernel of the same shape; what is left of a category,
    // the longest first, where both call it as often.
    pass([](const KernelName& a, const KernelName& b) { return a == b; }, DiffPresence::kBoth);
    pass([](const KernelName& a,
            const KernelName& b) { return std::get<0>(a) == std::get<0>(b) && std::get<2>(a) == std::get<2>(b); },
         DiffPresence::kBoth);
    pass(
        [](const KernelName& a, const KernelName& b) {
          return can_replace(a, b) && !std::get<1>(a).empty() && std::get<1>(a) == std::get<1>(b);
        },
        DiffPresence::kReplaced);
    pass([this](const KernelName& a,
                const KernelName& b) { return can_replace(a, b) && std::abs(a_.at(a)[0] - b_.at(b)[0]) < 0.5; },
         DiffPresence::kReplaced);
    for (const auto& [name, times] : a_) add(&name, nullptr, DiffPresence::kGone);
    for (const auto& [name, times] : b_) add(nullptr, &name, DiffPresence::kNew);
    return std::move(rows_);
  }

 private:
  template <class Fits>
  void pass(Fits&& fits, DiffPresence presence) {
    const std::vector<KernelName> of_a = by_time(a_), of_b = by_time(b_);
    for (const KernelName& a : of_a) {
      for (const KernelName& b : of_b) {
        if (b_.count(b) == 0 || !fits(a, b)) continue;
        add(&a, &b, presence);
        a_.erase(a), b_.erase(b);
        break;
      }
    }
  }

  static std::vector<KernelName> by_time(const KernelTimes& times) {
    std::vector<KernelName> out;
    for (const auto& [name, values] : times) out.push_back(name);
    std::stable_sort(out.begin(), out.end(), [&](const KernelName& one, const KernelName& other) {
      return times.at(one)[1] > times.at(other)[1];
    });
    return out;
  }

  void add(const KernelName* a, const KernelName* b, DiffPresence presence) {
    DiffKernel& row = rows_.emplace_back();
    row.side = side_;
    row.kind = kind_;
    const auto& [category, shape, name] = a != nullptr ? *a : *b;
    row.role = category + (shape.empty() ? "" : " " + shape);
    row.presence = presence;
    if (a != nullptr) row.a_name = std::get<2>(*a), row.a_calls = a_.at(*a)[0], row.a_ms = a_.at(*a)[1];
    if (b != nullptr) row.b_name = std::get<2>(*b), row.b_calls = b_.at(*b)[0], row.b_ms = b_.at(*b)[1];
    row.change_ms = row.b_ms - row.a_ms;
    if (row.a_calls > 0 && row.b_calls > 0 && row.a_ms > 0)
      row.mean_change_frac = (row.b_ms / row.b_calls) / (row.a_ms / row.a_calls) - 1;
  }

  KernelTimes a_, b_;
  int64_t side_ = 0;
  std::string kind_;
  std::vector<DiffKernel> rows_;
};

std::string kind_of(const GroupsOfSide& side) {
  for (const GroupOfRun& of : side)
    if (of.group != nullptr) return of.group->name;
  return {};
}

}  // namespace

void add_operations(const GroupsOfSide& a, const GroupsOfSide& b, int64_t side, std::vector<DiffOperation>& out) {
  using Key = std::pair<bool, std::string>;  // idle, name
  const auto rows = [](const GroupOfRun& of, auto&& add) {
    for (const CategoryRecord& row : of.run->report.categories)
      if (is_of(of, row.stage, row.device)) add({false, row.category}, {ms_of(row.time_ms)});
    for (const IdleRecord& row : of.run->report.idle)
      if (is_of(of, row.stage, row.device)) add({true, row.cause}, {ms_of(row.total_ms)});
  };
  const PerStep<Key, 1> of_a(a, rows), of_b(b, rows);
  if (of_a.empty() || of_b.empty()) return;
  const std::optional<double> whole_a = recorded_step_ms(a), whole_b = recorded_step_ms(b);
  std::map<Key, std::array<double, 1>> before = of_a.medians(), after = of_b.medians();
  for (const auto& [key, values] : after) before.try_emplace(key, std::array<double, 1>{0});
  const size_t from = out.size();
  for (const auto& [key, values] : before) {
    DiffOperation& row = out.emplace_back();
    row.side = side;
    row.kind = kind_of(a);
    row.name = key.second;
    row.idle = key.first;
    row.a_ms = values[0];
    row.b_ms = after.count(key) > 0 ? after.at(key)[0] : 0;
    row.a_share = share_of(row.a_ms, whole_a);
    row.b_share = share_of(row.b_ms, whole_b);
    row.change_ms = row.b_ms - row.a_ms;
  }
  largest_first(out, from);
}

void add_kernels(const GroupsOfSide& a, const GroupsOfSide& b, int64_t side, std::vector<DiffKernel>& out) {
  const size_t from = out.size();
  for (DiffKernel& row : KernelMatch(kernels_of(a), kernels_of(b)).rows(side, kind_of(a)))
    out.push_back(std::move(row));
  largest_first(out, from);
}

void add_operators(const GroupsOfSide& a, const GroupsOfSide& b, int64_t side, std::vector<DiffOperator>& out) {
  const auto rows = [](const GroupOfRun& of, auto&& add) {
    for (const OperatorRecord& row : of.run->report.operators)
      if (row.stage == of.group->stage)
        add(row.name, {static_cast<double>(row.calls), ms_of(row.cpu_self_ms), ms_of(row.gpu_self_ms)});
  };
  std::map<std::string, std::array<double, 3>> before = PerStep<std::string, 3>(a, rows).medians();
  const std::map<std::string, std::array<double, 3>> after = PerStep<std::string, 3>(b, rows).medians();
  if (before.empty() || after.empty()) return;
  for (const auto& [name, values] : after) before.try_emplace(name, std::array<double, 3>{0, 0, 0});
  const size_t from = out.size();
  for (const auto& [name, values] : before) {
    const auto found = after.find(name);
    const std::array<double, 3> then = found == after.end() ? std::array<double, 3>{0, 0, 0} : found->second;
    out.push_back({side, kind_of(a), name, values[0], then[0], values[1], then[1], values[2], then[2]});
  }
  const auto change = [](const DiffOperator& row) {
    return std::abs(row.b_cpu_ms + row.b_gpu_ms - row.a_cpu_ms - row.a_gpu_ms);
  };
  std::stable_sort(out.begin() + static_cast<ptrdiff_t>(from), out.end(),
                   [&](const DiffOperator& one, const DiffOperator& other) { return change(one) > change(other); });
}

}  // namespace llmprof::diff
