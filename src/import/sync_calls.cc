#include "import/sync_calls.h"

#include <map>
#include <string_view>
#include <unordered_map>

namespace llmprof {
namespace {

constexpr int kNestedMost = 4;  // calls of one correlation id: a driver call in a runtime call, not more

}  // namespace

void name_sync_calls(Trace& trace) {
  const SyncEvents& records = trace.sync_events;
  if (records.empty()) return;
  ApiCalls& calls = trace.api_calls;
  std::unordered_multimap<uint64_t, Row> by_correlation;  // of calls on streams and events only
  for (Row call = 0; call < calls.size(); ++call) {
    const std::string_view name = trace.text(calls.name[call]);
    const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
    if (has("EventRecord") || has("StreamWaitEvent") || has("StreamSynchronize") || has("EventSynchronize"))
      by_correlation.emplace(calls.correlation[call], call);
  }
  std::map<std::pair<int32_t, int64_t>, Row> streams;  // the first context's
  for (Row row = 0; row < trace.streams.size(); ++row)
    streams.emplace(std::make_pair(trace.streams.device[row], trace.streams.stream[row]), row);
  const auto name_call = [&](uint64_t correlation, int32_t device, int64_t stream, uint64_t event) {
    if (correlation == 0) return;
    const auto found = streams.find({device, stream});
    const auto [begin, end] = by_correlation.equal_range(correlation);
    int left = kNestedMost;
    for (auto at = begin; at != end && left > 0; ++at, --left) {
      if (found != streams.end()) calls.stream[at->second] = found->second;
      if (event != 0) calls.event[at->second] = event;
    }
  };
  for (Row row = 0; row < records.size(); ++row) {
    name_call(records.correlation[row], records.device[row], records.stream[row], records.event_call[row]);
    name_call(records.event_call[row], records.device[row], records.event_stream[row], records.event_call[row]);
  }
}

}  // namespace llmprof
