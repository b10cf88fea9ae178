#include "import/nsys_join.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <tuple>

#include "base/flat_index.h"
#include "base/parallel.h"
#include "import/session_spool.h"
#include "import/sync_calls.h"
#include "trace/empty_columns.h"
#include "trace/rearrange.h"

namespace llmprof::nsys {

void Joiner::add(const Part& part) {
  const Row notes = static_cast<Row>(trace_.annotations.size());
  const Row syncs = static_cast<Row>(trace_.sync_events.size());
  builder_.append(part.rows);
  for (const Part::Domain& domain : part.domains)
    domains_.push_back({domain.process, domain.domain, builder_.appended(domain.name)});
  for (const Part::InDomain& use : part.in_domains)
    in_domains_.push_back({use.annotation + notes, use.process, use.domain});
  for (const Row row : part.open_ranges) open_ranges_.push_back(row + notes);
  for (const Part::EventWait& wait : part.event_waits)
    event_waits_.push_back({wait.sync + syncs, wait.process, wait.event, wait.event_sync});
  event_records_.insert(event_records_.end(), part.event_records.begin(), part.event_records.end());
  memory_correlations_.insert(memory_correlations_.end(), part.memory_correlations.begin(),
                              part.memory_correlations.end());
  for (const auto& [call, count] : part.failures) failures_[call] += count;
  for (const auto& [type, count] : part.other_ranges) other_ranges_[type] += count;
  last_ns_ = std::max(last_ns_, part.last_ns);
}

void Joiner::finish() {
  give_back_empty_columns(trace_);
  sort_gpu_ops();
  end_open_ranges();
  name_domains();
  find_calls();
  link_events();
  join_samples();
  number_processes();
  name_sync_calls(trace_);
  for (const auto& [call, count] : failures_)
    trace_.diagnostics.add(DiagnosticId::kRecorderNote, fmt::format("{} returned error {}", call.first, call.second),
                           count);
  uint64_t others = 0;
  std::string types;
  for (const auto& [type, count] : other_ranges_) {
    others += count;
    types += fmt::format("{}{}", types.empty() ? "" : ", ", type);
  }
  if (others != 0)
    trace_.diagnostics.add(DiagnosticId::kUnknownCategory, "NVTX_EVENTS with eventType " + types, others);
}

namespace {

// As std::stable_sort. What is joined from tables is a few runs that are in order each: these are merged, which takes
// far fewer comparisons.
template <class Before>
void sort_runs(std::vector<Row>& order, const Before& before) {
  constexpr size_t kRunsMost = 8;
  std::vector<std::vector<Row>::iterator> runs{order.begin()};
  for (std::vector<Row>::iterator at = order.begin(); runs.size() <= kRunsMost;) {
    at = std::is_sorted_until(at, order.end(), before);
    if (at == order.end()) break;
    runs.push_back(at);
  }
  if (runs.size() > kRunsMost) {
    std::stable_sort(order.begin(), order.end(), before);
    return;
  }
  for (size_t run = 1; run < runs.size(); ++run)
    std::inplace_merge(order.begin(), runs[run], run + 1 < runs.size() ? runs[run + 1] : order.end(), before);
}

}  // namespace

// Kernels, copies and memsets lie in tables of their own: out of order together is no anomaly.
void Joiner::sort_gpu_ops() {
  GpuOps& gpu = trace_.gpu_ops;
  std::vector<Row> order(gpu.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto before = [&](Row a, Row b) {
    return gpu.start_ns[a] != gpu.start_ns[b] ? gpu.start_ns[a] < gpu.start_ns[b] : gpu.dur_ns[a] > gpu.dur_ns[b];
  };
  if (std::is_sorted(order.begin(), order.end(), before)) return;
  sort_runs(order, before);
  std::vector<std::function<void()>> columns;
  const auto add = [&]<class T>(std::vector<T>& column) {
    columns.emplace_back([&] {
      // Most columns of an export are empty or the same in every row.
      if (std::all_of(column.begin(), column.end(), [&](const T& value) { return value == column.front(); })) return;
      rearrange(column, order);
    });
  };
  gpu.for_each_column([&]<class Column>(const FieldInfo&, Column& column) {
    if constexpr (requires { column.for_each_half(add); })
      column.for_each_half(add);
    else
      add(column);
  });
  parallel_for(columns.size(), [&](size_t i) { columns[i](); });
}

void Joiner::end_open_ranges() {
  Annotations& notes = trace_.annotations;
  for (const Row row : open_ranges_) {
    notes.dur_ns[row] = std::max(last_ns_, notes.start_ns[row]) - notes.start_ns[row];
    trace_.diagnostics.add(
        DiagnosticId::kUnfinishedRange,
        trace_.diagnostics.count(DiagnosticId::kUnfinishedRange) < Diagnostics::kKeptPlaces
            ? fmt::format("'{}' was open when the recording ended; it counts until then", trace_.text(notes.name[row]))
            : std::string());
  }
}

void Joiner::name_domains() {
  std::map<std::pair<int64_t, int64_t>, StringId> names;
  for (const Part::Domain& domain : domains_) names.try_emplace({domain.process, domain.domain}, domain.name);
  std::pair<int64_t, int64_t> last{-1, -1};
  StringId name = StringId::kEmpty;
  for (const Part::InDomain& use : in_domains_) {
    if (last != std::make_pair(use.process, use.domain)) {
      last = {use.process, use.domain};
      const auto found = names.find(last);
      name = found != names.end() && found->second != StringId::kEmpty
                 ? found->second
                 : builder_.text(fmt::format("domain {}", use.domain));
    }
    trace_.annotations.domain[use.annotation] = name;
  }
}

// Calls that allocated memory or recorded an event: where and when that was is known by them alone.
void Joiner::find_calls() {
  const ApiCalls& calls = trace_.api_calls;
  constexpr uint32_t kWanted = 0xFFFFFFFEU;  // and not found yet
  FlatMap wanted(memory_correlations_.size() + event_records_.size());
  const auto want = [&](uint64_t correlation) {
    if ((correlation & kCorrelationMask) != 0) wanted.find_or_insert(correlation, kWanted);
  };
  for (const uint64_t correlation : memory_correlations_) want(correlation);
  for (const Part::EventRecord& record : event_records_) want(record.correlation);
  if (wanted.size() == 0) return;
  // The first call of an id: the runtime's, in which the driver's lies.
  for (Row call = 0; call < calls.size(); ++call)
    if (calls.correlation[call] != 0 && wanted.find(calls.correlation[call]) == kWanted)
      wanted.find_or_insert(calls.correlation[call], call) = call;
  const auto call_of = [&](uint64_t correlation) -> Row {
    const uint32_t row = (correlation & kCorrelationMask) == 0 ? uint32_t{kNoRow} : wanted.find(correlation);
    return row < calls.size() ? Row{row} : Row{kNoRow};
  };
  for (Row row = 0; row < memory_correlations_.size(); ++row)
    if (const Row call = call_of(memory_correlations_[row]); call != kNoRow)
      trace_.memory_events.thread[row] = calls.thread[call];
  for (const Part::EventRecord& record : event_records_) {
    const Row call = call_of(record.correlation);
    if (call == kNoRow) continue;  // it is known by its call alone
    builder_.add<SyncEvents>({.start_ns = calls.start_ns[call],
                              .dur_ns = 0,
                              .device = record.device,
                              .name = builder_.text("Event Record"),
                              .event_stream = record.stream == kNoId ? -1 : record.stream,
                              .event_call = record.correlation});
  }
}

// The call that recorded the event which another waits for: by the number of this recording of it where the export has
// one, otherwise the last before the wait, as calls are counted.
void Joiner::link_events() {
  using Key = std::tuple<int64_t, int64_t, uint64_t>;  // process, event, call
  const auto sorted = [&](bool by_sync) {
    std::vector<std::pair<Key, const Part::EventRecord*>> found;
    for (const Part::EventRecord& record : event_records_)
      if (const int64_t event = by_sync ? record.event_sync : record.event; event != kNoId)
        found.push_back({{record.process, event, record.correlation}, &record});
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return found;
  };
  const std::vector<std::pair<Key, const Part::EventRecord*>> by_sync = sorted(true), by_event = sorted(false);
  const auto last_before = [](const std::vector<std::pair<Key, const Part::EventRecord*>>& records, int64_t process,
                              int64_t event, uint64_t correlation) -> const Part::EventRecord* {
    const auto behind = std::lower_bound(records.begin(), records.end(), Key{process, event, correlation},
                                         [](const auto& record, const Key& key) { return record.first < key; });
    if (behind == records.begin()) return nullptr;
    const auto found = std::prev(behind);
    const bool same = std::get<0>(found->first) == process && std::get<1>(found->first) == event;
    return same ? found->second : nullptr;
  };
  SyncEvents& syncs = trace_.sync_events;
  for (const Part::EventWait& wait : event_waits_) {
    const uint64_t call = syncs.correlation[wait.sync];
    const Part::EventRecord* record =
        wait.event_sync != kNoId ? last_before(by_sync, wait.process, wait.event_sync, call) : nullptr;
    if (record == nullptr && wait.event != kNoId) record = last_before(by_event, wait.process, wait.event, call);
    if (record == nullptr) continue;
    syncs.event_stream[wait.sync] = record->stream == kNoId ? -1 : record->stream;
    syncs.event_call[wait.sync] = record->correlation;
  }
}

// Metrics of one time and GPU become one sample. Its time is taken for the end of its interval, which began with the
// sample before, unless sampling paused in between.
void Joiner::join_samples() {
  GpuSamples& samples = trace_.gpu_samples;
  if (samples.empty()) return;
  std::vector<Row> order(samples.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto before = [&](Row a, Row b) {
    return std::make_pair(samples.device[a], samples.start_ns[a]) <
           std::make_pair(samples.device[b], samples.start_ns[b]);
  };
  if (!std::is_sorted(order.begin(), order.end(), before)) std::stable_sort(order.begin(), order.end(), before);
  GpuSamples joined;
  for (const Row row : order) {
    if (joined.empty() || joined.device.back() != samples.device[row] ||
        joined.start_ns.back() != samples.start_ns[row]) {
      joined.append(samples.row(row));
      continue;
    }
    std::vector<std::vector<float>*> to;
    joined.for_each_column([&]<class T>(const FieldInfo&, std::vector<T>& column) {
      if constexpr (std::is_same_v<T, float>) to.push_back(&column);
    });
    size_t at = 0;
    samples.for_each_column([&]<class T>(const FieldInfo&, std::vector<T>& column) {
      if constexpr (std::is_same_v<T, float>) {
        if (!std::isnan(column[row])) to[at]->back() = column[row];
        ++at;
      }
    });
  }
  constexpr int64_t kPauseIntervals = 4;
  for (size_t first = 0; first < joined.size();) {
    size_t end = first + 1;
    while (end < joined.size() && joined.device[end] == joined.device[first]) ++end;
    std::vector<int64_t> apart;
    for (size_t i = first + 1; i < end; ++i) apart.push_back(joined.start_ns[i] - joined.start_ns[i - 1]);
    int64_t usual_ns = 0;
    if (!apart.empty()) {
      std::nth_element(apart.begin(), apart.begin() + static_cast<std::ptrdiff_t>(apart.size() / 2), apart.end());
      usual_ns = apart[apart.size() / 2];
    }
    for (size_t i = end; i-- > first;) {
      const int64_t since_ns = i > first ? joined.start_ns[i] - joined.start_ns[i - 1] : INT64_MAX;
      joined.dur_ns[i] = since_ns / kPauseIntervals > usual_ns ? usual_ns : since_ns;
      joined.start_ns[i] -= joined.dur_ns[i];
      joined.device[i] = gpus_.of_gpu(joined.device[i]);
    }
    first = end;
  }
  samples = std::move(joined);
}

// The first process keeps its ids.
uint64_t Joiner::qualified_by(uint64_t with_process, uint64_t id) const {
  const int64_t process = static_cast<int64_t>(with_process >> kCorrelationBits);
  const auto at = std::lower_bound(processes_.begin(), processes_.end(), process);
  return session_importer::qualified(id, static_cast<uint64_t>(at - processes_.begin()));
}

void Joiner::number_processes() {
  std::set<int64_t> found;
  const auto find_in = [&](const auto& correlations) {
    uint64_t last = ~uint64_t{0};
    for (const uint64_t correlation : correlations) {
      if (correlation >> kCorrelationBits == last) continue;
      last = correlation >> kCorrelationBits;
      found.insert(static_cast<int64_t>(last));
    }
  };
  GpuOps& gpu = trace_.gpu_ops;
  ApiCalls& calls = trace_.api_calls;
  GraphLaunches& launches = trace_.graph_launches;
  SyncEvents& syncs = trace_.sync_events;
  find_in(calls.correlation);
  find_in(gpu.correlation);
  find_in(launches.correlation);
  // Rows that do not say whose they are belong to the only process that there is.
  if (found.size() == 2) found.erase(0);
  processes_.assign(found.begin(), found.end());
  const auto numbered = [&](uint64_t correlation) { return qualified_by(correlation, correlation & kCorrelationMask); };
  for (size_t i = 0; i < gpu.size(); ++i) {
    if (gpu.graph_node[i] != 0) gpu.graph_node[i] = qualified_by(gpu.correlation[i], gpu.graph_node[i]);
    gpu.correlation[i] = numbered(gpu.correlation[i]);
  }
  for (size_t i = 0; i < launches.size(); ++i) {
    launches.graph[i] = qualified_by(launches.correlation[i], launches.graph[i]);
    launches.correlation[i] = numbered(launches.correlation[i]);
  }
  for (size_t i = 0; i < calls.size(); ++i) calls.correlation[i] = numbered(calls.correlation[i]);
  for (uint64_t& correlation : syncs.correlation) correlation = numbered(correlation);
  for (uint64_t& correlation : syncs.event_call) correlation = numbered(correlation);
  for (int64_t& context : trace_.streams.context)
    context = static_cast<int64_t>(static_cast<uint64_t>(context) & kCorrelationMask) - 1;
  trace_.metadata["processes"] = fmt::format("{}", processes_.size());
}

}  // namespace llmprof::nsys
