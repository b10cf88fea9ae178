// PyTorch's caching allocator by its snapshots and statistics: what it holds, what tensors use, which Python code
// allocated that, at the snapshot and at the peak of the history. Rules: docs/formats/memory-snapshots.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/memory_ranges.h"
#include "analyze/without_program.h"

namespace llmprof {
namespace {

constexpr size_t kLargestKept = 200;  // blocks of a moment
constexpr size_t kPlacesKept = 1000;  // of a moment; the rest is one row
constexpr std::string_view kBeforeHistory = "[before the history]";
constexpr std::string_view kNoHistory = "[no history]";
constexpr std::string_view kNoPython = "[no Python code]";
constexpr std::string_view kOtherPlaces = "[other code]";

// A block in use.
struct UsedBlock {
  int64_t bytes = 0;
  int64_t time_ns = -1;  // of its allocation; -1: before the history
  StringId place = StringId::kEmpty;
};
using UsedBlocks = std::unordered_map<uint64_t, UsedBlock>;  // by address

struct DeviceBlocks {
  std::set<uint64_t> segments{};
  double reserved = 0, active = 0, allocated = 0, requested = 0, split = 0;
  double largest_free = 0;
  bool requested_known = true;
  UsedBlocks used{};
  std::map<uint64_t, std::pair<double, double>> by_segment{};  // in use, free
};

// The history of one device.
struct DeviceHistory {
  std::vector<Row> rows{};    // of memory_events
  int64_t before_bytes = -1;  // in use before the first; -1: not known
  std::ptrdiff_t peak = -1;   // index into rows of the event after which most is in use; -1: before the first
  int64_t peak_bytes = -1;
};

double as_number(int64_t value) { return static_cast<double>(value); }

std::map<int32_t, DeviceBlocks> blocks_of(const Trace& trace) {
  std::map<int32_t, DeviceBlocks> out;
  const MemoryBlocks& blocks = trace.memory_blocks;
  for (Row row = 0; row < blocks.size(); ++row) {
    DeviceBlocks& device = out[blocks.device[row]];
    const double bytes = as_number(blocks.bytes[row]);
    const std::string_view state = trace.text(blocks.state[row]);
    device.segments.insert(blocks.segment[row]);
    auto& [in_use, free] = device.by_segment[blocks.segment[row]];
    device.reserved += bytes;
    if (state == "inactive") {
      device.largest_free = std::max(device.largest_free, bytes);
      free += bytes;
      continue;
    }
    device.active += bytes;
    in_use += bytes;
    if (state != "active_allocated") continue;
    device.allocated += bytes;
    const int64_t requested = blocks.requested_bytes[row];
    device.requested_known = device.requested_known && requested >= 0;
    if (requested >= 0) device.requested += as_number(requested);
    device.used.try_emplace(blocks.address[row],
                            UsedBlock{requested >= 0 ? requested : blocks.bytes[row], -1, blocks.place[row]});
  }
  for (auto& [ordinal, device] : out)
    for (const auto& [address, parts] : device.by_segment)
      if (parts.first > 0) device.split += parts.second;
  return out;
}

void apply(const MemoryEvents& events, Row row, UsedBlocks& used) {
  if (events.bytes[row] > 0)
    used[events.address[row]] = {events.bytes[row], events.time_ns[row], events.place[row]};
  else
    used.erase(events.address[row]);
}

std::map<int32_t, DeviceHistory> histories_of(const Trace& trace) {
  std::map<int32_t, DeviceHistory> out;
  const MemoryEvents& events = trace.memory_events;
  for (Row row = 0; row < events.size(); ++row)
    if (events.device[row] >= 0) out[events.device[row]].rows.push_back(row);
  for (auto& [device, history] : out) {
    const Row first = history.rows.front();
    if (events.allocated_bytes[first] < 0) continue;
    history.before_bytes = history.peak_bytes = events.allocated_bytes[first] - events.bytes[first];
    for (size_t i = 0; i < history.rows.size(); ++i)
      if (events.allocated_bytes[history.rows[i]] > history.peak_bytes) {
        history.peak_bytes = events.allocated_bytes[history.rows[i]];
        history.peak = static_cast<std::ptrdiff_t>(i);
      }
  }
  return out;
}

int64_t unmatched_frees(const MemoryEvents& events, const DeviceHistory& history) {
  std::set<uint64_t> in_use;
  int64_t out = 0;
  for (const Row row : history.rows) {
    if (events.bytes[row] > 0)
      in_use.insert(events.address[row]);
    else
      out += in_use.erase(events.address[row]) == 0;
  }
  return out;
}

// What the snapshot has in use, with what the history knows of its blocks.
std::vector<UsedBlock> used_at_snapshot(const MemoryEvents& events, const UsedBlocks& blocks,
                                        const DeviceHistory* history) {
  UsedBlocks known;
  if (history != nullptr)
    for (const Row row : history->rows) apply(events, row, known);
  std::vector<UsedBlock> out;
  for (const auto& [address, block] : blocks) {
    UsedBlock& row = out.emplace_back(block);
    const auto found = known.find(address);
    if (found == known.end()) continue;
    row.time_ns = found->second.time_ns;
    if (row.place == StringId::kEmpty) row.place = found->second.place;
  }
  return out;
}

// What was in use at the peak: what the history allocated and had not freed, what is there at the snapshot and older
// than the history, and what the history frees later without having allocated it.
std::vector<UsedBlock> used_at_peak(const MemoryEvents& events, const UsedBlocks& blocks,
                                    const DeviceHistory& history) {
  UsedBlocks used;
  std::set<uint64_t> touched;  // by the history
  for (std::ptrdiff_t i = 0; i <= history.peak; ++i) {
    const Row row = history.rows[static_cast<size_t>(i)];
    apply(events, row, used);
    touched.insert(events.address[row]);
  }
  std::vector<UsedBlock> older;
  for (size_t i = static_cast<size_t>(history.peak + 1); i < history.rows.size(); ++i) {
    const Row row = history.rows[i];
    if (touched.insert(events.address[row]).second && events.bytes[row] < 0)
      older.push_back({-events.bytes[row], -1, StringId::kEmpty});
  }
  for (const auto& [address, block] : blocks)
    if (!touched.contains(address)) older.push_back(block);
  for (const auto& [address, block] : used) older.push_back(block);
  return older;
}

class SnapshotAnswers {
 public:
  SnapshotAnswers(const Trace& trace, Report& report, int32_t device, bool history)
      : trace_(trace), report_(report), device_(device), history_(history) {}

