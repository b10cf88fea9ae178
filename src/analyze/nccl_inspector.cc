// Operations that NCCL's Inspector timed, by communicator, kind, size and how NCCL carried them out.
#include <fmt/format.h>

#include <algorithm>
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

namespace llmprof {
namespace {

struct InspectedKind {
  std::string communicator{}, operation{}, algorithm{}, protocol{}, timing{};
  double bytes = 0;
  auto key() const { return std::tie(communicator, operation, algorithm, protocol, timing, bytes); }
  bool operator<(const InspectedKind& other) const { return key() < other.key(); }
};

struct InspectedGroup {
  std::string name{};
  int64_t count_of_ranks = -1, nodes = -1;
  std::set<int64_t> ranks{};
  std::vector<double> us{}, algorithm_gbs{}, bus_gbs{};
  int64_t checked = 0, disagreeing = 0;
};

// Bytes that the rate is of: where each rank gives or gets a part, the size is that of a part.
double bytes_of_rate(const InspectedKind& of, int64_t ranks) {
  const bool parts = of.operation.starts_with("AllGather") || of.operation == "ReduceScatter";
  return parts ? of.bytes * static_cast<double>(ranks) : of.bytes;
}

class OperationGroups {
 public:
  explicit OperationGroups(const Trace& trace) {
    const InspectedOperations& rows = trace.inspected_operations;
    const auto text = [&trace](StringId id) { return std::string(trace.text(id)); };
    using Ids = std::tuple<StringId, StringId, StringId, StringId, StringId, double>;
    std::map<Ids, std::pair<const InspectedKind, InspectedGroup>*> found;
    for (Row row = 0; row < rows.size(); ++row) {
      auto*& entry = found[Ids(rows.communicator[row], rows.operation[row], rows.algorithm[row], rows.protocol[row],
                               rows.timing[row], rows.bytes[row])];
      if (entry == nullptr) {
        entry = &*groups_
                      .try_emplace({text(rows.communicator[row]), text(rows.operation[row]), text(rows.algorithm[row]),
                                    text(rows.protocol[row]), text(rows.timing[row]), rows.bytes[row]})
                      .first;
        entry->second.name = text(rows.name[row]);
        entry->second.count_of_ranks = rows.ranks[row];
        entry->second.nodes = rows.nodes[row];
      }
      InspectedGroup& group = entry->second;
      group.ranks.insert(rows.rank[row]);
      group.us.push_back(rows.time_us[row]);
      if (!std::isnan(rows.bus_gbs[row])) group.bus_gbs.push_back(rows.bus_gbs[row]);
      if (!std::isnan(rows.algorithm_gbs[row])) {
        group.algorithm_gbs.push_back(rows.algorithm_gbs[row]);
        check(entry->first, group);
      }
    }
    for (const double operations : trace.inspected_losses.operations) dropped_ += operations;
  }
  double dropped() const { return dropped_; }

  void fill(Report& report) {
    for (auto& [key, group] : groups_) report.nccl_operations.push_back(record_of(key, group));
    std::stable_sort(
        report.nccl_operations.begin(), report.nccl_operations.end(),
        [](const NcclOperationRecord& a, const NcclOperationRecord& b) { return a.total_ms > b.total_ms; });
  }

 private:
  // What the file states against its size and time.
  static void check(const InspectedKind& kind, InspectedGroup& group) {
    const double us = group.us.back(), stated = group.algorithm_gbs.back();
    if (us <= 0 || group.count_of_ranks <= 0) return;
    const double given = bytes_of_rate(kind, group.count_of_ranks) / us / 1e3;
    ++group.checked;
    group.disagreeing += !(std::abs(stated - given) <= 1e-3 * given + 1e-6);
  }

  static NcclOperationRecord record_of(const InspectedKind& kind, InspectedGroup& group) {
    const auto known = [](const std::string& text) { return text.empty() ? OptText() : OptText(text); };
    NcclOperationRecord row;
    row.communicator = kind.communicator;
    row.name = known(group.name);
    row.operation = kind.operation;
    row.algorithm = known(kind.algorithm);
    row.protocol = known(kind.protocol);
    row.timing = known(kind.timing);
    row.bytes = kind.bytes;
    row.ranks = group.count_of_ranks;
    if (group.nodes >= 0) row.nodes = group.nodes;
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

  double dropped_ = 0;
  std::map<InspectedKind, InspectedGroup> groups_{};
};

}  // namespace

void analyze_nccl_inspector(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  if (!of_nccl_inspector(context.trace)) return;
  OperationGroups operations(context.trace);
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
