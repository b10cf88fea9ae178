// Operations that NCCL's Inspector timed, by communicator, kind, size and how NCCL carried them out.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/without_program.h"
#include "base/statistics.h"
#include "trace/nccl_samples.h"
#include "trace/sample_labels.h"

namespace llmprof {
namespace {

struct InspectedLabels {
  std::string communicator{}, name{}, operation{}, algorithm{}, protocol{}, timing{}, rank{};
  int64_t ranks = -1, nodes = -1;
  double bytes = 0;
};

int64_t number_or_absent(const std::string& text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

InspectedLabels inspected_labels(std::string_view text) {
  InspectedLabels out;
  for (SampleLabel& label : labels_of(text)) {
    if (label.name == "communicator")
      out.communicator = std::move(label.value);
    else if (label.name == "name")
      out.name = std::move(label.value);
    else if (label.name == "operation")
      out.operation = std::move(label.value);
    else if (label.name == "algorithm")
      out.algorithm = std::move(label.value);
    else if (label.name == "protocol")
      out.protocol = std::move(label.value);
    else if (label.name == "timing")
      out.timing = std::move(label.value);
    else if (label.name == "rank")
      out.rank = std::move(label.value);
    else if (label.name == "ranks")
      out.ranks = number_or_absent(label.value);
    else if (label.name == "nodes")
      out.nodes = number_or_absent(label.value);
    else if (label.name == "bytes")
      out.bytes = static_cast<double>(std::max<int64_t>(number_or_absent(label.value), 0));
  }
  return out;
}

struct InspectedGroup {
  InspectedLabels of{};
  std::set<std::string> ranks{};
  std::vector<double> us{}, algorithm_gbs{}, bus_gbs{};
  int64_t checked = 0, disagreeing = 0;
};

// Bytes that the rate is of: where each rank gives or gets a part, the size is that of a part.
double bytes_of_rate(const InspectedLabels& of) {
  const bool parts = of.operation.starts_with("AllGather") || of.operation == "ReduceScatter";
  return parts ? of.bytes * static_cast<double>(of.ranks) : of.bytes;
}

class InspectedOperations {
 public:
  explicit InspectedOperations(const Trace& trace) {
    const ScrapedValues& rows = trace.scraped_values;
    std::map<StringId, InspectedGroup*> by_labels;
    InspectedGroup* last = nullptr;
    for (Row row = 0; row < rows.size(); ++row) {
      if (trace.text(rows.type[row]) != nccl::kInspectorType) continue;
      any_ = true;
      const std::string_view name = trace.text(rows.name[row]);
      if (name == nccl::kInspectorDropped) {
        dropped_ += rows.value[row];
        continue;
      }
      InspectedGroup*& group = by_labels[rows.labels[row]];
      if (group == nullptr) group = &group_of(inspected_labels(trace.text(rows.labels[row])));
      const double value = rows.value[row];
      if (name == nccl::kInspectorTime) {
        group->us.push_back(value);
        last = group;
      } else if (name == nccl::kInspectorBusRate) {
        group->bus_gbs.push_back(value);
      } else if (name == nccl::kInspectorAlgorithmRate) {
        group->algorithm_gbs.push_back(value);
        if (last == group) check(*group, value);  // its time is the row before
      }
    }
  }
  bool any() const { return any_; }
  double dropped() const { return dropped_; }

  void fill(Report& report) {
    for (auto& [key, group] : groups_)
      if (!group.us.empty()) report.nccl_operations.push_back(record_of(group));
    std::stable_sort(
        report.nccl_operations.begin(), report.nccl_operations.end(),
        [](const NcclOperationRecord& a, const NcclOperationRecord& b) { return a.total_ms > b.total_ms; });
  }

 private:
  InspectedGroup& group_of(InspectedLabels of) {
    InspectedGroup& group =
        groups_[std::tuple(of.communicator, of.operation, of.algorithm, of.protocol, of.timing, of.bytes)];
    group.ranks.insert(of.rank);
    if (group.of.operation.empty()) group.of = std::move(of);
    return group;
  }

  static void check(InspectedGroup& group, double stated) {
    const double us = group.us.back();
    if (us <= 0 || group.of.ranks <= 0) return;
    const double given = bytes_of_rate(group.of) / us / 1e3;
    ++group.checked;
    group.disagreeing += !(std::abs(stated - given) <= 1e-3 * given + 1e-6);
  }

  static NcclOperationRecord record_of(InspectedGroup& group) {
    const auto known = [](const std::string& text) { return text.empty() ? OptText() : OptText(text); };
    NcclOperationRecord row;
    row.communicator = group.of.communicator;
    row.name = known(group.of.name);
    row.operation = group.of.operation;
    row.algorithm = known(group.of.algorithm);
    row.protocol = known(group.of.protocol);
    row.timing = known(group.of.timing);
    row.bytes = group.of.bytes;
    row.ranks = group.of.ranks;
    if (group.of.nodes >= 0) row.nodes = group.of.nodes;
    row.ranks_logged = static_cast<int64_t>(group.ranks.size());
    row.operations = static_cast<int64_t>(group.us.size());
    for (const double us : group.us) row.total_ms += us / 1e3;
    const SampleSummary times = *summarize_samples(std::move(group.us));
    row.median_us = times.median;
    row.p99_us = times.p99;
    row.most_us = times.max;
    if (!group.algorithm_gbs.empty()) row.algorithm_gbs = median_of(std::move(group.algorithm_gbs));
    if (const std::optional<SampleSummary> bus = summarize_samples(std::move(group.bus_gbs))) {
      row.bus_gbs = bus->median;
      row.bus_least_gbs = bus->min;
    }
    row.checked = group.checked;
    row.disagreeing = group.disagreeing;
    return row;
  }

  bool any_ = false;
  double dropped_ = 0;
  std::map<std::tuple<std::string, std::string, std::string, std::string, std::string, double>, InspectedGroup>
      groups_{};
};

}  // namespace

void analyze_nccl_inspector(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  InspectedOperations operations(context.trace);
  if (!operations.any()) return;
  operations.fill(report);
  if (operations.dropped() > 0)
    cannot_tell.push_back({fmt::format("What did {:.0f} more operations of NCCL take?", operations.dropped()),
                           "they ended faster than the Inspector wrote, and were overwritten",
                           "a larger NCCL_INSPECTOR_DUMP_COLL_RING_SIZE and NCCL_INSPECTOR_DUMP_P2P_RING_SIZE"});
  if (profiled_only(context.trace))
    cannot_tell.push_back({"How long did GPUs wait for these operations?",
                           "the Inspector has their lengths, not what ran beside them, and no small messages",
                           "record the program: llmprof run -- COMMAND; this file may stand beside the recording"});
}

}  // namespace llmprof