  void add_moment(const char* moment, std::vector<UsedBlock> blocks) {
    std::sort(blocks.begin(), blocks.end(), [&](const UsedBlock& a, const UsedBlock& b) {
      if (a.bytes != b.bytes) return a.bytes > b.bytes;
      if (a.time_ns != b.time_ns) return a.time_ns < b.time_ns;
      return trace_.text(a.place) < trace_.text(b.place);
    });
    const int64_t start_ns = trace_.memory_events.empty() ? 0 : trace_.memory_events.time_ns.front();
    for (size_t i = 0; i < std::min(kLargestKept, blocks.size()); ++i)
      report_.largest_blocks.push_back(
          {device_, moment, as_number(blocks[i].bytes),
           blocks[i].time_ns < 0 ? OptDouble() : OptDouble(as_number(blocks[i].time_ns - start_ns) / 1e6),
           place_of(blocks[i])});
    add_places(moment, blocks);
  }

  std::string place_of(const UsedBlock& block) const {
    if (block.place != StringId::kEmpty) return std::string(trace_.text(block.place));
    return std::string(block.time_ns >= 0 ? kNoPython : history_ ? kBeforeHistory : kNoHistory);
  }

 private:
  void add_places(const char* moment, const std::vector<UsedBlock>& blocks) {
    std::map<std::string, std::pair<int64_t, double>> by_place;
    double all = 0;
    for (const UsedBlock& block : blocks) {
      auto& [count, bytes] = by_place[place_of(block)];
      ++count;
      bytes += as_number(block.bytes);
      all += as_number(block.bytes);
    }
    std::vector<MemoryPlaceRecord> rows;
    for (const auto& [place, sum] : by_place)
      rows.push_back(
          {device_, moment, place, sum.first, sum.second, all > 0 ? OptDouble(sum.second / all) : OptDouble()});
    std::stable_sort(rows.begin(), rows.end(),
                     [](const MemoryPlaceRecord& a, const MemoryPlaceRecord& b) { return a.bytes > b.bytes; });
    if (rows.size() > kPlacesKept) {
      MemoryPlaceRecord& rest = rows[kPlacesKept];
      rest.place = kOtherPlaces;
      for (size_t i = kPlacesKept + 1; i < rows.size(); ++i) {
        rest.blocks += rows[i].blocks;
        rest.bytes += rows[i].bytes;
      }
      rest.frac = all > 0 ? OptDouble(rest.bytes / all) : OptDouble();
      rows.resize(kPlacesKept + 1);
    }
    report_.memory_places.insert(report_.memory_places.end(), rows.begin(), rows.end());
  }

