#include "derive/recorded_spans.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>

namespace llmprof {
namespace {

// Sorts and merges what overlaps or touches.
void normalise(std::vector<TimeSpan>& spans) {
  std::sort(spans.begin(), spans.end(), [](const TimeSpan& a, const TimeSpan& b) { return a.start_ns < b.start_ns; });
  std::vector<TimeSpan> merged;
  for (const TimeSpan& span : spans) {
    if (span.end_ns <= span.start_ns) continue;
    if (!merged.empty() && span.start_ns <= merged.back().end_ns) {
      merged.back().end_ns = std::max(merged.back().end_ns, span.end_ns);
    } else {
      merged.push_back(span);
    }
  }
  spans = std::move(merged);
}

// Rows in which nothing was recorded and nothing could be: while the recorder brings a graph to the GPU that the
// program has made, before it records on. Another thread might launch meanwhile.
std::set<Row> uploads_of_graphs(const Trace& trace) {
  constexpr std::string_view kGraph = "graph";  // capture/inject/recording.cc
  const Recorded& table = trace.recorded;
  std::map<int64_t, std::set<ThreadId>> launching;
  std::map<int64_t, Row> before;
  std::set<Row> out;
  for (Row row = 0; row < table.size(); ++row) {
    const auto last = before.find(table.process_id[row]);
    const bool goes_on = last != before.end() && table.level[row] >= RecordingLevel::kDefault &&
                         table.start_ns[row] == table.start_ns[last->second] + table.dur_ns[last->second] &&
                         table.level[last->second] == RecordingLevel::kLight &&
                         trace.text(table.reason[row]) == kGraph && trace.text(table.reason[last->second]) == kGraph;
    if (goes_on) out.insert(last->second);
    before[table.process_id[row]] = row;
  }
  if (out.empty()) return out;
  const size_t count = std::min(trace.gpu_ops.size(), trace.gpu_links.size());
  for (GpuOpId gpu = 0; gpu < count; ++gpu) {
    const ApiCallId api = trace.gpu_links.api[gpu];
    if (api >= trace.api_calls.size()) continue;
    const ThreadId thread = trace.api_calls.thread[api];
    if (thread < trace.threads.size()) launching[trace.threads.process_id[thread]].insert(thread);
  }
  for (auto row = out.begin(); row != out.end();)
    row = launching[table.process_id[*row]].size() > 1 ? out.erase(row) : std::next(row);
  return out;
}

}  // namespace

std::map<int32_t, std::set<int64_t>> processes_of_devices(const Trace& trace) {
  std::map<int32_t, std::set<int64_t>> users;
  const size_t count = std::min(trace.gpu_ops.size(), trace.gpu_links.size());
  ThreadId last_thread;
  StreamId last_stream;
  for (GpuOpId gpu = 0; gpu < count; ++gpu) {
    const ApiCallId api = trace.gpu_links.api[gpu];
    if (api >= trace.api_calls.size()) continue;
    const ThreadId thread = trace.api_calls.thread[api];
    const StreamId stream = trace.gpu_ops.stream[gpu];
    if (thread >= trace.threads.size() || (thread == last_thread && stream == last_stream)) continue;
    last_thread = thread;
    last_stream = stream;
    users[trace.streams.device[stream]].insert(trace.threads.process_id[thread]);
  }
  return users;
}

// Of a file that ends in the middle, what came after the last activity of a device: there may have been more.
void RecordedSpans::add_lost_ends(const Trace& trace) {
  if (trace.diagnostics.count(DiagnosticId::kTruncatedFile) == 0) return;
  std::map<int32_t, int64_t> last_ns;
  for (GpuOpId gpu = 0; gpu < trace.gpu_ops.size(); ++gpu) {
    int64_t& end_ns = last_ns.emplace(trace.streams.device[trace.gpu_ops.stream[gpu]], 0).first->second;
    end_ns = std::max(end_ns, trace.gpu_ops.start_ns[gpu] + trace.gpu_ops.dur_ns[gpu]);
  }
  for (const auto& [device, end_ns] : last_ns)
    devices_[device].unrecorded.push_back({end_ns, std::numeric_limits<int64_t>::max()});
}

RecordedSpans::RecordedSpans(const Trace& trace) {
  const Recorded& table = trace.recorded;
  if (table.empty()) add_lost_ends(trace);
  if (table.empty()) return;
  const std::set<Row> uploads = uploads_of_graphs(trace);
  for (Row row = 0; row < table.size(); ++row) {
    if (uploads.count(row) > 0) continue;
    Spans& process = processes_[table.process_id[row]];
    const int64_t start = table.start_ns[row];
    for (Spans* spans : {&process, &all_}) {
      if (is_switching(trace.text(table.reason[row]))) spans->switching.push_back({start, start + table.dur_ns[row]});
      if (table.level[row] >= RecordingLevel::kDefault) continue;
      spans->unrecorded.push_back({start, start + table.dur_ns[row]});
      spans->cut.push_back({start - table.cut_ns[row], start});
    }
  }
  const auto tidy = [](Spans& spans) {
    normalise(spans.unrecorded);
    normalise(spans.cut);
    normalise(spans.switching);
  };
  tidy(all_);
  for (auto& entry : processes_) tidy(entry.second);
  if (all_.unrecorded.empty()) return;
  for (const std::pair<const int32_t, std::set<int64_t>>& entry : processes_of_devices(trace)) {
    Spans& spans = devices_[entry.first];
    for (const int64_t process : entry.second) {
      const std::map<int64_t, Spans>::const_iterator own = processes_.find(process);
      if (own == processes_.end()) continue;
      spans.unrecorded.insert(spans.unrecorded.end(), own->second.unrecorded.begin(), own->second.unrecorded.end());
      spans.cut.insert(spans.cut.end(), own->second.cut.begin(), own->second.cut.end());
      spans.switching.insert(spans.switching.end(), own->second.switching.begin(), own->second.switching.end());
    }
    tidy(spans);
  }
}

const std::vector<TimeSpan>& RecordedSpans::unrecorded(int32_t device) const {
  const std::map<int32_t, Spans>::const_iterator it = devices_.find(device);
  return it != devices_.end() ? it->second.unrecorded : all_.unrecorded;
}

const std::vector<TimeSpan>& RecordedSpans::switching(int32_t device) const {
  const std::map<int32_t, Spans>::const_iterator it = devices_.find(device);
  return it != devices_.end() ? it->second.switching : all_.switching;
}

const std::vector<TimeSpan>& RecordedSpans::unrecorded_process(int64_t process_id) const {
  const std::map<int64_t, Spans>::const_iterator it = processes_.find(process_id);
  return it != processes_.end() ? it->second.unrecorded : none_.unrecorded;
}

const std::vector<TimeSpan>& RecordedSpans::cut_launches(int32_t device) const {
  const std::map<int32_t, Spans>::const_iterator it = devices_.find(device);
  return it != devices_.end() ? it->second.cut : all_.cut;
}

bool RecordedSpans::touches(const std::vector<TimeSpan>& spans, int64_t start_ns, int64_t end_ns) {
  const std::vector<TimeSpan>::const_iterator it = std::upper_bound(
      spans.begin(), spans.end(), start_ns, [](int64_t time, const TimeSpan& span) { return time < span.end_ns; });
  return it != spans.end() && it->start_ns < end_ns;
}

bool RecordedSpans::holds(const std::vector<TimeSpan>& spans, int64_t start_ns, int64_t end_ns) {
  const std::vector<TimeSpan>::const_iterator it = std::upper_bound(
      spans.begin(), spans.end(), start_ns, [](int64_t time, const TimeSpan& span) { return time < span.end_ns; });
  return it != spans.end() && it->start_ns <= start_ns && end_ns <= it->end_ns;
}

}  // namespace llmprof
