#include "analyze/memory_ranges.h"

#include <algorithm>
#include <map>
#include <string>

namespace llmprof {
namespace {

constexpr size_t kRangesNamed = 16;

// Moments of the file are whole microseconds, and events of one are spread over its nanoseconds.
constexpr int64_t kMomentNs = 999;
int64_t last_moment(const MemoryRanges& ranges, Row row) {
  return ranges.dur_ns[row] < 0 ? INT64_MAX : ranges.start_ns[row] + ranges.dur_ns[row] + kMomentNs;
}

// The most of consecutive levels, by maxima of blocks.
class Highest {
 public:
  explicit Highest(const std::vector<int64_t>& levels) : levels_(levels) {
    for (size_t at = 0; at < levels.size(); at += kBlock)
      blocks_.push_back(*std::max_element(from(at), from(std::min(at + kBlock, levels.size()))));
  }
  int64_t of(size_t first, size_t end, int64_t least) const {
    int64_t most = least;
    while (first < end) {
      if (first % kBlock == 0 && first + kBlock <= end) {
        most = std::max(most, blocks_[first / kBlock]);
        first += kBlock;
      } else {
        most = std::max(most, levels_[first++]);
      }
    }
    return most;
  }

 private:
  static constexpr size_t kBlock = 1024;
  std::vector<int64_t>::const_iterator from(size_t at) const {
    return levels_.begin() + static_cast<std::ptrdiff_t>(at);
  }
  const std::vector<int64_t>& levels_;
  std::vector<int64_t> blocks_{};
};

}  // namespace

OptText ranges_around(const Trace& trace, int32_t device, int64_t time_ns) {
  const MemoryRanges& ranges = trace.memory_ranges;
  std::vector<Row> around;
  for (Row row = 0; row < ranges.size(); ++row)
    if (ranges.device[row] == device && ranges.start_ns[row] <= time_ns && time_ns <= last_moment(ranges, row))
      around.push_back(row);
  // Of those that began at one moment the longer one is outside.
  std::stable_sort(around.begin(), around.end(), [&](Row a, Row b) {
    if (ranges.start_ns[a] != ranges.start_ns[b]) return ranges.start_ns[a] < ranges.start_ns[b];
    return last_moment(ranges, a) > last_moment(ranges, b);
  });
  std::string out;
  for (size_t i = 0; i < std::min(kRangesNamed, around.size()); ++i)
    out.append(i > 0 ? " > " : "").append(trace.text(ranges.name[around[i]]));
  return out.empty() ? OptText() : OptText(out);
}

void add_memory_ranges(const Trace& trace, const MemoryLevels& levels, Report& report) {
  const MemoryRanges& ranges = trace.memory_ranges;
  const Highest highest(levels.in_use);
  std::map<std::string_view, MemoryRangeRecord> by_name;
  for (Row row = 0; row < ranges.size(); ++row) {
    if (ranges.device[row] != levels.device) continue;
    MemoryRangeRecord& of = by_name[trace.text(ranges.name[row])];
    ++of.ranges;
    if (ranges.dur_ns[row] < 0)
      ++of.open;
    else
      of.total_ms = of.total_ms.value_or(0) + static_cast<double>(ranges.dur_ns[row]) / 1e6;
    if (levels.before < 0) continue;
    const auto begin = levels.time_ns.begin();
    const auto first = static_cast<size_t>(std::lower_bound(begin, levels.time_ns.end(), ranges.start_ns[row]) - begin);
    const auto end =
        static_cast<size_t>(std::upper_bound(begin, levels.time_ns.end(), last_moment(ranges, row)) - begin);
    const auto level_behind = [&](size_t events) { return events == 0 ? levels.before : levels.in_use[events - 1]; };
    const auto most = static_cast<double>(highest.of(first, end, level_behind(first)));
    of.peak_bytes = std::max(of.peak_bytes.value_or(0), most);
    of.change_bytes = of.change_bytes.value_or(0) + static_cast<double>(level_behind(end) - level_behind(first));
  }
  const size_t before = report.memory_ranges.size();
  for (auto& [name, row] : by_name) {
    row.device = levels.device;
    row.name = std::string(name);
    report.memory_ranges.push_back(std::move(row));
  }
  std::stable_sort(report.memory_ranges.begin() + static_cast<std::ptrdiff_t>(before), report.memory_ranges.end(),
                   [](const MemoryRangeRecord& a, const MemoryRangeRecord& b) {
                     return a.peak_bytes.value_or(-1) > b.peak_bytes.value_or(-1);
                   });
}

}  // namespace llmprof