  const Trace& trace_;
  Report& report_;
  int32_t device_;
  bool history_;
};

// ---- figures that files state -------------------------------------------------------------------------------------

using FiguresByName = std::map<std::string_view, double>;

OptDouble figure(const FiguresByName& figures, std::string_view name) {
  const auto found = figures.find(name);
  return found == figures.end() ? OptDouble() : OptDouble(found->second);
}
OptInt figure_count(const FiguresByName& figures, std::string_view name) {
  const OptDouble value = figure(figures, name);
  return value && std::abs(*value) < 9e15 ? OptInt(std::llround(*value)) : OptInt();
}

void take_statistics(const FiguresByName& figures, AllocatorRecord& record) {
  const auto take = [&](OptDouble& into, std::string_view name) {
    if (const OptDouble stated = figure(figures, name); stated && !into) into = stated;
  };
  take(record.reserved_bytes, "reserved_bytes.all.current");
  take(record.active_bytes, "active_bytes.all.current");
  take(record.allocated_bytes, "allocated_bytes.all.current");
  take(record.requested_bytes, "requested_bytes.all.current");
  take(record.inactive_split_bytes, "inactive_split_bytes.all.current");
  take(record.peak_reserved_bytes, "reserved_bytes.all.peak");
  take(record.peak_active_bytes, "active_bytes.all.peak");
  take(record.peak_allocated_bytes, "allocated_bytes.all.peak");
  take(record.peak_requested_bytes, "requested_bytes.all.peak");
  if (!record.segments) record.segments = figure_count(figures, "segment.all.current");
  if (!record.live_blocks) record.live_blocks = figure_count(figures, "allocation.all.current");
  if (const OptInt ooms = figure_count(figures, "num_ooms")) record.out_of_memory = ooms;
  record.retries = figure_count(figures, "num_alloc_retries");
}

void fill_differences(AllocatorRecord& record) {
  if (record.reserved_bytes && record.allocated_bytes)
    record.fragmentation_bytes = *record.reserved_bytes - *record.allocated_bytes;
  if (record.allocated_bytes && record.requested_bytes)
    record.rounding_bytes = *record.allocated_bytes - *record.requested_bytes;
}

void check_figures(const FiguresByName& figures, AllocatorRecord& record) {
  const auto check = [&](std::string_view name, const OptDouble& given) {
    const OptDouble stated = figure(figures, name);
    if (!stated || !given) return;
    ++record.checked;
    record.disagreeing += *stated != *given;
  };
  check("snapshot.total_size", record.reserved_bytes);
  check("snapshot.allocated_size", record.allocated_bytes);
  check("snapshot.active_size", record.active_bytes);
}

AllocatorRecord blocks_record(int32_t ordinal, const DeviceBlocks& device) {
  AllocatorRecord record;
  record.device = ordinal;
  record.segments = static_cast<int64_t>(device.segments.size());
  record.live_blocks = static_cast<int64_t>(device.used.size());
  record.reserved_bytes = device.reserved;
  record.active_bytes = device.active;
  record.allocated_bytes = device.allocated;
  if (device.requested_known) record.requested_bytes = device.requested;
  record.largest_free_bytes = device.largest_free;
  record.inactive_split_bytes = device.split;
  return record;
}

void fill_history(const Trace& trace, const DeviceHistory& history, AllocatorRecord& record) {
  const MemoryEvents& events = trace.memory_events;
  const int64_t first_ns = events.time_ns[history.rows.front()];
  record.events = static_cast<int64_t>(history.rows.size());
  record.history_ms = as_number(events.time_ns[history.rows.back()] - first_ns) / 1e6;
  record.unmatched_frees = unmatched_frees(events, history);
  if (history.before_bytes < 0) return;
  record.before_history_bytes = as_number(history.before_bytes);
  record.history_peak_bytes = as_number(history.peak_bytes);
  const Row peak = history.peak < 0 ? history.rows.front() : history.rows[static_cast<size_t>(history.peak)];
  record.history_peak_ms = as_number(events.time_ns[peak] - first_ns) / 1e6;
}

void fill_ranges(const Trace& trace, int32_t device, const DeviceHistory& history, AllocatorRecord& record,
                 Report& report) {
  const MemoryEvents& events = trace.memory_events;
  MemoryLevels levels;
  levels.device = device;
  levels.before = history.before_bytes;
  for (const Row row : history.rows) {
    levels.time_ns.push_back(events.time_ns[row]);
    levels.in_use.push_back(events.allocated_bytes[row]);
  }
  add_memory_ranges(trace, levels, report);
  if (history.peak >= 0)
    record.history_peak_ranges = ranges_around(trace, device, levels.time_ns[static_cast<size_t>(history.peak)]);
}

// In use and held at a moment: after the last event before it.
void fill_levels(const MemoryEvents& events, const DeviceHistory& history, int64_t time_ns,
                 MemoryFailureRecord& record) {
  const auto behind = std::upper_bound(history.rows.begin(), history.rows.end(), time_ns,
                                       [&](int64_t time, Row row) { return time < events.time_ns[row]; });
  if (behind == history.rows.begin()) {
    if (history.before_bytes >= 0) record.in_use_bytes = as_number(history.before_bytes);
    return;
  }
  const Row row = *(behind - 1);
  if (events.allocated_bytes[row] >= 0) record.in_use_bytes = as_number(events.allocated_bytes[row]);
  if (events.reserved_bytes[row] >= 0) record.reserved_bytes = as_number(events.reserved_bytes[row]);
}

void add_failures(const Trace& trace, const std::map<int32_t, DeviceHistory>& histories, Report& report) {
  const MemoryFailures& failures = trace.memory_failures;
  for (Row row = 0; row < failures.size(); ++row) {
    MemoryFailureRecord record;
    record.device = failures.device[row];
    const int64_t start_ns = trace.memory_events.empty() ? 0 : trace.memory_events.time_ns.front();
    record.time_ms = as_number(failures.time_ns[row] - start_ns) / 1e6;
    if (failures.requested_bytes[row] >= 0) record.requested_bytes = as_number(failures.requested_bytes[row]);
    if (failures.free_bytes[row] >= 0) record.free_bytes = as_number(failures.free_bytes[row]);
    const StringId place = failures.place[row];
    record.place = place == StringId::kEmpty ? kNoPython : trace.text(place);
    if (const auto found = histories.find(failures.device[row]); found != histories.end())
      fill_levels(trace.memory_events, found->second, failures.time_ns[row], record);
    report.out_of_memory.push_back(std::move(record));
  }
}

void say_what_snapshots_lack(const Report& report, std::vector<CannotTell>& cannot_tell) {
  const auto any = [&](auto&& is) { return std::any_of(report.allocators.begin(), report.allocators.end(), is); };
  if (any([](const AllocatorRecord& row) { return row.reserved_bytes && !row.events; }))
    cannot_tell.push_back({"What was in use at the peak, and which code allocated it?",
                           "the snapshot has no history of allocations",
                           "call torch.cuda.memory._record_memory_history() when the program begins"});
  if (any([](const AllocatorRecord& row) { return row.events && !row.history_peak_bytes; }))
    cannot_tell.push_back(
        {"What was in use at the peak of the history?",
         "the history does not lead to the blocks of the snapshot: it ended before, or the file is cut",
         "dump the snapshot while the history is being recorded, and copy the whole file"});
  if (any([](const AllocatorRecord& row) { return row.before_history_bytes && *row.before_history_bytes > 0; }))
    cannot_tell.push_back({"Which code allocated what was in use before the history?",
                           "the history is the end of the program's: recording began later, or its ring was full",
                           "call torch.cuda.memory._record_memory_history(max_entries=1000000) when the program "
                           "begins, before the model is loaded"});
}

}  // namespace

void analyze_memory_snapshot(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Trace& trace = context.trace;
  if (!of_allocator(trace)) return;
  const std::map<int32_t, DeviceBlocks> blocks = blocks_of(trace);
  std::map<int32_t, FiguresByName> figures, statistics;  // -1: of files that do not say which device they are of
  const AllocatorFigures& stated = trace.allocator_figures;
  for (Row row = 0; row < stated.size(); ++row) {
    const std::string_view name = trace.text(stated.name[row]);
    auto& of = name.starts_with("snapshot.") ? figures : statistics;
    of[stated.device[row]].try_emplace(name, stated.value[row]);
  }
  // Else the events are those of a recording that statistics stand beside.
  const bool of_snapshot = !blocks.empty() || !figures.empty();
  const std::map<int32_t, DeviceHistory> histories =
      of_snapshot ? histories_of(trace) : std::map<int32_t, DeviceHistory>();

  std::set<int32_t> devices;
  for (const auto& [device, of] : blocks) devices.insert(device);
  for (const auto& [device, of] : histories) devices.insert(device);
  for (const int32_t device : trace.memory_failures.device) devices.insert(device);
  for (const int32_t device : devices) {
    static const DeviceBlocks kNoBlocks;
    const auto of_device = blocks.find(device);
    const DeviceBlocks& used = of_device == blocks.end() ? kNoBlocks : of_device->second;
    AllocatorRecord record = blocks_record(device, used);
    check_figures(figures[device], record);
    const auto found = histories.find(device);
    const DeviceHistory* history = found == histories.end() ? nullptr : &found->second;
    if (history != nullptr) fill_history(trace, *history, record);
    if (history != nullptr && !trace.memory_ranges.empty()) fill_ranges(trace, device, *history, record, report);
    int64_t failed = 0;
    for (const int32_t of : trace.memory_failures.device) failed += of == device;
    if (history != nullptr || failed > 0) record.out_of_memory = failed;
    // Statistics that do not say which device they are of are of the only one.
    if (const auto own = statistics.find(device); own != statistics.end())
      take_statistics(own->second, record);
    else if (statistics.contains(-1) && devices.size() == 1)
      take_statistics(statistics[-1], record);
    fill_differences(record);
    SnapshotAnswers answers(trace, report, device, history != nullptr);
    if (history != nullptr && history->before_bytes >= 0) {
      std::vector<UsedBlock> at_peak = used_at_peak(trace.memory_events, used.used, *history);
      int64_t sum = 0;
      for (const UsedBlock& block : at_peak) sum += block.bytes;
      ++record.checked;
      record.disagreeing += sum != history->peak_bytes;
      answers.add_moment("peak", std::move(at_peak));
    }
    report.allocators.push_back(record);
    answers.add_moment("snapshot", used_at_snapshot(trace.memory_events, used.used, history));
  }
  for (const auto& [device, of] : statistics) {
    if (device < 0 ? devices.size() == 1 && !statistics.contains(*devices.begin()) : devices.contains(device)) continue;
    AllocatorRecord record;
    if (device >= 0) record.device = device;
    take_statistics(of, record);
    fill_differences(record);
    report.allocators.push_back(record);
  }
  add_failures(trace, histories, report);
  if (of_snapshot)
    say_what_snapshots_lack(report, cannot_tell);
  else if (trace.memory_events.empty())
    cannot_tell.push_back({"Which code allocated the memory?", "statistics of an allocator have sums only",
                           "torch.cuda.memory._record_memory_history() before, and "
                           "torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") after the code in question"});
}

}  // namespace llmprof
