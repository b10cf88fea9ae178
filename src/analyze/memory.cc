// Device memory over time from the recorded allocations and frees: peaks, who allocates, a thinned-out series.
#include <algorithm>

#include "analyze/analysis.h"
#include "analyze/processor.h"
#include "analyze/without_program.h"
#include "derive/recorded_spans.h"

namespace llmprof {
namespace {

constexpr size_t kSeriesBuckets = 120;  // up to 4 points each: first, last, lowest and highest

// Walks operators along with times that never decrease; tells the innermost operator on a thread.
class OpCursor {
 public:
  explicit OpCursor(const Trace& trace) : trace_(trace), last_(trace.threads.size(), kNoRow) {}
  Row op_at(int64_t time_ns, ThreadId thread) {
    const Ops& ops = trace_.ops;
    for (; next_ < ops.size() && ops.start_ns[next_] <= time_ns; ++next_)
      if (ops.thread[next_] < last_.size()) last_[ops.thread[next_]] = next_;
    if (thread >= last_.size()) return kNoRow;
    Row& op = last_[thread];
    // Enclosing operators that have ended are left for good: time only moves forward.
    while (op != kNoRow && ops.start_ns[op] + ops.dur_ns[op] < time_ns) op = trace_.op_links.parent[op];
    return op;
  }

 private:
  const Trace& trace_;
  std::vector<Row> last_;
  Row next_ = 0;
};

struct Bucket {
  Row first = kNoRow, last = kNoRow, low = kNoRow, high = kNoRow;
};

OptDouble known(int64_t bytes) { return bytes >= 0 ? OptDouble(static_cast<double>(bytes)) : std::nullopt; }

// At most four points per bucket, in time order.
void add_series(const Context& context, const std::vector<Bucket>& buckets, int64_t origin_ns, MemoryReport& memory) {
  const Trace& trace = context.trace;
  const MemoryEvents& events = trace.memory_events;
  HostCursor host(context.groups);
  for (const Bucket& bucket : buckets) {
    if (bucket.first == kNoRow) continue;
    Row points[] = {bucket.first, bucket.low, bucket.high, bucket.last};
    std::sort(std::begin(points), std::end(points));
    for (size_t i = 0; i < 4; ++i) {
      if (i > 0 && points[i] == points[i - 1]) continue;
      const Row e = points[i];
      memory.series.push_back({static_cast<double>(events.time_ns[e] - origin_ns) / 1e6,
                               known(events.allocated_bytes[e]), known(events.reserved_bytes[e]),
                               std::string(stage_name(trace, context.groups, host.stage_at(events.time_ns[e])))});
    }
  }
}

}  // namespace

void analyze_memory(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Trace& trace = context.trace;
  const MemoryEvents& events = trace.memory_events;
  std::vector<Row> rows;
  for (Row e = 0; e < events.size(); ++e)
    if (events.device[e] >= 0 && (rows.empty() || events.device[e] == events.device[rows.front()])) rows.push_back(e);
  if (rows.empty()) {
    cannot_tell.push_back(
        {"How much memory was used, when, and by what?",
         on_cpu(context) ? "recordings of a CPU hold no allocations" : "the recording holds no device memory events",
         on_cpu(context)            ? "/usr/bin/time -v says how much the process had at most"
         : is_live_recording(trace) ? "record with `llmprof run --mode deep` for the driver's "
                                      "allocations; tensors are known to torch.profiler "
                                      "(profile_memory=True)"
                                    : "record with profile_memory=True"});
    return;
  }
  const int64_t origin_ns = trace.windows.empty() ? events.time_ns[rows.front()] : trace.windows.front().start_ns;
  const auto time_ms = [&](Row e) { return static_cast<double>(events.time_ns[e] - origin_ns) / 1e6; };
  MemoryReport memory;
  memory.events = static_cast<int64_t>(rows.size());
  for (Row d = 0; d < trace.devices.size(); ++d)
    if (trace.devices.device[d] == events.device[rows.front()])
      memory.capacity_bytes = known(trace.devices.memory_bytes[d]);

  OpCursor cursor(trace);
  std::vector<AllocationRecord> by_name;  // by index of the name below
  std::vector<uint32_t> index_of(trace.strings.size(), 0xFFFFFFFFU);
  std::vector<StringId> names;
  std::vector<Bucket> buckets(kSeriesBuckets);
  const int64_t start_ns = events.time_ns[rows.front()];
  const int64_t span_ns = std::max<int64_t>(1, events.time_ns[rows.back()] - start_ns + 1);
  Row peak = kNoRow;
  int64_t reserved_peak = -1;
  for (const Row e : rows) {
    const int64_t level = events.allocated_bytes[e];
    if (level >= 0 && (peak == kNoRow || level > events.allocated_bytes[peak])) peak = e;
    reserved_peak = std::max(reserved_peak, events.reserved_bytes[e]);
    const double part = static_cast<double>(events.time_ns[e] - start_ns) / static_cast<double>(span_ns);
    Bucket& bucket = buckets[std::min(kSeriesBuckets - 1, static_cast<size_t>(part * kSeriesBuckets))];
    if (bucket.first == kNoRow) bucket.first = bucket.low = bucket.high = e;
    if (level < events.allocated_bytes[bucket.low]) bucket.low = e;
    if (level > events.allocated_bytes[bucket.high]) bucket.high = e;
    bucket.last = e;
    const OpId op = cursor.op_at(events.time_ns[e], events.thread[e]);
    if (events.bytes[e] <= 0) {
      ++memory.frees;
      continue;
    }
    ++memory.allocations;
    const StringId name = op == kNoRow ? events.place[e] : trace.ops.name[op];
    uint32_t& slot = index_of[index(name)];
    if (slot == 0xFFFFFFFFU) {
      slot = static_cast<uint32_t>(by_name.size());
      by_name.emplace_back();
      names.push_back(name);
    }
    ++by_name[slot].allocations;
    by_name[slot].bytes += static_cast<double>(events.bytes[e]);
  }
  if (peak != kNoRow) {
    memory.peak_allocated_bytes = known(events.allocated_bytes[peak]);
    memory.peak_time_ms = time_ms(peak);
    HostCursor at(context.groups);
    if (!of_allocator(trace) || !trace.windows.empty())  // a snapshot alone has no stages
      memory.peak_stage = std::string(stage_name(trace, context.groups, at.stage_at(events.time_ns[peak])));
  }
  memory.peak_reserved_bytes = known(reserved_peak);
  for (size_t i = 0; i < by_name.size(); ++i)
    by_name[i].name = names[i] == StringId::kEmpty ? "[none]" : std::string(trace.text(names[i]));
  std::stable_sort(by_name.begin(), by_name.end(),
                   [](const AllocationRecord& a, const AllocationRecord& b) { return a.bytes > b.bytes; });
  memory.operators = std::move(by_name);
  add_series(context, buckets, origin_ns, memory);
  report.memory = std::move(memory);
}

}  // namespace llmprof
